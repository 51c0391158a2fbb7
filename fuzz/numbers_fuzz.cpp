// Fuzzes tensors, axes and sizes typed on the command line. An accepted tensor is rectangular and holds the numbers
// that an independent reader finds. Printing and reading it again changes nothing.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "cli/common/layout.hpp"
#include "cli/common/text.hpp"
#include "fuzz/support.hpp"
#include "learn/explain/numbers.hpp"

namespace evenorm::fuzz {
namespace {

using cli::Numbers;
using cli::Shape;

bool same_value(double a, double b) {
  return a != a ? b != b : std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

void expect_same(const Numbers& a, const Numbers& b, std::string_view promise) {
  expect(a.shape == b.shape && std::ranges::equal(a.values, b.values, same_value), promise);
}

// The numbers of the words alone. Brackets and commas count as spaces.
std::vector<double> words_of(std::string_view typed) {
  std::string text(typed);
  for (std::size_t at = 0; (at = text.find("\xe2\x88\x92", at)) != std::string::npos;) text.replace(at, 3, "-");
  std::vector<double> values;
  constexpr std::string_view kBetween = " \t\r\n,[]()";
  for (std::size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    values.push_back(std::strtod(text.substr(at, end - at).c_str(), nullptr));
    at = end;
  }
  return values;
}

std::string printed(const Numbers& numbers, std::size_t axis, std::size_t& next) {
  if (axis == numbers.shape.size()) return fmt::format("{}", numbers.values[next++]);
  std::string text = "[";
  for (std::int64_t i = 0; i < numbers.shape[axis]; ++i)
    text += (i == 0 ? "" : ", ") + printed(numbers, axis + 1, next);
  return text + "]";
}

void check_tensor(std::string_view text) {
  const Numbers numbers = cli::parse_numbers("x", text);
  expect(!numbers.shape.empty(), "a tensor has an axis");
  for (const std::int64_t size : numbers.shape) expect(size >= 1, "no axis is empty");
  const auto count = std::accumulate(numbers.shape.begin(), numbers.shape.end(), std::int64_t{1}, std::multiplies<>());
  expect(static_cast<std::size_t>(count) == numbers.values.size(), "a tensor is rectangular");
  expect_same(numbers, {numbers.shape, words_of(text)}, "a tensor holds the numbers that were typed");
  std::size_t next = 0;
  expect_same(cli::parse_numbers("x", printed(numbers, 0, next)), numbers,
              "a tensor printed and read again is the same");
}

void check_axes(const std::string& text) {
  const Shape shape = {2, 3, 5, 1, 7};
  const auto axes = cli::normalized_axes("x", shape, {.axes = text, .normalized_shape = {}});
  expect(std::adjacent_find(axes.begin(), axes.end(), std::greater_equal<>()) == axes.end(), "axes are in order, once");
  expect(text.empty() || cli::parse_sizes(text)->size() == axes.size(), "every axis that is named is taken");
  for (const std::size_t axis : axes) expect(axis < shape.size(), "an axis is one of the tensor's");
}

void check_normalized_shape(const std::string& text) {
  const Shape shape = {2, 3, 5, 1, 7};
  const auto axes = cli::normalized_axes("x", shape, {.axes = {}, .normalized_shape = text});
  expect(!axes.empty() && axes.back() == 4 && axes.back() - axes.front() + 1 == axes.size(), "the axes are the last");
  if (!text.empty())
    expect(cli::parse_sizes(text) == cli::sizes_at(shape, axes), "they have the sizes that were typed");
}

void check_sizes(const std::string& text) {
  const auto sizes = cli::parse_sizes(text);
  if (!sizes) return;
  std::string again = cli::shape_text(*sizes);
  std::erase(again, ' ');
  expect(cli::parse_sizes(again.substr(1, again.size() - 2)) == sizes, "sizes printed and read again are the same");
}

void check_eps(const std::string& text) {
  const double eps = cli::parse_number("--eps", text);
  expect(same_value(eps, std::strtod(text.c_str(), nullptr)), "eps equals the typed number");
}

void check_threads(const std::string& text) {
  expect(cli::parse_threads(text) == std::strtoul(text.c_str(), nullptr, 10),
         "the number of threads equals the typed number");
}

}  // namespace

// An argument cannot contain a zero byte.
void numbers(Input input) {
  const std::string text(input.begin(), std::find(input.begin(), input.end(), std::uint8_t{0}));
  for (const auto check : {+[](const std::string& t) { check_tensor(t); }, check_axes, check_normalized_shape,
                           check_sizes, check_eps, check_threads}) {
    try {
      check(text);
    } catch (const cli::Failure& failure) {
      expect(*failure.what() != '\0', "a refusal has a message");
    }
  }
}

}  // namespace evenorm::fuzz
