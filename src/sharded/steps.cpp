// The steps of a norm over processes: checks, how rows are divided among threads, the numbers of a process's parts, and
// the scalars of whole rows. The messages of other processes may contain any bytes.
#include "sharded/steps.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "backward/backward_sums.hpp"
#include "plan/forward_plan.hpp"
#include "problem/fp_environment.hpp"
#include "problem/shapes.hpp"
#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "rows/statistics.hpp"
#include "rows/types.hpp"
#include "run/parallel.hpp"
#include "run/schedule.hpp"
#include "sharded/exported_steps.hpp"

namespace evenorm {
namespace internal {
namespace {

// Divides rows among tasks, each of which calls work.operator()<T>(first, count), where T is the storage type of
// `type`.
template <class Work>
void share_rows(const Executor& executor, const AnyProblem& p, DType type, const Work& work) noexcept {
  constexpr std::size_t kTask = 32768;  // elements
  share_out(executor, p.rows, 1, count_tasks(executor, p.rows * p.cols, kTask),
            [&](std::size_t first, std::size_t count) {
              const FpEnvironment environment;
              with_type(type, [&]<class T>() { work.template operator()<T>(first, count); });
            });
}

template <class T>
constexpr bool kIsWide = std::is_same_v<Arithmetic<T>, double>;

// The messages have f64 numbers for each part of a row, row by row: layer norm's mean (also its low part in f64
// arithmetic) and m2; RMS norm's m2. These functions call visit(number) for the numbers of a part, in their order.
template <class M, class Visit>
void visit_moments(Kind kind, bool wide, M&& m, const Visit& visit) {
  if (kind == Kind::layer) visit(m.mean);
  if (kind == Kind::layer && wide) visit(m.mean_low);
  visit(m.m2);
}
// Of a backward pass: the sums of g and of g (centre - x), the latter alone in RMS norm.
template <class S, class Visit>
void visit_sums(Kind kind, S&& s, const Visit& visit) {
  if (kind == Kind::layer) visit(s.g);
  visit(s.gd);
}

// A part of a row in another process's message.
struct SentPart {
  std::size_t process, cols, weight;
};

// Calls work(part, from) for all parts of a row, from left to right. work() moves `from` beyond the numbers of the
// part. numbers: the count of a row's numbers from each process.
template <class Work>
void for_parts(const Cuts& cuts, std::size_t numbers, const Messages& messages, std::size_t row, const Work& work) {
  for (std::size_t process = 0; process < cuts.size(); ++process) {
    const double* from = messages.first + process * messages.stride + row * numbers;
    for (const auto& [first, blocks, weight] : cuts.parts_of(process)) {
      work(SentPart{process, std::min(blocks * kBlock, cuts.cols_of(process) - first * kBlock), weight}, from);
    }
  }
}

// Writes the numbers of this process's parts of a row. write(first column, columns, put) calls put(number).
template <class Write>
void write_parts(const Cuts& cuts, std::size_t cols, std::size_t numbers, double* to, const Write& write) {
  std::fill_n(to, numbers, 0.0);
  for (const Cuts::Part& part : cuts.parts_of(cuts.rank())) {
    const std::size_t col = part.first * kBlock;
    write(col, std::min(part.blocks * kBlock, cols - col), [&](double number) { *to++ = number; });
  }
}

// A node as a message has it, with all numbers replaced by the canonical NaN if one of them is not finite.
Moments moments_of(const MomentNode& m) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(m.mean) || !std::isfinite(m.m2)) return {m.count, kNan, kNan, kNan};
  return {m.count, m.mean, m.mean_lo, m.m2};
}

// Reads the moments of a part.
Moments read_moments(Kind kind, bool wide, const double*& from) {
  Moments moments;
  visit_moments(kind, wide, moments, [&](double& number) { number = *from++; });
  return moments;
}

template <class A>
void join_rows(const Cuts& cuts, Kind kind, const Messages& messages, std::span<Moments> moments) {
  constexpr bool kWide = std::is_same_v<A, double>;
  const std::size_t numbers = cuts.numbers(Pass::forward, kind, kWide);
  MomentNode nodes[kMaxNodes];
  MomentTree<A> tree({nodes, kind == Kind::layer});
  for (std::size_t row = 0; row < moments.size(); ++row) {
    for_parts(cuts, numbers, messages, row, [&](const SentPart& part, const double*& from) {
      Moments of_part = read_moments(kind, kWide, from);
      of_part.count = static_cast<double>(part.cols);
      tree.push(node_of<A>(of_part), part.weight);
    });
    moments[row] = moments_of(tree.finish());
  }
}

void check_cols(const Cuts& cuts, std::size_t cols) {
  if (cols == cuts.own_cols()) return;
  throw Error("x has rows of " + std::to_string(cols) + " columns, but cols has " + std::to_string(cuts.own_cols()) +
              " for process " + std::to_string(cuts.rank()));
}

}  // namespace

