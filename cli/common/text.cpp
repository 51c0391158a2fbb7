#include "cli/common/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <system_error>

namespace evenorm::cli {

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

bool names_a_file(std::string_view text) {
  return text.ends_with(".npy") || text.find(".npz") != std::string_view::npos ||
         text.find('/') != std::string_view::npos;
}

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

double parse_number(std::string_view option, const std::string& text) {
  const std::string_view number = without_plus(text);
  double value = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, value);
  if (stop == end && error == std::errc::result_out_of_range) {
    throw Failure(fmt::format("{} is '{}', which is out of the range of f64", option, text));
  }
  if (stop == end && error == std::errc{}) return value;
  throw Failure(fmt::format("{} is '{}', but should be a finite number >= 0", option, text));
}

std::size_t parse_threads(const std::string& text) {
  constexpr std::int64_t kMost = 1024;
  const auto threads = parse_integer(text);
  if (threads && *threads >= 0 && *threads <= kMost) return static_cast<std::size_t>(*threads);
  throw Failure(fmt::format("--threads is '{}', but should be 1 to {}, or 0 for one per processor", text, kMost));
}

}  // namespace evenorm::cli
