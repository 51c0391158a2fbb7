// How many looks at x a forward pass takes: one, or, where two y do not fit that, one for each.
#pragma once

#include "problem.hpp"

namespace evenorm::internal {

// Both y in one look: of one arithmetic, of rows that lie side by side, and with scratch for what both need.
bool fits_in_one_look(const Problem& p) noexcept;

// Is there scratch for each look of the problem?
bool looks_fit_scratch(Problem& p) noexcept;

enum class Output { first, second };

// While it lives, one of a problem's two y is its only one; the second has neither sum nor statistics to write. Moves
// and copies nothing that may fail.
class OneOutput {
 public:
  OneOutput(Problem& p, Output which) noexcept;
  ~OneOutput();
  OneOutput(const OneOutput&) = delete;
  OneOutput& operator=(const OneOutput&) = delete;

 private:
  void exchange() noexcept;

  Problem& p_;
  Output which_;
  const void *gamma2_, *beta2_;
  void *y2_, *sum_, *mean_, *rstd_;
};

}  // namespace evenorm::internal
