// The steps of a norm over processes, for the Python package, which exchanges the messages itself. The library exports
// them, but they are not part of its API: this header is not installed.
//
// A message has rows * Cuts::numbers() f64 numbers, row by row. `messages` has those of all processes, one after the
// other, and `moments` one element per row. The caller provides spans of these sizes. All functions throw Error before
// they write anything. A process without columns calls all four: its messages are zeros, and it has no outputs.
#pragma once

#include <span>

#include "evenorm/sharded.hpp"

namespace evenorm::detail {

// Forward, first step: writes what this process sends. forward: its columns; y may have no data.
EVENORM_API void find_shard_moments(const Cuts& cuts, const Forward& forward, std::span<double> message,
                                    const Executor& executor);
// Forward, second step: writes the moments of the whole rows, then the outputs of `forward`. wide: the arithmetic is
// f64.
EVENORM_API void run_shard(const Cuts& cuts, const Forward& forward, bool wide, std::span<const double> messages,
                           std::span<Moments> moments, const Executor& executor);
// Backward, first step: writes what this process sends. moments: those that run_shard() wrote.
EVENORM_API void find_shard_sums(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
                                 std::span<double> message, const Executor& executor);
// Backward, second step: writes dx, dweight and dbias of this process's columns. Allocates scratch (std::bad_alloc).
EVENORM_API void run_shard_backward(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
                                    std::span<const double> messages, const Executor& executor);

}  // namespace evenorm::detail
