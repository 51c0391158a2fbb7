// Times channels-first tensors against the norm of the same elements over a trailing axis.
#pragma once

#include <cstddef>

namespace evenorm::bench {

// Prints a table: medians, and the median of the paired ratios (channels-first over trailing; 1 would be for free).
void run_layouts(std::size_t threads, double seconds);

}  // namespace evenorm::bench
