// Fuzzes .npy files. An accepted header agrees with the file to the byte. The elements are those that an independent
// reading finds, and writing and reading them again changes nothing. A refusal is a Failure of one line.
#include <algorithm>
#include <cstring>

#include "cli/common/text.hpp"
#include "cli/files/npy.hpp"
#include "fuzz/support.hpp"

namespace evenorm::fuzz {
namespace {

using cli::NpyHeader;
using cli::NpyParse;

bool equal(const NpyHeader& a, const NpyHeader& b) {
  return a.dtype == b.dtype && a.big_endian == b.big_endian && a.fortran_order == b.fortran_order &&
         a.shape == b.shape && a.data_offset == b.data_offset && a.data_bytes == b.data_bytes;
}

bool equal(const NpyParse& a, const NpyParse& b) { return a.error == b.error && equal(a.header, b.header); }

// Multiplies the sizes in a wider type than the reader.
void expect_sizes(const NpyHeader& header) {
  unsigned __int128 bytes = size_of(header.dtype);
  const bool empty = std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
  for (const std::int64_t size : header.shape) {
    expect(size >= 0, "sizes are at least 0");
    if (!empty && size != 1) bytes *= static_cast<std::uint64_t>(size);
    expect(empty || bytes >> 63 == 0, "a tensor has less than 2^63 bytes");
  }
  expect(header.shape.size() <= cli::kMaxNpyAxes, "axes are few");
  expect(header.data_bytes == (empty ? 0 : static_cast<std::uint64_t>(bytes)),
         "the data has as many bytes as the shape");
}

void expect_same_again(const NpyHeader& header) {
  const std::string text = cli::npy_header_text(header.dtype, header.shape, header.fortran_order);
  const NpyParse again = cli::parse_npy_header(std::as_bytes(std::span(text)), text.size() + header.data_bytes);
  expect(again.error.empty(), "what is written can be read");
  NpyHeader written = header;
  written.big_endian = false;
  written.data_offset = text.size();
  expect(text.size() % 64 == 0 && equal(again.header, written), "a header written and read again is the same");
}

// Byte b of element i in C order, as the format defines it.
std::uint8_t byte_of(Input file, const NpyHeader& header, std::size_t i, std::size_t b) {
  std::size_t place = 0, step = 1, rest = i;
  const std::size_t axes = header.shape.size();
  std::vector<std::size_t> index(axes);
  for (std::size_t axis = axes; axis-- > 0; rest /= static_cast<std::size_t>(header.shape[axis])) {
    index[axis] = rest % static_cast<std::size_t>(header.shape[axis]);
  }
  for (std::size_t k = 0; k < axes; ++k) {
    const std::size_t axis = header.fortran_order ? k : axes - 1 - k;
    place += index[axis] * step;
    step *= static_cast<std::size_t>(header.shape[axis]);
  }
  const std::size_t element = size_of(header.dtype);
  return file[header.data_offset + place * element + (header.big_endian ? element - 1 - b : b)];
}

void expect_elements(Input file, const NpyHeader& header, const cli::Array& array) {
  const std::size_t element = size_of(header.dtype);
  expect(array.dtype() == header.dtype && array.shape() == header.shape, "an array is what its header says");
  expect(array.bytes().size() == header.data_bytes, "an array has all of its elements");
  for (std::size_t i = 0; i < array.bytes().size(); ++i) {
    const auto expected = std::byte{byte_of(file, header, i / element, i % element)};
    expect(array.bytes()[i] == expected, "an element is where the format says");
  }
}

void expect_written_and_read(const cli::Array& array) {
  const std::string text = cli::npy_header_text(array.dtype(), array.shape());
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  const auto* data = reinterpret_cast<const std::uint8_t*>(array.bytes().data());
  bytes.insert(bytes.end(), data, data + array.bytes().size());
  const cli::Array again = cli::read_npy(memory_file(bytes));
  expect(again.shape() == array.shape() && std::ranges::equal(again.bytes(), array.bytes()),
         "a tensor written and read again is the same");
}

}  // namespace

void npy(Input input) {
  const auto file = std::as_bytes(input);
  const NpyParse parse = cli::parse_npy_header(file.first(std::min(file.size(), cli::kMaxNpyHeaderBytes)), file.size());
  const std::size_t needed = cli::npy_header_bytes(file.first(std::min(file.size(), cli::kNpyStartBytes)));
  const auto start = file.first(std::min(file.size(), needed));
  expect(equal(cli::parse_npy_header(start, file.size()), parse), "the bytes that are needed suffice");

  // A pipe only shows the header.
  const NpyParse piped = cli::parse_npy_header(start, std::nullopt);
  if (piped.error.empty()) {
    expect_sizes(piped.header);
    expect_same_again(piped.header);
    const std::uint64_t size = piped.header.data_offset + piped.header.data_bytes;
    expect(cli::parse_npy_header(start, size).error.empty(), "a file of the header's own size is accepted");
    expect(cli::parse_npy_header(start, size + 1).error.empty(), "bytes after the array are skipped");
    expect(!cli::parse_npy_header(start, size - 1).error.empty(), "a byte too few is refused");
    expect(parse.error.empty() == (size <= file.size()), "a header agrees with the file's size");
  } else {
    expect_one_line(piped.error);
    expect(!parse.error.empty(), "a header refused from a pipe is refused from a file");
  }

  try {
    const cli::Array array = cli::read_npy(memory_file(input));
    expect(parse.error.empty(), "a file is read only where its header is good");
    expect_elements(input, parse.header, array);
    expect_written_and_read(array);
  } catch (const cli::Failure& failure) {
    expect_one_line(failure.what());
    expect(!parse.error.empty(), "a file with a good header is read");
  }
}

}  // namespace evenorm::fuzz
