// Which pictures there are of what `evenorm explain` was given, and why one is missing. Knows nothing of how they are
// made.
#pragma once

#include "cli/explain/explain_input.hpp"

namespace evenorm::cli {

Pictures pictures(const ExplainInput& input);

}  // namespace evenorm::cli
