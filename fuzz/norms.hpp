// Choices that the fuzzers of both passes share, and the check of what they chose.
#pragma once

#include "contracts/verify.hpp"
#include "fuzz/support.hpp"

namespace evenorm::fuzz {

contracts::Shape choose_shape(Choices& choices);
DType choose_type(Choices& choices, DType usual);
contracts::Operation choose_operation(Choices& choices, std::size_t cols, bool may_have_bias);  // a forward pass

// An adversarial row, with some elements replaced.
contracts::Array choose_row(Choices& choices, DType dtype, std::size_t cols);
// Empty without a type.
contracts::Array choose_parameter(Choices& choices, contracts::Type dtype, std::size_t cols, bool weight);

// Powers of two that multiply the tensors, as shares of their types' largest exponents, from -1 to 1. Mostly 0.
struct Magnitudes {
  double x = 0, dy = 0, gamma = 0, beta = 0;
  bool by_turns = false;  // scales every other row by the inverse
};
Magnitudes choose_magnitudes(Choices& choices);
// Scales rows of `cols` elements. Finite values stay finite.
void scale_rows(contracts::Array& rows, std::size_t cols, double share, bool by_turns);
inline void scale(contracts::Array& parameter, double share) { scale_rows(parameter, parameter.size(), share, false); }

// A way of running, and the case's tensors in memory.
contracts::Way choose_way(Choices& choices, std::size_t amounts);

// Expects the bounds for dense rows, their bits on every target, and the same bits of `call` in the case's way.
void expect_promises(const contracts::Case& c, const contracts::Inputs& inputs, contracts::Call& call);

}  // namespace evenorm::fuzz
