#include "cli/files/safetensors_writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "cli/common/text.hpp"
#include "cli/files/safetensors.hpp"

namespace evenorm::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "files and this machine have the same byte order");

// In the order of DType, which is also the order of tensors in a file.
constexpr std::array<std::string_view, 4> kTypeNames{"F64", "F32", "BF16", "F16"};

std::size_t bytes_of(const ConstTensor& tensor) {
  std::size_t bytes = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

std::string quoted(const std::string& name) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception&) {
    throw Failure(fmt::format("'{}' is a tensor's name, but it should be UTF-8", printable(name, 80)));
  }
}

void check(const std::vector<NamedConstTensor>& tensors) {
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__") throw Failure("'__metadata__' is a tensor's name, but the format reserves it");
    if (!tensor.strides.empty()) {
      throw Failure(fmt::format("tensor '{}' has strides, but should be contiguous", printable(name, 80)));
    }
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) throw Failure(fmt::format("tensor '{}' is given twice", printable(*twin, 80)));
}

// Returns everything before the data. `tensors` are in the order of their data.
std::string start_of_file(const std::vector<NamedConstTensor>& tensors) {
  std::string header = "{";
  std::size_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t end = at + bytes_of(tensor);
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                          quoted(name), kTypeNames[static_cast<std::size_t>(tensor.dtype)],
                          fmt::join(tensor.shape, ","), at, end);
    at = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxSafetensorsHeaderBytes) {
    throw Failure(fmt::format("{} tensors need a header of {} bytes, but it should have at most {}",
                              with_commas(tensors.size()), with_commas(header.size()),
                              with_commas(kMaxSafetensorsHeaderBytes)));
  }
  const auto size = std::bit_cast<std::array<char, kSafetensorsStartBytes>>(std::uint64_t{header.size()});
  return std::string(size.begin(), size.end()) + header;
}

}  // namespace

void write_safetensors(Outputs& outputs, std::size_t output, std::vector<NamedConstTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.tensor.dtype, a.name) < std::tie(b.tensor.dtype, b.name);
  });
  check(tensors);
  const std::string start = start_of_file(tensors);
  outputs.write(output, 0, std::as_bytes(std::span(start)));
  std::uint64_t at = start.size();
  for (const auto& [name, tensor] : tensors) {
    const std::size_t bytes = bytes_of(tensor);
    outputs.write(output, at, {static_cast<const std::byte*>(tensor.data), bytes});
    at += bytes;
  }
}

}  // namespace evenorm::cli
