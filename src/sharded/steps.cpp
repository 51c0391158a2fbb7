// The steps of a norm over processes: checks, and how rows are divided among threads.
#include "sharded/steps.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "plan/spec.hpp"
#include "plan/tuning.hpp"
#include "problem/validate.hpp"
#include "run/parallel.hpp"
#include "run/schedule.hpp"
#include "sharded/exported_steps.hpp"
#include "sharded/rows.hpp"

namespace evenorm {
namespace internal {
namespace {

constexpr std::size_t kTask = 32768;  // elements; a smaller task costs more to hand over than it saves

// Divides rows among tasks, each of which calls work(first, count).
template <class Work>
void share_rows(const Executor& executor, std::size_t rows, std::size_t elements, const Work& work) {
  const std::size_t most = std::min({elements / kTask, usable_threads(executor) * kTasksPerThread, rows});
  const std::size_t shares = std::max(most, std::size_t{1});
  parallel_for(executor, shares, [&](std::size_t i) {
    const std::size_t first = share_start(rows, shares, i);
    work(first, share_start(rows, shares, i + 1) - first);
  });
}

void check_cols(const Cuts& cuts, std::size_t cols) {
  if (cols == cuts.own_cols()) return;
  throw Error("x has rows of " + std::to_string(cols) + " columns, but cols has " + std::to_string(cuts.own_cols()) +
              " for process " + std::to_string(cuts.rank()));
}

Messages messages_of(const Cuts& cuts, std::span<const double> messages) {
  return {messages.data(), messages.size() / cuts.size()};
}

}  // namespace

GradientPass gradient_pass(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments) {
  if (backward.mean.data != nullptr || backward.rstd.data != nullptr) {
    throw Error(std::string(backward.mean.data != nullptr ? "mean" : "rstd") +
                " is given, but the moments already contain it");
  }
  GradientProblem p = validate_plain(backward);
  check_cols(cuts, p.cols);
  p.whole_cols = cuts.cols();
  p.moments = moments.data();
  return GradientPass(std::move(p));
}

void find_moments_on(Target target, const Cuts& cuts, const Problem& p, std::span<double> message,
                     const Executor& executor) {
  share_rows(executor, p.rows, p.rows * p.cols, [&](std::size_t first, std::size_t count) {
    moments_of_shards(kernels_of(target), p, cuts, first, count, message.data());
  });
}

void find_gradient_sums_on(Target target, const Cuts& cuts, const GradientPass& pass, std::span<double> message,
                           const Executor& executor) {
  const GradientProblem& p = pass.problem;
  share_rows(executor, p.rows, p.rows * p.cols, [&](std::size_t first, std::size_t count) {
    sums_of_shards(kernels_of(target), p, pass.plan, cuts, first, count, message.data());
  });
}

void run_on(Target target, const Cuts& cuts, GradientPass& pass, const Messages& messages, const Executor& executor) {
  GradientProblem& p = pass.problem;
  const auto scalars = std::make_unique_for_overwrite<GradientScalars[]>(p.rows);
  const OwnScratch scratch(pass.plan.scratch_bytes);
  const Kernels& kernels = kernels_of(target);
  share_rows(executor, p.rows, p.rows * p.cols, [&](std::size_t first, std::size_t count) {
    finish_shards(kernels, p, pass.plan, cuts, messages, first, count, scalars.get());
  });
  p.scalars = scalars.get();
  run(pass, kernels, scratch.get(), executor);
}

}  // namespace internal

using internal::active_target;

void detail::find_shard_moments(const Cuts& cuts, const Forward& forward, std::span<double> message,
                                const Executor& executor) {
  if (cuts.own_cols() == 0) return std::fill(message.begin(), message.end(), 0.0);
  const internal::Problem p = internal::validate_plain(forward);
  internal::check_cols(cuts, p.cols);
  internal::find_moments_on(active_target(), cuts, p, message, executor);
}

void detail::run_shard(const Cuts& cuts, const Forward& forward, bool wide, std::span<const double> messages,
                       std::span<Moments> moments, const Executor& executor) {
  const internal::Messages all = internal::messages_of(cuts, messages);
  internal::check_messages(cuts, Pass::forward, forward.kind, wide, all, moments.size());
  if (cuts.own_cols() == 0) {
    return internal::join_shards(cuts, forward.kind, wide, all, moments);
  }
  internal::Problem p = internal::validate_plain(forward);
  internal::validate_buffers(p);
  internal::join_shards(cuts, forward.kind, wide, all, moments);
  p.moments = moments.data();
  internal::run(internal::ForwardPass(std::move(p)), internal::kernels_of(active_target()), executor);
}

void detail::find_shard_sums(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
                             std::span<double> message, const Executor& executor) {
  if (cuts.own_cols() == 0) return std::fill(message.begin(), message.end(), 0.0);
  const internal::GradientPass pass = internal::gradient_pass(cuts, backward, moments);
  internal::validate_buffers(pass.problem);
  internal::find_gradient_sums_on(active_target(), cuts, pass, message, executor);
}

void detail::run_shard_backward(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
                                std::span<const double> messages, const Executor& executor) {
  if (cuts.own_cols() == 0) return;
  internal::GradientPass pass = internal::gradient_pass(cuts, backward, moments);
  const internal::GradientProblem& p = pass.problem;
  internal::validate_buffers(p);
  const internal::Messages all = internal::messages_of(cuts, messages);
  const bool wide = internal::arithmetic_type(p) == DType::f64;
  internal::check_messages(cuts, Pass::backward, backward.kind, wide, all, p.rows);
  internal::run_on(active_target(), cuts, pass, all, executor);
}

}  // namespace evenorm
