// Where precision goes: one row pushed away from 0, and made small. Exact numbers are the reference's, evenorm's are
// the library's. Knows nothing of words and pages.
#pragma once

#include <optional>
#include <vector>

#include "cli/explain/pictures.hpp"
#include "reference.hpp"

namespace evenorm::cli {

// None where the row is not finite, or is one number.
std::optional<Precision> precision(const std::vector<reference::Real>& x, double eps);

}  // namespace evenorm::cli
