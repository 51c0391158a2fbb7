#include "problem/printable.hpp"

#include <algorithm>
#include <array>

namespace evenorm::internal {
namespace {

// Which bytes may begin a UTF-8 character of several bytes. An entry holds for first bytes up to `last` that the entry
// before does not cover. The limits of the second byte exclude overlong forms, surrogates and what exceeds U+10FFFF.
struct Utf8Start {
  unsigned char last, bytes, second_from, second_to;
};
constexpr std::array<Utf8Start, 10> kUtf8Starts{{{0xC1, 0, 0, 0},
                                                 {0xC2, 2, 0xA0, 0xBF},  // without the controls U+0080 to U+009F
                                                 {0xDF, 2, 0x80, 0xBF},
                                                 {0xE0, 3, 0xA0, 0xBF},
                                                 {0xEC, 3, 0x80, 0xBF},
                                                 {0xED, 3, 0x80, 0x9F},
                                                 {0xEF, 3, 0x80, 0xBF},
                                                 {0xF0, 4, 0x90, 0xBF},
                                                 {0xF3, 4, 0x80, 0xBF},
                                                 {0xF4, 4, 0x80, 0x8F}}};

// The length of the UTF-8 character at the start of `text`; 0 if it is invalid, a control character or a line
// separator.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const auto* start = std::find_if(kUtf8Starts.begin(), kUtf8Starts.end(),
                                   [&](const Utf8Start& candidate) { return byte(0) <= candidate.last; });
  if (start == kUtf8Starts.end() || start->bytes == 0 || start->bytes > text.size()) return 0;
  if (byte(1) < start->second_from || byte(1) > start->second_to) return 0;
  for (std::size_t i = 2; i < start->bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  const std::string_view character = text.substr(0, start->bytes);
  return character == "\u2028" || character == "\u2029" ? 0 : start->bytes;  // the line and paragraph separators
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
