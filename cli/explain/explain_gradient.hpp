// The steps of the backward pass on given rows: the numbers exactly, from the reference, evenorm's own beside them, and
// the formulas with the numbers put in. Knows nothing of how they are printed.
#pragma once

#include "cli/explain/explain.hpp"
#include "cli/explain/explain_input.hpp"

namespace evenorm::cli {

// Of row i of those that are shown. row: its forward pass.
RowGradient explain_gradient(const ExplainInput& input, std::size_t i, const ExplainedRow& row);

}  // namespace evenorm::cli
