// How a backward pass goes: how rows and columns are shared out, how it uses the caches, and its scratch. Decided once,
// before anything runs, from the problem and the sizes of the caches. Plain data; no bit of any result depends on it.
#pragma once

#include "plan/caches.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

enum class GradientRoute : unsigned char {
  rows,        // dx alone, row by row: nothing is summed over rows
  row_blocks,  // all gradients of one block of rows after the other; the blocks' sums are joined in a tree
  two_steps,   // few long rows: first the scalars of each row, then all gradients of one strip of columns after another
};

struct GradientCacheUse {
  bool stream_dx = false;  // dx is written past the caches, by non-temporal stores
  bool fetch = false;      // x and dy of the next row are prefetched
};

struct GradientPlan {
  GradientRoute route = GradientRoute::rows;
  // Of row_blocks that are one block: several threads take two steps, and so does one whose scratch leaves no room to
  // align the sums.
  bool may_take_two_steps = false;
  GradientCacheUse cache;
  GradientScratch scratch;        // of a worker, on its stack
  std::size_t scratch_bytes = 0;  // what the caller provides, at any address: sums over rows, or scalars of rows
  std::size_t spare_bytes = 0;    // of these, for alignment
};
GradientPlan make_plan(const GradientProblem& p, const Caches& caches) noexcept;

struct GradientPass {
  // Throws Error where scratch does not suffice.
  explicit GradientPass(GradientProblem validated, const Caches& caches = internal::caches());

  GradientProblem problem;
  GradientPlan plan;
};

}  // namespace evenorm::internal
