// The rows that the climber changes. They are short rows with parameters, drawn from families that are each hard for
// some arithmetic, and changed in small steps. This file does not depend on errors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "contracts/harness.hpp"

namespace evenorm::contracts {

enum class Result : unsigned char { y, rstd, mean, dx, dgamma, dbeta };
inline bool is_gradient(Result result) { return result >= Result::dx; }

// Rows of few columns: one row, or several if the result sums over rows.
struct ShortRows {
  std::size_t cols = 1;
  double eps = 0;
  Array x, weight, bias, dy;  // empty if the operation does not use it

  std::string text() const;  // all numbers in hexadecimal, readable by C++ and Python
};

// The number in hexadecimal: "0x1.8p+1".
std::string hexadecimal(double value);
std::vector<std::string> hexadecimals(const Array& values);

// Finite rows of 1 to 17 columns, mostly 2 to 9.
ShortRows draw_rows(const Operation& op, Result result, Random& random);

// Makes one to three small changes. All values stay finite.
void change(ShortRows& rows, Random& random);

}  // namespace evenorm::contracts
