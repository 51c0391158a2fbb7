// The steps of a norm over processes: checks, how rows are divided among threads, the numbers of a process's parts, and
// the scalars of whole rows. The messages of other processes may contain any bytes.
#include "sharded/steps.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "plan/forward_plan.hpp"
#include "problem/fp_environment.hpp"
#include "problem/shapes.hpp"
#include "problem/validate.hpp"
#include "rows/backward.hpp"
#include "rows/panel.hpp"
#include "rows/statistics.hpp"
#include "rows/types.hpp"
#include "run/parallel.hpp"
#include "run/schedule.hpp"
#include "sharded/exported_steps.hpp"

namespace evenorm {
namespace internal {
namespace {

// Divides rows among tasks, each of which calls work(first, count).
template <class AnyProblem, class Work>
void share_rows(const Executor& executor, const AnyProblem& p, const Work& work) noexcept {
  constexpr std::size_t kTask = 32768;  // elements
  share_out(executor, p.rows, 1, count_tasks(executor, p.rows * p.cols, kTask),
            [&](std::size_t first, std::size_t count) {
              const FpEnvironment environment;
              work(first, count);
            });
}

// Writes the numbers of this process's parts of a row. write(first column, columns, put) calls put(field, number).
template <class Write>
void write_parts(const Cuts& cuts, std::size_t cols, std::size_t numbers, double* to, const Write& write) {
  std::fill_n(to, numbers, 0.0);
  for (const Cuts::Part& part : cuts.parts_of(cuts.rank())) {
    const std::size_t col = part.first * kBlock;
    write(col, std::min(part.blocks * kBlock, cols - col), [&](const Field&, double number) { *to++ = number; });
  }
}

// A node as a message has it, with all numbers replaced by the canonical NaN if one of them is not finite.
Moments moments_of(const MomentNode& m) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(m.mean) || !std::isfinite(m.m2)) return {m.count, kNan, kNan, kNan};
  return {m.count, m.mean, m.mean_lo, m.m2};
}

template <class T>
[[gnu::noinline]] void find_moments(const Kernels& kernels, const Problem& p, const Cuts& cuts, std::size_t first,
                                    std::size_t count, double* message) {
  const Panel x(kernels, p.x, dtype_of<T>, access_of(p.x, dtype_of<T>));
  alignas(kLine) T values[kBlock];
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  const std::size_t numbers = cuts.numbers(Pass::forward, p.kind, kWide);
  MomentNode nodes[kMaxNodes];
  for (std::size_t row = first; row < first + count; ++row) {
    write_parts(cuts, p.cols, numbers, message + row * numbers, [&](std::size_t col, std::size_t n, const auto& put) {
      const MomentNode m = sum_blocks<T>(kernels, p.kind, nodes, {n, n}, [&](std::size_t at, std::size_t cols) {
        return x.open({row, 1, col + at, cols}, EvenRows<T>{values, 0}).first;
      });
      visit_moments(p.kind, kWide, moments_of(m), put);
    });
  }
}

template <class A>
Moments join_row(const Cuts& cuts, Kind kind, const Messages& messages, std::size_t row) {
  constexpr bool kWide = std::is_same_v<A, double>;
  MomentNode nodes[kMaxNodes];
  MomentTree<A> tree({nodes, kind == Kind::layer});
  for_parts(cuts, Pass::forward, kind, kWide, messages, row,
            [&](std::size_t, const Cuts::Part& part, std::size_t cols, const double* from) {
              Moments moments;
              moments.count = static_cast<double>(cols);
              visit_moments(kind, kWide, moments, [&](const Field&, double& number) { number = *from++; });
              tree.push(node_of<A>(moments), part.weight);
            });
  return moments_of(tree.finish());
}

template <class T>
[[gnu::noinline]] void find_sums(const Kernels& kernels, const GradientPass& pass, const Cuts& cuts, std::size_t first,
                                 std::size_t count, double* message) {
  const GradientProblem& p = pass.problem;
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  BackwardRows<T> rows(kernels, p, pass.plan, 0, {0, p.cols});
  const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kWide);
  for (std::size_t row = first; row < first + count; ++row) {
    write_parts(cuts, p.cols, numbers, message + row * numbers, [&](std::size_t col, std::size_t n, const auto& put) {
      visit_sums(p.kind, rows.sum_part(row, col, n), put);
    });
  }
}

