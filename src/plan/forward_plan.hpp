// The plan of a forward pass: everything that is decided about it, computed once, before anything runs, from the
// problem and the sizes of the caches. Drivers and kernels do as it says. It is plain data, and no bit of any result
// depends on it.
#pragma once

#include <optional>

#include "plan/access.hpp"
#include "plan/caches.hpp"
#include "plan/lines.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// How rows go through kernels.
enum class Order : unsigned char {
  groups,  // rows of one block: by one kernel that sums a group, finishes the one before, normalises the one before
           // that
  blocks,  // block by block: some rows are summed while the rows before them are normalised
};

// Where the sums of x and the residual are between their reduction and their normalise step.
enum class Sums : unsigned char {
  none,       // there is no residual
  in_tensor,  // in the tensor that they, or otherwise y, go to
  kept,       // in memory
  anew,       // nowhere: the normalise step adds again
};

// Outputs too large for the caches are written with non-temporal stores; an x too large for them is prefetched.
struct CacheUse {
  bool stream_y = false, stream_sum = false;
  bool prefetch_x = false;
};

// The memory of rows that are not in place: `slots` times `rows` of them, whole or a block of each.
struct RowsMemory {
  bool exists() const { return slots != 0; }

  Piece piece;
  std::size_t slots = 0, rows = 0, row_bytes = 0;
  bool whole = false;
};

// The sums of x and the residual.
struct SumsPlan {
  Sums place = Sums::none;
  bool kernel_adds = false;  // the kernel that sums rows adds the residual; otherwise it is added before
  bool copied = false;       // the normalise step copies sums to their tensor
};

// Rows that go through kernels together.
struct RowsTogether {
  std::size_t rows = 1;  // of a group, or that go block by block
  std::size_t tile = 0;  // rows of groups that are gathered and scattered at once, unless y is i8; 0: none are
  GroupLoop loop = GroupLoop::any;
  bool beside = false;  // while rows are normalised block by block, the next are summed
};

struct ForwardScratch {
  RowsMemory x, y;    // the same memory where y overwrites x
  Piece gamma, beta;  // in the arithmetic's type: all columns, converted once, or a block at each use
  Piece nodes;        // for the trees of the rows that go together
  Piece block;        // of a rare row of f64
  std::size_t bytes = 0;
};

struct ForwardPlan {
  bool gathers() const { return x == Access::gathered || y == Access::gathered; }
  bool x_in_memory() const { return sums.place == Sums::none ? x != Access::in_place : sums.place != Sums::in_tensor; }

  DType type = DType::f32;  // of the kernels
  // Rows go by lines, if they have a place, are in range, and gamma and beta are finite; all others in this order.
  std::optional<LinePlace> lines;
  Order order = Order::groups;
  Access x = Access::in_place, y = Access::in_place;
  SumsPlan sums;
  CacheUse cache;         // what would suit the caches
  bool stream = false;    // cache.stream_y, for a y that is in place and holds no sums
  std::size_t ahead = 0;  // the prefetch distance of what is summed, in bytes; 0: none
  RowsTogether together;
  std::size_t unit = 1;  // threads take so many rows, or a multiple
  ForwardScratch scratch;
};
ForwardPlan make_plan(const Problem& p, CacheUse cache) noexcept;

// The cache use that suits caches of these sizes.
CacheUse cache_use(const Problem& p, const Caches& caches) noexcept;

// The type whose kernels run. This is the type of x and y if they agree and need no f64 arithmetic. Otherwise it is the
// type of the arithmetic, and x and y are converted.
DType row_type(const Problem& p) noexcept;

// A validated problem with its plan.
struct ForwardPass {
  // Throws Error if scratch does not suffice.
  explicit ForwardPass(Problem validated, const Caches& caches = internal::caches());

  Problem problem;
  ForwardPlan plan;
};

}  // namespace evenorm::internal
