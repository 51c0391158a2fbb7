#include "problem/printable.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace evenorm::internal {
namespace {

// The length of the UTF-8 character at the start of `text`; 0 if it is invalid, a control character or a line
// separator.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const int ones = std::countl_one(byte(0));  // the length, or 0
  const auto bytes = static_cast<std::size_t>(std::max(ones, 1));
  if (ones == 1 || ones > 4 || bytes > text.size()) return 0;
  std::uint32_t code = byte(0) & (0xFFU >> (ones + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[ones] || is_surrogate || code > 0x10FFFF) return 0;
  const bool is_control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  return is_control || code == 0x2028 || code == 0x2029 ? 0 : bytes;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string line;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t bytes = character_bytes(rest);
    const std::size_t taken = std::max<std::size_t>(bytes, 1);
    if (line.size() + taken > limit) return line + "...";
    line += bytes == 0 ? std::string_view("?") : rest.substr(0, bytes);
    rest.remove_prefix(taken);
  }
  return line;
}

}  // namespace evenorm::internal
