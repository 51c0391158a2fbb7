// Computes the steps of layer norm and RMS norm on given rows, forward and backward: exact numbers, evenorm's own, and
// formulas with the numbers inserted.
#pragma once

#include <string>

#include "learn/explain/by_hand.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/explain.hpp"
#include "learn/explain/explain_input.hpp"

namespace evenorm::cli {

// The factor of column i in a formula: gamma, or "(1 + gamma)" with its number if gamma is zero-centred.
std::string factor_text(const ExplainInput& input, const HandInput& hand, const Notation& gamma, std::size_t i);

Explanation explain(ExplainInput input);

// The backward pass of the i-th row that is shown. `row` is its forward pass.
RowGradient explain_gradient(const ExplainInput& input, std::size_t i, const ExplainedRow& row);

}  // namespace evenorm::cli
