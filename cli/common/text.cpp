// See text.hpp.
#include "cli/common/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace evenorm::cli {
namespace {

// What begins a character of several bytes in UTF-8: up to which first byte, how many there are, and which second bytes
// follow (not all do: a character has one form alone, surrogates have none, and there is an end).
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

// Of the character in UTF-8 that `text` begins with; 0 where that is none, or a control character.
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
  return start->bytes;
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

std::string with_commas(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

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

bool names_a_file(std::string_view text) { return text.ends_with(".npy") || text.find('/') != std::string_view::npos; }

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<std::vector<std::int64_t>> parse_sizes(std::string_view text) {
  std::vector<std::int64_t> sizes;
  for (;;) {
    const std::size_t comma = text.find(',');
    const auto size = parse_integer(text.substr(0, comma));
    if (!size) return std::nullopt;
    sizes.push_back(*size);
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::optional<DType> dtype_named(std::string_view text) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    if (text == name(dtype)) return dtype;
  }
  return std::nullopt;
}

DType parse_dtype(std::string_view option, const std::string& text) {
  if (const auto dtype = dtype_named(text)) return *dtype;
  throw Failure(fmt::format("{} is '{}', but should be f64, f32, bf16 or f16", option, text));
}

std::string_view without_plus(std::string_view number) {
  const bool plus = number.size() > 1 && number[0] == '+' && number[1] != '-';
  return number.substr(plus ? 1 : 0);
}

double parse_eps(const std::string& text) {
  const std::string_view number = without_plus(text);
  double eps = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, eps);
  if (stop == end && error == std::errc::result_out_of_range) {
    throw Failure(fmt::format("--eps is '{}', which is out of the range of f64", text));
  }
  if (stop == end && error == std::errc{}) return eps;
  throw Failure(fmt::format("--eps is '{}', but should be a finite number >= 0", text));
}

std::size_t parse_threads(const std::string& text) {
  constexpr std::int64_t kMost = 1024;
  const auto threads = parse_integer(text);
  if (threads && *threads >= 0 && *threads <= kMost) return static_cast<std::size_t>(*threads);
  throw Failure(fmt::format("--threads is '{}', but should be 1 to {}, or 0 for one per processor", text, kMost));
}

}  // namespace evenorm::cli
