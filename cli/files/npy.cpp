#include "cli/files/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "cli/common/layout.hpp"
#include "cli/common/text.hpp"
#include "cli/files/npz.hpp"

namespace evenorm::cli {
namespace {

constexpr std::align_val_t kAlignment{64};

static_assert(std::endian::native == std::endian::little, "files and this machine have the same byte order");

NpyHeader read_header(InputFile& file) {
  std::vector<std::byte> start(kNpyStartBytes);
  start.resize(file.read_up_to(0, start));
  const std::size_t first = start.size();
  start.resize(npy_header_bytes(start));
  start.resize(first + file.read_up_to(first, std::span(start).subspan(first)));
  // If a pipe ends within its header, its size is known.
  const bool ended = start.size() < npy_header_bytes(start) || start.size() < kNpyStartBytes;
  NpyParse parse = parse_npy_header(start, ended ? start.size() : file.size());
  if (!parse.error.empty()) throw Failure(fmt::format("{} {}", file.path(), parse.error));
  file.expect_size(parse.header.data_offset + parse.header.data_bytes);
  return std::move(parse.header);
}

void swap_bytes(std::span<std::byte> elements, std::size_t element_bytes) {
  for (std::size_t i = 0; i < elements.size(); i += element_bytes) {
    std::reverse(elements.begin() + static_cast<std::ptrdiff_t>(i),
                 elements.begin() + static_cast<std::ptrdiff_t>(i + element_bytes));
  }
}

// Advances `index` to the next element in C order, and returns that element's number in Fortran order.
std::size_t next_in_fortran_order(std::span<const std::int64_t> shape, std::vector<std::int64_t>& index) {
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (++index[axis] < shape[axis]) break;
    index[axis] = 0;
  }
  std::size_t at = 0;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    at = at * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(index[axis]);
  }
  return at;
}

InputFile open_npy(const std::string& path, Dash dash) {
  const std::optional<NpzPath> npz = npz_path(path);
  return npz ? open_in_npz(*npz) : InputFile(path, dash);
}

// Copies an array to C order. Only parameters need it; large tensors stay in the file's order.
Array in_c_order(const Array& fortran) {
  Array result(fortran.dtype(), fortran.shape());
  const std::size_t element = size_of(fortran.dtype());
  std::vector<std::int64_t> index(fortran.shape().size());
  std::size_t from = 0;
  for (std::size_t to = 0; to < result.bytes().size(); to += element) {
    std::memcpy(result.bytes().data() + to, fortran.bytes().data() + from * element, element);
    from = next_in_fortran_order(fortran.shape(), index);
  }
  return result;
}

}  // namespace

Array::Array(DType dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), bytes_(product(shape_) * size_of(dtype)) {
  // At least one byte, because an array without elements is not absent.
  void* data = ::operator new(std::max<std::size_t>(bytes_, 1), kAlignment, std::nothrow);
  if (data == nullptr) throw Failure(fmt::format("{} bytes of memory cannot be allocated", with_commas(bytes_)));
  data_.reset(static_cast<std::byte*>(data));
}

Array scratch_for(const Backward& backward) {
  const std::size_t numbers = (scratch_bytes(backward) + sizeof(double) - 1) / sizeof(double);
  return {DType::f64, {static_cast<std::int64_t>(numbers)}};
}

void Array::Free::operator()(std::byte* data) const noexcept { ::operator delete(data, kAlignment); }

NpyFile::NpyFile(const std::string& path, Dash dash) : file_(open_npy(path, dash)), header_(read_header(file_)) {}

Array NpyFile::allocate() const { return {header_.dtype, header_.shape}; }

void NpyFile::read(Array& array) {
  read_elements(0, array.bytes());
  if (header_.fortran_order && header_.shape.size() > 1) array = in_c_order(array);
}

void NpyFile::read_elements(std::int64_t first, std::span<std::byte> elements) {
  const std::size_t element = size_of(header_.dtype);
  file_.read(header_.data_offset + static_cast<std::uint64_t>(first) * element, elements);
  if (header_.big_endian) swap_bytes(elements, element);
}

Array read_npy(const std::string& path) {
  NpyFile file(path);
  Array array = file.allocate();
  file.read(array);
  return array;
}

void write_npy(Outputs& outputs, std::size_t output, const Array& array) {
  const std::string header = npy_header_text(array.dtype(), array.shape());
  outputs.write(output, 0, std::as_bytes(std::span(header)));
  outputs.write(output, header.size(), array.bytes());
}

}  // namespace evenorm::cli
