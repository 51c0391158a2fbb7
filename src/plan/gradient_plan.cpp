#include "plan/gradient_plan.hpp"

#include <algorithm>
#include <utility>

#include "plan/spec.hpp"
#include "plan/tuning.hpp"

namespace evenorm::internal {
namespace {

std::size_t scalars_bytes(const GradientProblem& p) { return rows_of_set(p) * sizeof(GradientScalars); }

// The most scratch that a caller is promised to need for so many rows, except a cache line for alignment.
std::size_t most_scratch(const GradientProblem& p, std::size_t rows) {
  return std::max(kMostScratch, rows * p.cols * bytes_of(p.x.dtype) / 8);
}

// Prefetching pays from memory.
GradientCacheUse cache_use(const GradientProblem& p, const Caches& caches) {
  const std::size_t elements = p.rows * p.cols;
  GradientCacheUse use;
  use.stream_dx = p.dx.data != nullptr && elements * bytes_of(p.dx.dtype) >= streamed_from(caches) / kPartToStreamDx;
  use.prefetch = elements * bytes_of(p.x.dtype) >= prefetched_from(caches);
  return use;
}

DType kernel_type(const GradientProblem& p) {
  const DType type = p.x.dtype, arithmetic = arithmetic_type(p);
  const bool has_dx = p.dx.data != nullptr;
  const bool of_one_type = p.dy.dtype == type && (!has_dx || p.dx.dtype == type) && p.dsum.data == nullptr;
  const bool dense = has_dense_rows(p.x) && has_dense_rows(p.dy) && (!has_dx || has_dense_rows(p.dx));
  return arithmetic == DType::f32 && of_one_type && dense && !is_in_place(p) ? type : arithmetic;
}

GradientRowsPlan plan_rows(const GradientProblem& p, GradientCacheUse use, const Caches& caches) {
  const DType type = kernel_type(p);
  const bool has_dx = p.dx.data != nullptr, wide = type == DType::f64;
  GradientRowsPlan rows{type, access_of(p.x, type), access_of(p.dy, type), access_of(p.dsum, type),
                        access_of(p.dx, type)};
  const auto in_place = [](Access access) { return access == Access::in_place; };
  rows.runs = summed_run(p) != 1;
  rows.aside = !has_dx || is_in_place(p) || p.dsum.data != nullptr;
  rows.dx_last = is_in_place(p) && sums_over_rows(p) && !rows.runs && !wide;
  rows.stream = use.stream_dx && in_place(rows.dx) && !is_in_place(p);
  const bool direct = !rows.aside && in_place(rows.x) && in_place(rows.dy) && in_place(rows.dx);
  rows.columns = direct ? kBlock : wide ? kGradientPiece<double> : kGradientPiece<float>;
  rows.together = direct && p.cols <= kBlock && !rows.runs && p.moments == nullptr;
  const std::size_t row_bytes = p.cols * bytes_of(type);
  rows.narrow = 3 * kNarrowRows * row_bytes <= caches.first / 100 * kNarrowPercent;
  if (use.prefetch && direct) rows.ahead = std::min(kGradientAhead, (rows.narrow ? kNarrowRows : 1) * row_bytes);
  return rows;
}

// The route and scratch of one set, if its rows are summed.
void plan_set(const GradientProblem& p, GradientPlan& plan) {
  const std::size_t most = most_scratch(p, rows_of_set(p));
  // Two steps finish some columns at a time, so these must not share elements.
  const bool may_take_two_steps = row_blocks(p) == 1 && !has_shared_columns(p);
  if (p.cols > kBlock) plan.chain_length = whole_vectors(p.cols);
  const auto slots_bytes = [&] { return row_blocks(p) * sums_bytes(p.cols, plan.chain_length); };
  if (p.cols > kBlock && slots_bytes() > most) plan.chain_length = p.cols;
  if (may_take_two_steps && slots_bytes() > most) {
    plan.route = GradientRoute::two_steps;
    plan.set_bytes = scalars_bytes(p) + kCacheLine;
    return;
  }
  plan.route = GradientRoute::row_blocks;
  plan.may_take_two_steps = may_take_two_steps && p.cols >= kTwoStepCols && scalars_bytes(p) <= slots_bytes();
  plan.set_bytes = slots_bytes() + kCacheLine;
}

}  // namespace

GradientPlan make_plan(const GradientProblem& p, const Caches& caches) noexcept {
  GradientPlan plan;
  plan.cache = cache_use(p, caches);
  plan.lines = line_place(p);
  if (plan.lines) plan.unit = plan.lines->share();
  plan.rows = plan_rows(p, plan.cache, caches);
  if (!sums_over_rows(p) || p.sets == 0) return plan;
  if (summed_run(p) != 1) {
    plan.scratch_bytes = std::max<std::size_t>(p.rows, 1) * slot_of_row(p) * sizeof(double) + kCacheLine;
    return plan;
  }
  plan_set(p, plan);
  plan.sets_at_once =
      std::clamp<std::size_t>(most_scratch(p, p.rows) / plan.set_bytes, 1, std::min(p.sets, kMostSetsAtOnce));
  plan.scratch_bytes = plan.sets_at_once * plan.set_bytes;
  return plan;
}

GradientPass::GradientPass(GradientProblem validated, const Caches& caches)
    : problem(std::move(validated)), plan(make_plan(problem, caches)) {}

}  // namespace evenorm::internal
