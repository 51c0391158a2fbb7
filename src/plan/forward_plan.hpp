// The plan of a forward pass: its driver, cache use and scratch. It is computed once, before anything runs, from the
// problem and the sizes of the caches. It is plain data, and no bit of any result depends on it.
#pragma once

#include "plan/caches.hpp"
#include "plan/lines.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// The driver of a pass (rows/forward*.cpp). Each driver passes rare rows to rows/rare_row.cpp one by one.
enum class ForwardRoute : unsigned char {
  short_rows,   // rows of at most one block, in groups
  long_rows,    // rows of several blocks
  blocks,       // rows that are gathered block by block, some at a time
  lines,        // rows, or their runs of columns, that lie evenly along or across each other, without gathering
  precomputed,  // rows with precomputed statistics, which are only normalised
};

struct ForwardPlan {
  ForwardRoute route = ForwardRoute::short_rows;
  // The route of rows that `lines` cannot take: those that do not fill cache lines or are out of range, or whose gamma
  // or beta holds a NaN or an infinity. Elsewhere it is `route`.
  ForwardRoute otherwise = ForwardRoute::short_rows;
  LinePlace line_place;  // of the route `lines`
  CacheUse cache;
  ForwardScratch scratch;
};
ForwardPlan make_plan(const Problem& p, CacheUse cache) noexcept;

// The cache use that suits caches of these sizes.
CacheUse cache_use(const Problem& p, const Caches& caches) noexcept;

// The type whose kernels run. This is the type of x and y if they agree and need no f64 arithmetic. Otherwise it is the
// type of the arithmetic, and x and y are converted block by block.
DType row_type(const Problem& p) noexcept;

// A validated problem with its plan.
struct ForwardPass {
  // Throws Error if scratch does not suffice.
  explicit ForwardPass(Problem validated, const Caches& caches = internal::caches());

  Problem problem;
  ForwardPlan plan;
};

}  // namespace evenorm::internal
