// See numbers.hpp.
#include "learn/explain/numbers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <string>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::size_t kMostAxes = 32;
constexpr std::size_t kNone = std::string_view::npos;
constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kEnds = " \t\r\n,[]()";

std::string described(const Shape& shape) {
  if (shape.empty()) return "is one number";
  if (shape.size() == 1) return fmt::format("holds {} number{}", shape[0], shape[0] == 1 ? "" : "s");
  return "has shape " + shape_text(shape);
}

// Copied texts have U+2212 as minus sign, which from_chars does not accept.
std::string plain_number(std::string_view word) {
  constexpr std::string_view kMinus = "\xe2\x88\x92";
  std::string plain(word);
  for (std::size_t at = plain.find(kMinus); at != std::string::npos; at = plain.find(kMinus, at + 1)) {
    plain.replace(at, kMinus.size(), "-");
  }
  return std::string(without_plus(plain));
}

class Parser {
 public:
  Parser(std::string_view argument, std::string_view text) : argument_(argument), text_(text) {}

  Numbers parse() {
    skip_spaces();
    if (at_ == text_.size()) throw Failure(fmt::format("{} holds no number", argument_));
    // "[4 2 8]" is one list, "[1 2] [3 4]" a list of two.
    Shape shape = one_list() ? item() : list('\0', 0);
    return {std::move(shape), std::move(values_)};
  }

 private:
  // Characters are counted from 1. A character of several bytes counts once.
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    std::size_t character = 1;
    for (std::size_t i = 0; i < at; ++i) character += (static_cast<unsigned char>(text_[i]) & 0xC0) != 0x80 ? 1U : 0U;
    throw Failure(fmt::format("{}, character {}: {}", argument_, character, what));
  }

  void skip_spaces() {
    while (at_ < text_.size() && kSpaces.find(text_[at_]) != std::string_view::npos) ++at_;
  }

  // True if the text begins with a bracket and ends with the bracket that closes it.
  bool one_list() const {
    std::size_t open = 0;
    for (std::size_t i = at_; i < text_.size(); ++i) {
      if (text_[i] == '[' || text_[i] == '(') ++open;
      if (open > 0 && (text_[i] == ']' || text_[i] == ')')) --open;
      if (open == 0) return i > at_ && text_.find_first_not_of(kSpaces, i + 1) == std::string_view::npos;
    }
    return open > 0;  // an unclosed bracket is reported when it is read
  }

  // Reads items up to `close`, or up to the end of the text if `close` is '\0'.
  Shape list(char close, std::size_t opened) {
    std::size_t items = 0;
    std::size_t comma = kNone;  // the position of a comma that no item has followed yet
    Shape first;
    for (;;) {
      skip_spaces();
      const bool ended = at_ == text_.size();
      if (ended && close != '\0') fail(opened, fmt::format("'{}' is never closed", text_[opened]));
      if (ended || text_[at_] == close) break;
      if (text_[at_] == ',') {
        if (items == 0 || comma != kNone) fail(at_, "a number is missing before this comma");
        comma = at_++;
        continue;
      }
      path_.push_back(items);
      const Shape shape = item();
      if (items == 0) first = shape;
      if (shape != first) ragged(first, shape);
      path_.pop_back();
      ++items;
      comma = kNone;
    }
    if (comma != kNone) fail(comma, "a number is missing after this comma");
    if (items == 0) fail(opened, "these brackets hold no number");
    first.insert(first.begin(), static_cast<std::int64_t>(items));
    return first;
  }

  Shape item() {
    const char c = text_[at_];
    if (c == ']' || c == ')') fail(at_, fmt::format("'{}' closes no bracket that is open", c));
    if (c != '[' && c != '(') {
      values_.push_back(number());
      return {};
    }
    if (path_.size() >= kMostAxes) fail(at_, fmt::format("more than {} brackets are open", kMostAxes));
    const std::size_t opened = at_++;
    Shape shape = list(c == '[' ? ']' : ')', opened);
    ++at_;
    return shape;
  }

  double number() {
    const std::size_t start = at_;
    at_ = std::min(text_.find_first_of(kEnds, start), text_.size());
    const std::string_view word = text_.substr(start, at_ - start);
    const std::string plain = plain_number(word);
    double value = 0;
    const char* end = plain.data() + plain.size();
    const auto [stop, error] = std::from_chars(plain.data(), end, value);
    if (stop == end && error == std::errc::result_out_of_range) {
      fail(start, fmt::format("'{}' is out of the range of f64", printable(word, 40)));
    }
    if (stop != end || error != std::errc{}) fail(start, fmt::format("'{}' is not a number", printable(word, 40)));
    return value;
  }

  [[noreturn]] void ragged(const Shape& first, const Shape& shape) const {
    const std::span<const std::size_t> outer(path_.data(), path_.size() - 1);
    const std::string prefix = outer.empty() ? "" : fmt::format("[{}]", fmt::join(outer, "]["));
    throw Failure(fmt::format("{} is ragged: {}[0] {}, but {}[{}] {}", argument_, prefix, described(first), prefix,
                              path_.back(), described(shape)));
  }

  std::string_view argument_, text_;
  std::size_t at_ = 0;
  std::vector<double> values_;
  std::vector<std::size_t> path_;  // the index of the item being read, one per open list
};

}  // namespace

Numbers parse_numbers(std::string_view argument, std::string_view text) { return Parser(argument, text).parse(); }

}  // namespace evenorm::cli
