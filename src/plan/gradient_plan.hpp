// The plan of a backward pass: how rows and columns are shared out, cache use and scratch. It is computed once, before
// anything runs, from the problem and the sizes of the caches. It is plain data, and no bit of any result depends on
// it.
#pragma once

#include "plan/caches.hpp"
#include "plan/lines.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

enum class GradientRoute : unsigned char {
  rows,        // row by row: dx alone, or also sums of each row over runs of columns
  row_blocks,  // all gradients, by row blocks, whose sums are joined in a tree
  two_steps,   // few long rows: first the scalars of each row, then all gradients by columns
};

struct GradientCacheUse {
  bool stream_dx = false;  // non-temporal stores of dx
  bool prefetch = false;   // x and dy of the next row are prefetched
};

struct GradientPlan {
  GradientRoute route = GradientRoute::rows;
  // For a single row block: several threads take two steps.
  bool may_take_two_steps = false;
  std::optional<LinePlace> line_place;  // of the route `rows`
  GradientCacheUse cache;
  std::size_t scratch_bytes = 0;  // provided by the caller, at any address
  std::size_t set_bytes = 0;      // of scratch_bytes, for one set: its sums, or the scalars of its rows
  std::size_t sets_at_once = 1;   // that scratch has room for
};
GradientPlan make_plan(const GradientProblem& p, const Caches& caches) noexcept;

struct GradientPass {
  explicit GradientPass(GradientProblem validated, const Caches& caches = internal::caches());

  GradientProblem problem;
  GradientPlan plan;
};

}  // namespace evenorm::internal
