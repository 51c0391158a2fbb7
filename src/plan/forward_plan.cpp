#include "plan/forward_plan.hpp"

#include <utility>

#include "plan/spec.hpp"

namespace evenorm::internal {
namespace {

// True for long lines of f32 whose y is written with non-temporal stores of whole cache lines: sums beside the
// normalise step keep memory busier.
bool is_better_beside(const LinePlace& place, const Problem& p, CacheUse cache) {
  return !place.across && cache.stream_y && p.x.dtype == DType::f32 && place.positions > kBlock &&
         place.positions * sizeof(float) % kLine == 0;
}

}  // namespace

DType row_type(const Problem& p) noexcept {
  const DType arithmetic = arithmetic_type(p);
  return p.x.dtype == p.y.dtype && (p.x.dtype == DType::f64) == (arithmetic == DType::f64) ? p.x.dtype : arithmetic;
}

CacheUse cache_use(const Problem& p, const Caches& caches) noexcept {
  const std::size_t elements = p.rows * p.cols;
  const auto streams = [&](const Matrix<void*>& to) {
    const bool in_place = to.data == p.x.data || to.data == p.residual.data;
    return !in_place && elements * bytes_of(to.dtype) >= streamed_from(caches);
  };
  return {streams(p.y), streams(p.sum), elements * bytes_of(p.x.dtype) >= prefetched_from(caches)};
}

ForwardPlan make_plan(const Problem& p, CacheUse cache) noexcept {
  ForwardPlan plan{ForwardRoute::short_rows, ForwardRoute::short_rows, {}, cache, forward_scratch(p, cache)};
  const TilePlan& tile = plan.scratch.tile;
  if (p.moments != nullptr) {
    plan.route = ForwardRoute::precomputed;
  } else if (tile.rows != 0 && tile.cols != p.cols) {
    plan.route = ForwardRoute::blocks;
  } else if (p.cols > kBlock) {
    plan.route = ForwardRoute::long_rows;
  }
  plan.otherwise = plan.route;
  if (const LinePlace place = line_place(p); place.lines != 0 && !is_better_beside(place, p, cache)) {
    plan.route = ForwardRoute::lines;
    plan.line_place = place;
    plan.cache.prefetch_x = cache.prefetch_x && cache.stream_y;  // lines gain only from memory
  }
  return plan;
}

ForwardPass::ForwardPass(Problem validated, const Caches& caches)
    : problem(std::move(validated)), plan(make_plan(problem, cache_use(problem, caches))) {
  if (plan.scratch.bytes > kForwardScratchBytes) throw Error(kTooLarge);
}

}  // namespace evenorm::internal