void check_messages(const Cuts& cuts, Kind kind, bool wide, const Messages& messages, std::size_t rows) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const FpEnvironment environment;
  const std::size_t numbers = cuts.numbers(Pass::forward, kind, wide);
  for (std::size_t row = 0; row < rows; ++row) {
    for_parts(cuts, numbers, messages, row, [&](const SentPart& part, const double*& from) {
      const auto check = [&](const char* name, double value, double least) {
        if (value != value || (value >= least && value <= kMost)) return;
        refuse_message(part.process, std::string(name) + " of row " + std::to_string(row), text_of(value),
                       "from " + text_of(least) + " to " + text_of(kMost));
      };
      const Moments moments = read_moments(kind, wide, from);
      check("mean", moments.mean, -kMost);
      check("mean's low part", moments.mean_low, -kMost);
      check("sum of squares", moments.m2, 0);
    });
  }
}

void refuse_message(std::size_t process, const std::string& field, const std::string& has, const std::string& should) {
  throw Error("process " + std::to_string(process) + " has sent a message whose " + field + " is " + has +
              ", but it should be " + should);
}

void find_moments_on(Target target, const Cuts& cuts, const Problem& p, std::span<double> message,
                     const Executor& executor) noexcept {
  share_rows(executor, p, row_type(p), [&]<class T>(std::size_t first, std::size_t count) {
    const Kernels& kernels = kernels_of(target);
    const std::size_t numbers = cuts.numbers(Pass::forward, p.kind, kIsWide<T>);
    for (std::size_t row = first; row < first + count; ++row) {
      write_parts(cuts, p.cols, numbers, &message[row * numbers], [&](std::size_t col, std::size_t n, const auto& put) {
        visit_moments(p.kind, kIsWide<T>, moments_of(part_moments(kernels, p, row, col, {n, n})), put);
      });
    }
  });
}

void join_shards(const Cuts& cuts, Kind kind, bool wide, const Messages& messages,
                 std::span<Moments> moments) noexcept {
  const FpEnvironment environment;
  wide ? join_rows<double>(cuts, kind, messages, moments) : join_rows<float>(cuts, kind, messages, moments);
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
  const GradientProblem& p = pass.problem;
  share_rows(executor, p, pass.plan.rows.type, [&]<class T>(std::size_t first, std::size_t count) {
    BackwardRows<T> rows(kernels_of(target), p, pass.plan, 0, {0, p.cols});
    const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kIsWide<T>);
    for (std::size_t row = first; row < first + count; ++row) {
      GradientScalars s;
      find_statistics(rows, row, s);
      write_parts(cuts, p.cols, numbers, &message[row * numbers], [&](std::size_t col, std::size_t n, const auto& put) {
        visit_sums(p.kind, sum_columns(rows, row, s, {col, col + n}), put);
      });
    }
  });
}

void run_on(Target target, const Cuts& cuts, GradientPass& pass, const Messages& messages, const Executor& executor) {
  GradientProblem& p = pass.problem;
  const auto scalars = std::make_unique_for_overwrite<GradientScalars[]>(p.rows);
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(pass.plan.scratch_bytes);
  const Kernels& kernels = kernels_of(target);
  share_rows(executor, p, pass.plan.rows.type, [&]<class T>(std::size_t first, std::size_t count) {
    BackwardRows<T> rows(kernels, p, pass.plan, 0, {0, p.cols});
    const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kIsWide<T>);
    GradientNode nodes[kMaxNodes];
    GradientTree tree({nodes});
    for (std::size_t row = first; row < first + count; ++row) {
      for_parts(cuts, numbers, messages, row, [&](const SentPart& part, const double*& from) {
        GradientNode sums{};
        visit_sums(p.kind, sums, [&](double& number) { number = *from++; });
        tree.push(sums, part.weight);
      });
      find_statistics(rows, row, scalars[row] = {});
      finish_scalars(rows, tree.finish(), scalars[row]);
    }
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
  const internal::Messages all{messages.data(), messages.size() / cuts.size()};
  internal::check_messages(cuts, forward.kind, wide, all, moments.size());
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
  internal::validate_buffers(pass.problem);
  internal::run_on(active_target(), cuts, pass, {messages.data(), messages.size() / cuts.size()}, executor);
}

}  // namespace evenorm
