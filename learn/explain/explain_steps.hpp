// The steps of layer norm and RMS norm on given rows, and of their backward pass: the numbers exactly, from the
// reference, evenorm's own beside them, and the formulas with the numbers put in. Knows nothing of how they are
// printed.
#pragma once

#include <string>

#include "learn/explain/by_hand.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/explain.hpp"
#include "learn/explain/explain_input.hpp"

namespace evenorm::cli {

// gamma as it multiplies column i, for a formula: where it is zero-centred, 1 + what is given.
std::string factor_text(const ExplainInput& input, const HandInput& hand, const Notation& gamma, std::size_t i);

Explanation explain(const ExplainInput& input);

// The backward pass of row i of those that are shown. row: its forward pass.
RowGradient explain_gradient(const ExplainInput& input, std::size_t i, const ExplainedRow& row);

}  // namespace evenorm::cli
