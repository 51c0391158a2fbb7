// What the Transformer learns: to reverse and to sort strings of digits, and to add numbers. The program makes its own
// examples, and holds some back: one string in ten, by its hash, and every string of one length.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

struct BadQuestion : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

enum class Kind : std::uint8_t { reverse, sort, add };
inline constexpr std::array kKinds{Kind::reverse, Kind::sort, Kind::add};
std::string_view name(Kind kind);
Kind kind_named(std::string_view name);  // throws BadQuestion

// A digit's token is the digit.
enum Token : std::int64_t { kBegin = 10, kEnd, kReverse, kSort, kAdd, kPadding, kTokens };

// reverse, sort: `digits`. add: two numbers of equally many digits, one after the other.
struct Question {
  Kind kind = Kind::reverse;
  std::string digits;

  // Of the string, or of each number.
  [[nodiscard]] int length() const { return static_cast<int>(kind == Kind::add ? digits.size() / 2 : digits.size()); }
};

inline constexpr int kLongest = 7;     // length
inline constexpr int kHeldLength = 5;  // never trained on

// "reverse 3142", "sort 3142" or "add 472+59", whose shorter number gets zeros in front.
Question parse_question(std::string_view text);
std::string written(const Question& question);  // as parse_question reads it

// What the question should be answered. A sum has a digit more than its numbers where the first column carries.
std::string answer_of(const Question& question);

// As the network reads it: the kind, the digits, kEnd. A sum is read as it is done by hand, column by column from the
// last one on: 472+59 is 2 9 7 5 4 0.
std::vector<std::int64_t> question_tokens(const Question& question);
// As the network writes it, kEnd last. A sum is written by hand, too: for each column its digit and what is carried, so
// that digits stand where their column does: 1 1 3 1 5 0.
std::vector<std::int64_t> answer_tokens(const Question& question);
// The answer from tokens like those, up to kEnd; "?" stands for what is no digit.
std::string answer_from(Kind kind, const std::vector<std::int64_t>& tokens);
inline constexpr int kLongestAnswer = 2 * kLongest + 1;  // tokens

// A sequence of pseudo-random numbers that is the same everywhere (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  int below(int bound) { return static_cast<int>(next() % static_cast<std::uint64_t>(bound)); }

 private:
  std::uint64_t state_;
};

// Which examples: what is trained on, strings that are not (of lengths that are), strings of a length that is not.
enum class Part : std::uint8_t { training, held_strings, held_length };
Part part_of(const Question& question);
Question random_question(Random& random, Part part, Kind kind);

}  // namespace transformer
