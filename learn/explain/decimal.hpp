// Decimal numbers as people write them: digits, brackets, sums, rounding by hand.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace evenorm::cli {

// Rounds to `decimals` places as taught at school, halves away from zero. 0.145 counts as a half despite binary.
double round_by_hand(double value, int decimals);

// The f64 nearest to a decimal text; infinity or 0 if it is out of range.
double value_of(const std::string& text);

// The shortest text that reads back as this double. It has no exponent down to 0.000001.
std::string shortest_text(double value);

// How the numbers of one tensor are written: all with the same number of places, or all with an exponent. There are
// `decimals` places and as many more as the largest number has zeros after the point. An exponent is used if the
// largest number is below 0.0001 or at least 10^8.
class Notation {
 public:
  Notation(std::span<const double> values, int decimals);

  std::string aligned(double value) const;  // with all places, for columns
  std::string brief(double value) const;    // without trailing zeros: 14, 0.5
  std::string operand(double value) const;  // brief, in brackets if negative: (-0.5)
  std::string added(double value) const;    // brief, with its sign as an operator: " + 0.5", " - 0.5"

 private:
  int decimals_;
  bool scientific_ = false;
};

// Notation::brief for a single number.
std::string brief(double value, int decimals);

// Joins piece(0) to piece(n - 1). Replaces middle ones by " + ..." if they need more than `room` characters.
std::string sum_text(std::size_t n, const std::function<std::string(std::size_t)>& piece, std::size_t room);

}  // namespace evenorm::cli
