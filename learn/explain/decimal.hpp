// Decimal numbers as people write them: digits, brackets, sums, rounding by hand. Knows nothing of norms.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace evenorm::cli {

// To `decimals` places as taught at school, halves away from zero; 0.145 is a half although binary puts it beside one.
double round_by_hand(double value, int decimals);

// What a decimal text says, the nearest f64: infinity or 0 where it is beyond the range.
double value_of(const std::string& text);

// Shortest text that reads back as this double; without an exponent down to 0.000001.
std::string shortest_text(double value);

// How the numbers of one tensor are written: all with the same places behind the point, that is `decimals` and as many
// more as the largest has zeros there, or all with an exponent where the largest is below 0.0001 or 10^8 and more.
class Notation {
 public:
  Notation(std::span<const double> values, int decimals);

  std::string aligned(double value) const;  // always with all the places, for columns
  std::string brief(double value) const;    // without them where fewer say the same: 14, 0.5
  std::string operand(double value) const;  // brief, in brackets where negative: (-0.5)
  std::string added(double value) const;    // brief, behind what is before it: " + 0.5", " - 0.5"

 private:
  int decimals_;
  bool scientific_ = false;
};

// A number that is shown by itself.
std::string brief(double value, int decimals);

// piece(0) piece(1) ... piece(n - 1), with " + ..." for those in the middle that `room` characters do not hold.
std::string sum_text(std::size_t n, const std::function<std::string(std::size_t)>& piece, std::size_t room);

}  // namespace evenorm::cli
