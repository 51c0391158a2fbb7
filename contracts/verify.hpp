// What the library promises of a case: bounds, equal bits, and what it writes.
#pragma once

#include <string>

#include "contracts/case.hpp"

namespace evenorm::contracts {

// The separate steps of a fused form, in plain scalar code: s = fma(scale, residual, x) rounded to x's type, and rows
// of f32 or f64 quantised to i8 with one scale each (absent if it is given).
Array sum_of(const Operation& op, const Array& x, const Array& residual);
struct Quantised {
  Array y, scale;
};
Quantised quantised(const Array& y, std::size_t cols, double given_scale);

// What every way is compared with: dense tensors on the best target and the calling thread, step by step.
Outcome plain_outcome(const Case& c, const Inputs& inputs);
Outcome plain_outcome(const Operation& op, const Inputs& inputs);

// A call in a way on one target; the way's layout is the call's affair.
Outcome run_in_way(const Call& call, const Way& way, internal::Target target);

// The case's way on one target, and what it should give of `plain`.
Outcome expected_of(const Case& c, const Outcome& plain);
bool runs_on(const Case& c, internal::Target target);
Outcome outcome_by(const Case& c, internal::Target target, const Inputs& inputs);

// The names of what outcome_by() has other bits of than `plain`, or what else it breaks; empty if nothing.
std::string difference_by(const Case& c, internal::Target target, const Inputs& inputs, const Outcome& plain);

// The bounds of docs/numerics.md, and which results are not finite, of plain_outcome(): what is broken, or empty. The
// sums over rows of an accumulating pass are not measured, nor are y of i8, dx with dsum, and broadcast parameters.
std::string beyond_bounds(const Case& c, const Inputs& inputs, const Outcome& plain);

// On every target: what has other bits than `plain`, or else breaks a promise. One line each, empty if there is none.
std::string differences(const Case& c, const Inputs& inputs, const Outcome& plain);
std::string differences(const Case& c);

// The same, and what is beyond the bounds.
std::string verify(const Case& c, const Inputs& inputs);
std::string verify(const Case& c);

}  // namespace evenorm::contracts