template <class T>
[[gnu::noinline]] void find_scalars(const Kernels& kernels, const GradientPass& pass, const Cuts& cuts,
                                    const Messages& messages, std::size_t first, std::size_t count,
                                    GradientScalars* scalars) {
  const GradientProblem& p = pass.problem;
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  BackwardRows<T> rows(kernels, p, pass.plan, 0, {0, p.cols});
  GradientNode nodes[kMaxNodes];
  GradientTree tree({nodes});
  for (std::size_t row = first; row < first + count; ++row) {
    for_parts(cuts, Pass::backward, p.kind, kWide, messages, row,
              [&](std::size_t, const Cuts::Part& part, std::size_t, const double* from) {
                GradientNode sums{};
                visit_sums(p.kind, sums, [&](const Field&, double& number) { number = *from++; });
                tree.push(sums, part.weight);
              });
    scalars[row] = rows.finish_sums(row, tree.finish());
  }
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

void check_messages(const Cuts& cuts, Pass pass, Kind kind, bool wide, const Messages& messages, std::size_t rows) {
  const FpEnvironment environment;
  for (std::size_t row = 0; row < rows; ++row) {
    for_parts(cuts, pass, kind, wide, messages, row,
              [&](std::size_t process, const Cuts::Part&, std::size_t, const double* from) {
                const auto check = [&](const Field& field, double) {
                  const double value = *from++;
                  if (value != value || (value >= field.least && value <= field.most)) return;
                  refuse_message(process, std::string(field.name) + " of row " + std::to_string(row), text_of(value),
                                 "from " + text_of(field.least) + " to " + text_of(field.most));
                };
                if (pass == Pass::forward) return visit_moments(kind, wide, Moments{}, check);
                visit_sums(kind, GradientNode{}, check);
              });
  }
}

void refuse_message(std::size_t process, const std::string& field, const std::string& has, const std::string& should) {
  throw Error("process " + std::to_string(process) + " has sent a message whose " + field + " is " + has +
              ", but it should be " + should);
}

void find_moments_on(Target target, const Cuts& cuts, const Problem& p, std::span<double> message,
                     const Executor& executor) noexcept {
  share_rows(executor, p, [&](std::size_t first, std::size_t count) {
    with_type(row_type(p),
              [&]<class T>() { find_moments<T>(kernels_of(target), p, cuts, first, count, message.data()); });
  });
}

void join_shards(const Cuts& cuts, Kind kind, bool wide, const Messages& messages,
                 std::span<Moments> moments) noexcept {
  const FpEnvironment environment;
  for (std::size_t row = 0; row < moments.size(); ++row) {
    moments[row] = wide ? join_row<double>(cuts, kind, messages, row) : join_row<float>(cuts, kind, messages, row);
  }
}

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

void find_gradient_sums_on(Target target, const Cuts& cuts, const GradientPass& pass, std::span<double> message,
                           const Executor& executor) noexcept {
  share_rows(executor, pass.problem, [&](std::size_t first, std::size_t count) {
    with_type(gradient_type(pass.problem),
              [&]<class T>() { find_sums<T>(kernels_of(target), pass, cuts, first, count, message.data()); });
  });
}

void run_on(Target target, const Cuts& cuts, GradientPass& pass, const Messages& messages, const Executor& executor) {
  GradientProblem& p = pass.problem;
  const auto scalars = std::make_unique_for_overwrite<GradientScalars[]>(p.rows);
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(pass.plan.scratch_bytes);
  const Kernels& kernels = kernels_of(target);
  share_rows(executor, p, [&](std::size_t first, std::size_t count) {
    with_type(gradient_type(p),
              [&]<class T>() { find_scalars<T>(kernels, pass, cuts, messages, first, count, scalars.get()); });
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
