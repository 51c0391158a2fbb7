// Prints tensors as nested rows in aligned columns.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "learn/explain/decimal.hpp"

namespace evenorm::cli {

// Lines of at most `width` characters, each with `indent` spaces before it and a newline after it. Of long axes only
// the first and last items are shown, with "..." for the others. A tensor without axes is one number.
std::string tensor_text(std::span<const double> values, std::span<const std::int64_t> shape, const Notation& notation,
                        std::size_t indent, std::size_t width);

}  // namespace evenorm::cli
