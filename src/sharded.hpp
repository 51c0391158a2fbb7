// Rows whose columns are split over processes, in steps, on one target: what evenorm/sharded.hpp declares.
#pragma once

#include <span>

#include "dispatch.hpp"
#include "messages.hpp"

namespace evenorm::internal {

// eps: of the pass that follows.
void find_moments_on(Target target, const Cuts& cuts, const RowMoments& rows, double eps, std::span<double> message,
                     const Executor& executor = {});
void find_gradient_sums_on(Target target, const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
                           std::span<double> message, const Executor& executor = {});
void run_on(Target target, const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
            const Messages& messages, const Executor& executor = {});

void check_size(const char* argument, std::size_t has, const char* unit, std::size_t rows, std::size_t each);

}  // namespace evenorm::internal
