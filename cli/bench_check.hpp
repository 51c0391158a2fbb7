// Whether what a pass wrote is right, against the reference: of rows and columns that are looked at, before it is
// timed. A result that is wrong is not fast or slow.
#pragma once

#include <cstddef>
#include <string>

#include "cli/bench_pass.hpp"

namespace evenorm::cli {

struct BenchVerdict {
  std::size_t rows = 0;  // that were looked at; rows of x that are not finite are not
  double worst = 0;      // the largest error, as a share of what is allowed
  std::string of{};      // of what it is: "y, row 0"

  bool right() const { return worst <= 1; }  // false for a NaN
};

// The first, a middle and the last row; fewer of long ones, none of more than 2^22 columns. Of a backward pass dx of
// these, and of the first and the last column the sums over all rows, 2^22 at most. Limits: contracts/.
BenchVerdict check_pass(const BenchProblem& problem, const BenchTensors& tensors);

}  // namespace evenorm::cli
