// Times the fused forms of layer norm in float32 against their steps one by one.
#pragma once

#include <cstddef>

namespace evenorm::bench {

void print_fused_header();

// One line: the plain norm's median, and by how much of it each form and its steps take longer (medians of the paired
// ratios). Throws std::runtime_error where a form has not the bits of its steps.
void run_fused_point(std::size_t rows, std::size_t cols, std::size_t threads, double seconds);

}  // namespace evenorm::bench
