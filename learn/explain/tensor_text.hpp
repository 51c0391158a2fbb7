// Tensors as nested rows in aligned columns. Knows nothing of what their numbers mean.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "learn/explain/decimal.hpp"

namespace evenorm::cli {

// Lines of at most `width` characters, each behind `indent` spaces and ended. Long axes show their first and last
// items, with "..." for the others. No axes: the one number.
std::string tensor_text(std::span<const double> values, std::span<const std::int64_t> shape, const Notation& notation,
                        std::size_t indent, std::size_t width);

}  // namespace evenorm::cli
