// x in colours. Knows nothing of axes and norms.
#pragma once

#include <span>

#include "cli/explain/pictures.hpp"

namespace evenorm::cli {

ColourMap colour_map(std::span<const double> x);

}  // namespace evenorm::cli
