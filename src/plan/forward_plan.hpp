// How a forward pass goes: which driver takes its rows, how it uses the caches, and its scratch. Decided once, before
// anything runs, from the problem and the sizes of the caches. Plain data; no bit of any result depends on it.
#pragma once

#include <array>
#include <memory>

#include "plan/caches.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// The driver of a pass (rows/forward*.cpp). Each hands out-of-range rows to rows/scaled.cpp one by one.
enum class ForwardRoute : unsigned char {
  short_rows,      // at most one block of columns: groups of rows
  long_rows,       // several blocks of columns
  pieces,          // rows of which scratch holds only some columns at a time
  channels_first,  // rows side by side in memory, normalised where they are
  precomputed,     // rows whose moments are given: normalised only
};

struct ForwardPlan {
  ForwardRoute route = ForwardRoute::short_rows;
  // The route of rows that `route` cannot take: those that do not fill cache lines, or all of them where gamma or beta
  // holds a NaN or an infinity. Differs from `route` for channels_first alone.
  ForwardRoute otherwise = ForwardRoute::short_rows;
  CacheUse cache;
  ForwardScratch scratch;
};
ForwardPlan make_plan(const Problem& one_pass, CacheUse cache) noexcept;

// What fits the caches of this machine.
CacheUse cache_use(const Problem& p, const Caches& caches) noexcept;

// The type whose kernels a problem runs: that of x and y where they agree and need no f64 arithmetic, else that of the
// arithmetic, with x and y converted block by block.
DType row_type(const Problem& p) noexcept;

// The passes of a validated problem: one, or, where its two y cannot share a pass, one for each.
class ForwardPasses {
 public:
  // Throws Error where scratch does not suffice, std::bad_alloc where there are two passes and no memory for them.
  explicit ForwardPasses(Problem validated, const Caches& caches = internal::caches());

  // run(problem, plan) for each pass, in order. y and the sum may lie where x does, so y's pass comes last.
  template <class Run>
  void for_each(const Run& run) const {
    if (alone_ == nullptr) return run(problem, plan_);
    for (const Pass& pass : *alone_) run(pass.problem, pass.plan);
  }

  Problem problem;  // as validated

 private:
  struct Pass {
    Problem problem;
    ForwardPlan plan;
  };
  static Pass planned(Problem p, const Caches& caches);

  ForwardPlan plan_;                                  // of the one pass
  std::shared_ptr<const std::array<Pass, 2>> alone_;  // or the second y's pass and the first's
};

}  // namespace evenorm::internal
