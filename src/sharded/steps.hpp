// The steps of a norm over processes, on one target. Each process computes a message from its columns, all processes
// exchange their messages, and each then finishes its columns. ShardedNorm runs these steps around its all-gather.
#pragma once

#include <span>
#include <string>

#include "evenorm/sharded.hpp"
#include "plan/gradient_plan.hpp"
#include "problem/problem.hpp"
#include "run/dispatch.hpp"

namespace evenorm::internal {

// The messages of all processes. `stride` is the count of numbers from one process to the next.
struct Messages {
  const double* first;
  std::size_t stride;
};

// Throws Error if a number of a forward pass's messages is invalid. All processes come to the same result. Any number
// is valid in a backward pass.
void check_messages(const Cuts& cuts, Kind kind, bool wide, const Messages& messages, std::size_t rows);

// Throws Error: "process 2 has sent a message whose `field` is `has`, but it should be `should`".
[[noreturn]] void refuse_message(std::size_t process, const std::string& field, const std::string& has,
                                 const std::string& should);

// Forward: writes the moments of this process's columns, p.x, to `message`.
void find_moments_on(Target target, const Cuts& cuts, const Problem& p, std::span<double> message,
                     const Executor& executor = {}) noexcept;
// Then computes the moments of all whole rows from all messages, which have been checked. p runs with these moments.
void join_shards(const Cuts& cuts, Kind kind, bool wide, const Messages& messages, std::span<Moments> moments) noexcept;

// Validates a backward pass over this process's columns, except how its buffers overlap. moments: one element per row.
GradientPass gradient_pass(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments);
// Backward: writes the sums of this process's columns to `message`.
void find_gradient_sums_on(Target target, const Cuts& cuts, const GradientPass& pass, std::span<double> message,
                           const Executor& executor = {}) noexcept;
// Then writes dx, dweight and dbias of this process's columns; allocates scratch. `messages` have been checked.
// Consumes `pass`; do not use it afterwards.
void run_on(Target target, const Cuts& cuts, GradientPass& pass, const Messages& messages,
            const Executor& executor = {});

}  // namespace evenorm::internal
