// Ways of running a pass that its scheduler takes only for much larger work, or that show what it does with scratch.
#pragma once

#include <cstddef>

#include "contracts/harness.hpp"

namespace evenorm::contracts {

// Splits rows, long rows, columns and row blocks anywhere, as `amount` says, and takes the pieces in reverse order.
Runner in_pieces(internal::Target target, std::size_t amount);

// A backward pass with exactly the scratch that it asks for, `amount` bytes after other memory. Throws
// std::logic_error if anything beside it is written. A sanitizer guards its end.
Runner in_scratch(internal::Target target, std::size_t amount);

// By a copy of a plan that was made for other addresses, twice unless it accumulates; on the active target. Throws
// std::logic_error if the plan needs other scratch than scratch_bytes() says.
Runner through_plan();

}  // namespace evenorm::contracts
