// The Transformer's tasks: reversing and sorting strings of digits, and adding numbers. The program generates examples
// and holds some out: one string in ten, by its hash, and every string of one length.
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

// reverse, sort: `digits` is the string. add: it is two numbers of equal length, one after the other.
struct Question {
  Kind kind = Kind::reverse;
  std::string digits;

  // The length of the string, or of each number.
  [[nodiscard]] int length() const { return static_cast<int>(kind == Kind::add ? digits.size() / 2 : digits.size()); }
};

inline constexpr int kLongest = 7;     // the greatest length
inline constexpr int kHeldLength = 5;  // never trained on

// Parses "reverse 3142", "sort 3142" or "add 472+59"; the shorter number gets leading zeros. Throws BadQuestion.
Question parse_question(std::string_view text);
std::string written(const Question& question);  // as parse_question reads it

// The right answer. A sum has one digit more than its numbers if the first column carries.
std::string answer_of(const Question& question);

// The network's input: the kind, the digits, kEnd. A sum is given column by column from the last one, as it is added by
// hand: 472+59 is 2 9 7 5 4 0.
std::vector<std::int64_t> question_tokens(const Question& question);
// The network's output, with kEnd last. A sum has two tokens for each column, its digit and its carry, so that digits
// stay at the positions of their columns: 1 1 3 1 5 0.
std::vector<std::int64_t> answer_tokens(const Question& question);
// Reads the answer from such tokens up to kEnd. "?" stands for a token that is not a digit.
std::string answer_from(Kind kind, const std::vector<std::int64_t>& tokens);
inline constexpr int kLongestAnswer = 2 * kLongest + 1;  // tokens

// Pseudo-random numbers that are the same on every machine (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  int below(int bound) { return static_cast<int>(next() % static_cast<std::uint64_t>(bound)); }

 private:
  std::uint64_t state_;
};

// The set of a question: the training set, held-out strings of trained lengths, or strings of the held-out length.
enum class Part : std::uint8_t { training, held_strings, held_length };
Part part_of(const Question& question);
Question random_question(Random& random, Part part, Kind kind);

}  // namespace transformer
