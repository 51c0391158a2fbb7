// A norm over processes in steps: what is checked, and how rows are shared out over threads.
#include "sharded.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "parallel.hpp"
#include "rows/rows.hpp"
#include "schedule.hpp"
#include "shapes.hpp"
#include "spec.hpp"
#include "tuning.hpp"
#include "validate.hpp"

namespace evenorm {
namespace internal {
namespace {

constexpr std::size_t kTask = 32768;  // elements: below this, handing a task over costs more than it saves

// work(first, count) for shares of rows.
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

GradientProblem gradient_problem(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments) {
  if (backward.mean.data != nullptr || backward.rstd.data != nullptr) {
    throw Error(std::string(backward.mean.data != nullptr ? "mean" : "rstd") +
                " is given, but moments of whole rows have it");
  }
  GradientProblem p = validate(backward);
  check_cols(cuts, p.cols);
  check_size("moments", moments.size(), " elements", p.rows, 1);
  p.whole_cols = cuts.cols();
  p.moments = moments.data();
  return p;
}

bool is_wide(const GradientProblem& p) { return arithmetic_type(p) == DType::f64; }

}  // namespace

void check_size(const char* argument, std::size_t has, const char* unit, std::size_t rows, std::size_t each) {
  std::size_t needed = 0;
  const bool too_many = __builtin_mul_overflow(rows, each, &needed);
  if (!too_many && has == needed) return;
  throw Error(std::string(argument) + " has " + std::to_string(has) + unit + ", but " + std::to_string(rows) +
              " rows need " + (too_many ? "more than memory can hold" : std::to_string(needed)));
}

void find_moments_on(Target target, const Cuts& cuts, const RowMoments& rows, double eps, std::span<double> message,
                     const Executor& executor) {
  check_kind(rows.kind);
  check_eps(eps);
  if (cuts.own_cols() == 0) return std::fill(message.begin(), message.end(), 0.0);
  Problem p = validate(rows);
  p.eps = eps;
  check_cols(cuts, p.cols);
  check_size("message", message.size(), " numbers", p.rows,
             cuts.numbers(Pass::forward, p.kind, arithmetic_type(p) == DType::f64));
  validate_message(p, message);
  share_rows(executor, p.rows, p.rows * p.cols, [&](std::size_t first, std::size_t count) {
    moments_of_shards(kernels_of(target), p, cuts, first, count, message.data());
  });
}

void find_gradient_sums_on(Target target, const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
                           std::span<double> message, const Executor& executor) {
  check_kind(backward.kind);
  if (cuts.own_cols() == 0) return std::fill(message.begin(), message.end(), 0.0);
  const GradientProblem p = gradient_problem(cuts, backward, moments);
  check_size("message", message.size(), " numbers", p.rows, cuts.numbers(Pass::backward, p.kind, is_wide(p)));
  validate_buffers(p);
  validate_message(p, message);
  share_rows(executor, p.rows, p.rows * p.cols, [&](std::size_t first, std::size_t count) {
    sums_of_shards(kernels_of(target), p, cuts, first, count, message.data());
  });
}

void run_on(Target target, const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
            const Messages& messages, const Executor& executor) {
  GradientProblem p = gradient_problem(cuts, backward, moments);
  validate_buffers(p);
  const auto scalars = std::make_unique_for_overwrite<GradientScalars[]>(p.rows);
  const OwnScratch scratch(scratch_bytes(p));
  const Kernels& kernels = kernels_of(target);
  share_rows(executor, p.rows, p.rows * p.cols, [&](std::size_t first, std::size_t count) {
    finish_shards(kernels, p, cuts, messages, first, count, scalars.get());
  });
  p.scalars = scalars.get();
  run_problem(p, kernels, scratch.get(), executor);
}

}  // namespace internal

using internal::active_target;

void find_moments(const Cuts& cuts, const RowMoments& rows, double eps, std::span<double> message,
                  const Executor& executor) {
  internal::find_moments_on(active_target(), cuts, rows, eps, message, executor);
}

void join_moments(const Cuts& cuts, Kind kind, bool wide, std::span<const double> messages,
                  std::span<Moments> moments) {
  internal::check_size("messages", messages.size(), " numbers", moments.size(),
                       cuts.size() * cuts.numbers(Pass::forward, kind, wide));
  const internal::Messages all{messages.data(), messages.size() / cuts.size()};
  internal::check_messages(cuts, Pass::forward, kind, wide, all, moments.size());
  internal::join_shards(cuts, kind, wide, all, 0, moments.size(), moments.data());
}

void find_gradient_sums(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments,
                        std::span<double> message, const Executor& executor) {
  internal::find_gradient_sums_on(active_target(), cuts, backward, moments, message, executor);
}

void run(const Cuts& cuts, const Backward& backward, std::span<const Moments> moments, std::span<const double> messages,
         const Executor& executor) {
  internal::check_kind(backward.kind);
  if (cuts.own_cols() == 0) return;
  const internal::GradientProblem p = internal::gradient_problem(cuts, backward, moments);
  internal::check_size("messages", messages.size(), " numbers", p.rows,
                       cuts.size() * cuts.numbers(Pass::backward, p.kind, internal::is_wide(p)));
  const internal::Messages all{messages.data(), messages.size() / cuts.size()};
  internal::check_messages(cuts, Pass::backward, p.kind, internal::is_wide(p), all, p.rows);
  internal::run_on(active_target(), cuts, backward, moments, all, executor);
}

}  // namespace evenorm
