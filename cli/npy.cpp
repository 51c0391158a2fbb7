// See npy.hpp.
#include "npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "text.hpp"

namespace evenorm::cli {
namespace {

constexpr std::align_val_t kAlignment{64};

NpyHeader read_header(const InputFile& file) {
  std::vector<std::byte> start(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kMaxNpyHeaderBytes)));
  file.read(0, start);
  NpyParse parse = parse_npy_header(start, file.size());
  if (!parse.error.empty()) throw Failure(fmt::format("{} {}", file.path(), parse.error));
  return std::move(parse.header);
}

}  // namespace

Array::Array(DType dtype, std::vector<std::int64_t> shape, std::size_t bytes)
    : dtype_(dtype), shape_(std::move(shape)), bytes_(bytes) {
  // One byte at least: an array without elements is not an absent one.
  void* data = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment, std::nothrow);
  if (data == nullptr) throw Failure(fmt::format("{} bytes of memory cannot be had", with_commas(bytes)));
  data_.reset(static_cast<std::byte*>(data));
}

void Array::Free::operator()(std::byte* data) const noexcept { ::operator delete(data, kAlignment); }

NpyFile::NpyFile(const std::string& path) : file_(path), header_(read_header(file_)) {}

Array NpyFile::allocate() const { return {header_.dtype, header_.shape, static_cast<std::size_t>(header_.data_bytes)}; }

void NpyFile::read(Array& array) const { file_.read(header_.data_offset, array.bytes()); }

Array read_npy(const std::string& path) {
  const NpyFile file(path);
  Array array = file.allocate();
  file.read(array);
  return array;
}

void write_npy(Outputs& outputs, std::size_t output, const Array& array) {
  const std::string header = npy_header_text(array.dtype(), array.shape());
  outputs.write(output, std::as_bytes(std::span(header)));
  outputs.write(output, array.bytes());
}

}  // namespace evenorm::cli
