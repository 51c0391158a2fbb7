// The forward half of rows/passes.hpp: takes scratch, and sends rows, or parts of a long row, the planned way.
#include "rows/passes.hpp"

#include "forward/forward.hpp"
#include "lines/line_rows.hpp"
#include "plan/forward_plan.hpp"
#include "problem/fp_environment.hpp"
#include "rows/stream.hpp"
#include "rows/types.hpp"

namespace evenorm::internal {
namespace {

void run_by_sets(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t first,
                 std::size_t count) {
  for_sets(p, first, count, [&](std::size_t set, std::size_t row, std::size_t rows) {
    with_type(plan.type, [&]<class T>() {
      Scratch scratch;
      ForwardState<T> state(kernels, p, plan, scratch, set, {0, p.cols});
      plan.order == Order::groups ? run_groups(state, row, rows) : run_blocks(state, row, rows);
    });
  });
}

[[gnu::noinline]] void run_lines(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t first,
                                 std::size_t count) {
  std::optional<std::size_t> finite_set;
  with_type(plan.type, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      for_lines<T>(
          *plan.lines, first, first + count,
          [&](const LinesOfRows& lines) { return normalise_lines<T>(kernels, p, plan, lines, finite_set); },
          [&](std::size_t row, std::size_t rows) { run_by_sets(kernels, p, plan, row, rows); });
    }
  });
}

template <class A>
[[gnu::noinline]] RowScalars join_row(const Problem& p, const MomentNode* parts, std::size_t count) {
  MomentNode nodes[kMaxNodes];
  MomentTree<A> tree({nodes, p.kind == Kind::layer});
  for (std::size_t i = 0; i < count; ++i) tree.push(parts[i]);
  RowGroup<A> group;
  finish_one(group, 0, tree.finish(), p.eps);
  return scalars_of(group, 0);
}

// x is opened block by block, or its sums with the residual are added.
template <class T>
[[gnu::noinline]] MomentNode moments_of_part(const Kernels& kernels, const Problem& p, std::size_t row,
                                             std::size_t first_col, const Partition& part) {
  alignas(kCacheLine) T values[kBlock];
  const EvenRows<T> memory{values, 0};
  const Panel x(kernels, p.x, dtype_of<T>, access_of(p.x, dtype_of<T>));
  const Residual<T> residual(kernels, p);
  MomentNode nodes[kMaxNodes];
  return sum_blocks<T>(kernels, p.kind, nodes, part, [&](std::size_t first, std::size_t n) {
    if (p.residual.data == nullptr) return x.open({row, 1, first_col + first, n}, memory).first;
    residual.add(row, first_col + first, n, values);
    return values + 0;
  });
}

// The plan for a row that threads share: sums are added again, with a block of memory.
ForwardPlan with_sums_anew(ForwardPlan plan, const Problem& p) {
  if (plan.sums.place == Sums::none) return plan;
  plan.sums.copied = plan.sums.copied || (plan.sums.place == Sums::in_tensor && p.sum.data != nullptr);
  plan.sums.place = Sums::anew;
  plan.scratch.x.whole = plan.scratch.y.whole = false;
  return plan;
}

}  // namespace

void run_forward(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t first,
                 std::size_t count) noexcept {
  const FpEnvironment environment;
  plan.lines ? run_lines(kernels, p, plan, first, count) : run_by_sets(kernels, p, plan, first, count);
  if (plan.cache.stream_y || plan.cache.stream_sum) flush_stream();
}

MomentNode part_moments(const Kernels& kernels, const Problem& p, std::size_t row, std::size_t first_col,
                        const Partition& part) noexcept {
  const FpEnvironment environment;
  return with_type(row_type(p), [&]<class T>() { return moments_of_part<T>(kernels, p, row, first_col, part); });
}

RowScalars finish_row(const Problem& p, std::size_t row, const MomentNode* parts, std::size_t count) noexcept {
  const FpEnvironment environment;
  const RowScalars scalars =
      arithmetic_type(p) == DType::f64 ? join_row<double>(p, parts, count) : join_row<float>(p, parts, count);
  if (!scalars.out_of_range) {
    store_statistic(p.mean, row, scalars.mean);
    store_statistic(p.rstd, row, scalars.rstd);
  }
  return scalars;
}

void normalise_part(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t row,
                    const RowScalars& scalars, std::size_t first_col, const Partition& part) noexcept {
  const FpEnvironment environment;
  const ForwardPlan anew = with_sums_anew(plan, p);
  with_type(plan.type, [&]<class T>() {
    Scratch scratch;
    ForwardState<T> state(kernels, p, anew, scratch, row / rows_of_set(p), {first_col, first_col + part.cols});
    internal::normalise_part(state, row, scalars, first_col, part);
  });
  if (plan.cache.stream_y || plan.cache.stream_sum) flush_stream();
}

}  // namespace evenorm::internal
