// The steps of layer norm and RMS norm on given rows: the numbers exactly, from the reference, evenorm's own beside
// them, and the formulas with the numbers put in. Knows nothing of how they are printed.
#pragma once

#include <string>

#include "cli/common/decimal.hpp"
#include "cli/explain/by_hand.hpp"
#include "cli/explain/explain.hpp"
#include "cli/explain/explain_input.hpp"

namespace evenorm::cli {

// gamma as it multiplies column i, for a formula: where it is zero-centred, 1 + what is given.
std::string factor_text(const ExplainInput& input, const HandInput& hand, const Notation& gamma, std::size_t i);

Explanation explain(const ExplainInput& input);

}  // namespace evenorm::cli
