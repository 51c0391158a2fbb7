// Times dx, dgamma and dbeta in float32, statistics given, against oneDNN.
#pragma once

#include <cstddef>

namespace evenorm::bench {

void print_backward_header();

// One line: medians, oneDNN's time over evenorm's (the median of the paired ratios), and the same with the statistics
// found anew. Throws std::runtime_error where a gradient is wrong.
void run_backward_point(std::size_t rows, std::size_t cols, std::size_t threads, double seconds);

}  // namespace evenorm::bench
