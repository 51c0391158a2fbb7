// The steps of layer norm and RMS norm on given rows: the numbers exactly, from the reference, evenorm's own beside
// them, and the formulas with the numbers put in. Knows nothing of how they are printed.
#pragma once

#include "explain.hpp"
#include "explain_input.hpp"

namespace evenorm::cli {

Explanation explain(const ExplainInput& input);

}  // namespace evenorm::cli
