// Checks the results of a pass against the reference, on some rows and columns, before `evenorm bench` times the pass.
#pragma once

#include <cstddef>
#include <string>

#include "cli/bench_pass.hpp"

namespace evenorm::cli {

struct BenchVerdict {
  std::size_t rows = 0;  // checked rows; rows of x that are not finite are skipped, or all for such a weight
  double worst = 0;      // the largest error / the allowed error
  std::string of{};      // where that error is: "y, row 0"

  bool right() const { return worst <= 1; }  // false for a NaN
};

// Checks the first, the middle and the last row: fewer if rows are long, none if they have more than 2^22 columns. A
// backward pass also has its sums checked in the first and the last column, if there are at most 2^22 rows. The limits
// are those of contracts/.
BenchVerdict check_pass(const BenchProblem& problem, const BenchTensors& tensors);

}  // namespace evenorm::cli
