// Implements support.hpp.
#include "fuzz/support.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace evenorm::fuzz {

void expect_one_line(std::string_view message) {
  expect(!message.empty(), "a refusal has a message");
  for (const char c : message) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (control) throw Violation("a refusal is one line: " + std::string(message));
  }
}

std::size_t Choices::below(std::size_t n) { return static_cast<std::size_t>(take(n <= 256 ? 1 : 4) % n); }

std::uint64_t Choices::word() { return take(8); }

std::uint8_t Choices::last() {
  if (rest_.empty()) return 0;
  const std::uint8_t byte = rest_.back();
  rest_ = rest_.first(rest_.size() - 1);
  return byte;
}

std::uint64_t Choices::take(std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes && !rest_.empty(); ++i) {
    value |= std::uint64_t{rest_[0]} << (8 * i);
    rest_ = rest_.subspan(1);
  }
  return value;
}

std::string memory_file(Input bytes) {
  static const int file = memfd_create("fuzz", MFD_CLOEXEC);
  const auto size = static_cast<ssize_t>(bytes.size());
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, bytes.data(), bytes.size(), 0) != size) {
    throw std::system_error(errno, std::generic_category(), "memfd");
  }
  return "/proc/self/fd/" + std::to_string(file);
}

contracts::Array array_of(DType dtype, const std::vector<std::byte>& bytes) {
  contracts::Array array(dtype, bytes.size() / size_of(dtype));
  std::copy(bytes.begin(), bytes.end(), array.data());
  return array;
}

}  // namespace evenorm::fuzz
