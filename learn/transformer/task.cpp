#include "task.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace transformer {
namespace {

constexpr int kHeldShare = 10;  // one string in this many is held out

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::int64_t token_of(Kind kind) { return kind == Kind::reverse ? kReverse : kind == Kind::sort ? kSort : kAdd; }

std::string padded(std::string_view number, std::size_t length) {
  return std::string(length - number.size(), '0') + std::string(number);
}

// The columns of a sum. The last column comes first.
struct Column {
  int digit, carry;
};

std::vector<Column> columns_of(const Question& sum) {
  const auto length = static_cast<std::size_t>(sum.length());
  std::vector<Column> columns;
  int carry = 0;
  for (std::size_t at = length; at-- > 0;) {
    const int column = (sum.digits[at] - '0') + (sum.digits[length + at] - '0') + carry;
    carry = column / 10;
    columns.push_back({column % 10, carry});
  }
  return columns;
}

char digit_of(std::int64_t token) { return token < 10 ? static_cast<char>('0' + token) : '?'; }

Question parse_sum(std::string_view text) {
  const std::size_t plus = text.find('+');
  if (plus == std::string_view::npos)
    throw BadQuestion(fmt::format("add needs two numbers, such as 472+59, not '{}'", text));
  const std::string_view a = text.substr(0, plus), b = text.substr(plus + 1);
  if (!all_digits(a) || !all_digits(b))
    throw BadQuestion(fmt::format("add needs two numbers, such as 472+59, not '{}'", text));
  const std::size_t length = std::max(a.size(), b.size());
  return {Kind::add, padded(a, length) + padded(b, length)};
}

}  // namespace

std::string_view name(Kind kind) { return kind == Kind::reverse ? "reverse" : kind == Kind::sort ? "sort" : "add"; }

Kind kind_named(std::string_view word) {
  const auto* const kind = std::find_if(kKinds.begin(), kKinds.end(), [&](Kind one) { return name(one) == word; });
  if (kind == kKinds.end()) throw BadQuestion(fmt::format("'{}' is not reverse, sort or add", word));
  return *kind;
}

Question parse_question(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) {
    throw BadQuestion(fmt::format("'{}' is not a question; examples: 'reverse 3142', 'sort 3142', 'add 472+59'", text));
  }
  const std::string_view word = text.substr(0, space);
  const Kind kind = kind_named(word);
  const std::string_view rest = text.substr(space + 1);
  Question question = kind == Kind::add ? parse_sum(rest) : Question{kind, std::string(rest)};
  if (!all_digits(question.digits))
    throw BadQuestion(fmt::format("{} needs digits, such as 3142, not '{}'", word, rest));
  if (question.length() > kLongest) {
    throw BadQuestion(
        fmt::format("'{}' has {} digits, but the network learns at most {}", text, question.length(), kLongest));
  }
  return question;
}

std::string written(const Question& question) {
  const auto length = static_cast<std::size_t>(question.length());
  const std::string digits = question.kind == Kind::add
                                 ? question.digits.substr(0, length) + "+" + question.digits.substr(length)
                                 : question.digits;
  return fmt::format("{} {}", name(question.kind), digits);
}

std::string answer_of(const Question& question) { return answer_from(question.kind, answer_tokens(question)); }

std::vector<std::int64_t> question_tokens(const Question& question) {
  std::vector<std::int64_t> tokens{token_of(question.kind)};
  const auto add = [&](std::size_t at) { tokens.push_back(question.digits[at] - '0'); };
  const auto length = static_cast<std::size_t>(question.length());
  if (question.kind == Kind::add) {
    for (std::size_t at = length; at-- > 0;) {
      add(at);
      add(length + at);
    }
  } else {
    for (std::size_t at = 0; at < length; ++at) add(at);
  }
  tokens.push_back(kEnd);
  return tokens;
}

std::vector<std::int64_t> answer_tokens(const Question& question) {
  std::vector<std::int64_t> tokens;
  if (question.kind == Kind::add) {
    for (const Column& column : columns_of(question)) tokens.insert(tokens.end(), {column.digit, column.carry});
  } else {
    for (const char digit : question.digits) tokens.push_back(digit - '0');
  }
  if (question.kind == Kind::reverse) std::reverse(tokens.begin(), tokens.end());
  if (question.kind == Kind::sort) std::sort(tokens.begin(), tokens.end());
  tokens.push_back(kEnd);
  return tokens;
}

std::string answer_from(Kind kind, const std::vector<std::int64_t>& tokens) {
  const std::vector written(tokens.begin(), std::find(tokens.begin(), tokens.end(), kEnd));
  std::string answer;
  for (std::size_t at = 0; at < written.size(); at += kind == Kind::add ? 2 : 1) answer += digit_of(written[at]);
  if (kind != Kind::add) return answer;
  if (!written.empty() && written.back() != 0) answer += digit_of(written.back());  // the carry of the first column
  std::reverse(answer.begin(), answer.end());
  return answer;
}

std::uint64_t Random::next() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

Part part_of(const Question& question) {
  if (question.length() == kHeldLength) return Part::held_length;
  std::uint64_t hash = Random(static_cast<std::uint64_t>(question.kind)).next();
  for (const char digit : question.digits) hash = Random(hash ^ static_cast<std::uint64_t>(digit)).next();
  return hash % kHeldShare == 0 ? Part::held_strings : Part::training;
}

Question random_question(Random& random, Part part, Kind kind) {
  for (;;) {
    const int length = part == Part::held_length ? kHeldLength : 1 + random.below(kLongest);
    Question question{kind, {}};
    const int digits = kind == Kind::add ? 2 * length : length;
    for (int at = 0; at < digits; ++at) question.digits += static_cast<char>('0' + random.below(10));
    if (part_of(question) == part) return question;
  }
}

}  // namespace transformer
