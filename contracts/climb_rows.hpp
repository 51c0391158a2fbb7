// What the climber changes: short rows with their parameters, drawn from families of which each is bad for some
// arithmetic, and small changes of them.
// Knows nothing of errors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "contracts/harness.hpp"

namespace evenorm::contracts {

enum class Result : unsigned char { y, rstd, mean, dx, dgamma, dbeta };
inline bool is_gradient(Result result) { return result >= Result::dx; }

// Rows of few columns: one, or several where the result sums over rows.
struct ShortRows {
  std::size_t cols = 1;
  double eps = 0;
  Array x, weight, bias, dy;  // empty where the operation has none

  std::string text() const;  // all numbers in hexadecimal, as C++ and Python read them
};

// Each number in hexadecimal: "0x1.8p+1".
std::string hexadecimal(double value);
std::vector<std::string> hexadecimals(const Array& values);

// Finite rows of 1 to 17 columns, mostly 2 to 9.
ShortRows draw_rows(const Operation& op, Result result, Random& random);

// One to three small changes; all stays finite.
void change(ShortRows& rows, Random& random);

}  // namespace evenorm::contracts
