// The plan of a backward pass: how rows and columns are shared out, cache use and scratch. It is computed once, before
// anything runs, from the problem and the sizes of the caches. It is plain data, and no bit of any result depends on
// it.
#pragma once

#include "plan/access.hpp"
#include "plan/caches.hpp"
#include "plan/lines.hpp"
#include "plan/numbers.hpp"
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
  bool prefetch = false;   // x and dy are prefetched
};

// How rows reach the kernels, except lines.
struct GradientRowsPlan {
  // The kernels' type: that of x, dy and dx if all have one 16-bit type, their rows are dense, and dx is apart.
  // Otherwise the arithmetic's.
  DType type = DType::f32;
  Access x{}, dy{}, dsum{}, dx{};
  bool together = false;    // short rows are processed together, else row by row
  bool narrow = false;      // of these, kNarrowRows at once
  bool runs = false;        // sums of rows are joined from those of their runs of columns
  bool aside = false;       // dx is made in scratch, because it is added to, is absent, or replaces an input
  bool dx_last = false;     // dx follows sums over rows, because these may be made again from inputs that it replaces
  bool stream = false;      // non-temporal stores of dx
  std::size_t columns = 0;  // the most columns of a row at once
  std::size_t ahead = 0;    // the prefetch distance of x and dy in bytes; 0: none
};

struct GradientPlan {
  GradientRoute route = GradientRoute::rows;
  // For a single row block: several threads take two steps.
  bool may_take_two_steps = false;
  std::optional<LinePlace> lines;  // of the route `rows`
  std::size_t unit = 1;            // threads take so many rows of this route, or a multiple
  GradientCacheUse cache;
  GradientRowsPlan rows;
  std::size_t chain_length = 0;   // of those in scratch; 0: chains of short rows are on the stack
  std::size_t scratch_bytes = 0;  // provided by the caller, at any address
  std::size_t set_bytes = 0;      // of scratch_bytes, for one set: its sums, or the scalars of its rows
  std::size_t sets_at_once = 1;   // that scratch has room for
};
GradientPlan make_plan(const GradientProblem& p, const Caches& caches) noexcept;

// The sums of columns over the rows of a row block, two f64 each, and their chains, aligned if of whole vectors.
constexpr std::size_t whole_vectors(std::size_t cols) { return (cols + kLanes - 1) / kLanes * kLanes; }
constexpr std::size_t sums_bytes(std::size_t cols, std::size_t chain_length) {
  static_assert(kChainsOfColumn<float> * sizeof(float) == kChainsOfColumn<double> * sizeof(double));
  return 2 * cols * sizeof(double) + kChainsOfColumn<double> * chain_length * sizeof(double);
}
// How many columns are summed before rows are: a run of those that share elements; 1 if runs are short.
inline std::size_t summed_run(const GradientProblem& p) { return p.shared < kLeastRun ? 1 : p.shared; }
// The numbers of one row's sums over runs of columns.
inline std::size_t slot_of_row(const GradientProblem& p) { return 2 * (p.cols / p.shared); }
// The row blocks of one set.
inline std::size_t row_blocks(const GradientProblem& p) { return row_blocks(p.x.dtype, rows_of_set(p), p.whole_cols); }

struct GradientPass {
  explicit GradientPass(GradientProblem validated, const Caches& caches = internal::caches());

  GradientProblem problem;
  GradientPlan plan;
};

}  // namespace evenorm::internal
