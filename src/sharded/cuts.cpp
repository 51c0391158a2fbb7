// How a row's columns are split over processes, and which parts each process joins before it sends.
#include <algorithm>
#include <string>

#include "evenorm/sharded.hpp"
#include "plan/scratch_plan.hpp"
#include "plan/spec.hpp"
#include "problem/shapes.hpp"

namespace evenorm {

using internal::blocks_of;
using internal::kBlock;

Cuts::Cuts(std::span<const std::int64_t> cols, std::size_t rank) : rank_(rank) {
  if (rank >= cols.size()) {
    throw Error("rank is " + std::to_string(rank) + ", but there are " + std::to_string(cols.size()) + " processes");
  }
  for (const std::int64_t n : cols) {
    if (n < 0) throw Error("cols has " + std::to_string(n) + ", but it should have at least 0 for each process");
    const auto own = static_cast<std::size_t>(n);
    if (own > internal::kMaxCols - total_) throw Error("cols has more than 2^48 columns in all");
    at_blocks_ = at_blocks_ && (own == 0 || total_ % kBlock == 0);
    cols_.push_back(own);
    total_ += own;
  }
  if (total_ == 0) throw Error("cols has 0 columns in all, but rows should have at least 1");
  std::size_t first = 0;
  for (const std::size_t own : cols_) {
    first_part_.push_back(parts_.size());
    if (own != 0) add_parts(first, own);
    most_parts_ = std::max(most_parts_, parts_.size() - first_part_.back());
    first += own;
  }
  first_part_.push_back(parts_.size());
}

void Cuts::add_parts(std::size_t first_col, std::size_t cols) {
  const std::size_t blocks = blocks_of(cols);
  if (!at_blocks_) return parts_.push_back({0, blocks, 1});
  const std::size_t before = first_col / kBlock;
  for (std::size_t block = 0, n; block < blocks; block += n) {
    n = internal::subtree_at(before + block, blocks - block);
    parts_.push_back({block, n, n});
  }
}

std::size_t Cuts::numbers(Pass pass, Kind kind, bool wide) const {
  if (pass != Pass::forward && pass != Pass::backward) {
    throw Error("pass is " + std::to_string(static_cast<unsigned>(pass)) + ", which is none of forward, backward");
  }
  internal::check_kind(kind);
  if (kind != Kind::layer) return most_parts_;
  return most_parts_ * (pass == Pass::forward && wide ? 3 : 2);
}

}  // namespace evenorm
