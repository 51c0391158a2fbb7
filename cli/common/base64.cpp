// See base64.hpp.
#include "cli/common/base64.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace evenorm::cli {

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kBytes = 3, kCharacters = 4;  // 24 bits
  std::string text;
  text.reserve((bytes.size() + kBytes - 1) / kBytes * kCharacters);
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kBytes, bytes.size()))) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < kBytes; ++i) {
      bits = bits << 8U | (i < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i]) : 0);
    }
    for (std::size_t i = 0; i < kCharacters; ++i) {
      text += i <= bytes.size() ? kDigits[bits >> (18U - 6U * i) & 63U] : '=';
    }
  }
  return text;
}

}  // namespace evenorm::cli
