// The scratch of a worker of a forward pass: pieces, whose places and sizes are planned from the problem alone. Drivers
// take exactly these. A problem whose plan is too large is refused. Rows by lines and the backward pass keep what they
// need in local arrays.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/numbers.hpp"
#include "plan/spec.hpp"
#include "plan/tuning.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// The scratch of a forward pass. With everything else that a pass keeps on the stack, it stays below the 64 KiB that
// are promised.
inline constexpr std::size_t kForwardScratchBytes = std::size_t{796} * 64;

// The most nodes of a row's trees that wait to be joined, one for each level, for rows of up to kMaxCols columns.
inline constexpr std::size_t kMaxNodes = 46;
constexpr std::size_t nodes_for(std::size_t parts) { return static_cast<std::size_t>(std::bit_width(parts)); }
// While the blocks of the last run wait, the runs before it do, too.
constexpr std::size_t nodes_for(const Partition& row) {
  return nodes_for(row.blocks_of_run()) + nodes_for(row.runs() - 1);
}
static_assert(nodes_for(Partition{kMaxCols, kLeastRun}) <= kMaxNodes);
static_assert(nodes_for(Partition{kMaxCols, kMaxCols}) <= kMaxNodes);

// True if a parameter can be used as it is. Otherwise it is copied, in the arithmetic's type.
inline bool is_used_in_place(const Vector<const void*>& v, bool plus_one, DType arithmetic) {
  return v.data == nullptr || (v.axes.is_dense(bytes_of(v.dtype)) && v.dtype == arithmetic && !plus_one);
}

template <class AnyProblem>
Partition partition(const AnyProblem& p) {
  return partition_of(p.cols, p.shared);
}

// Bytes [offset, offset + bytes) of scratch, aligned to a cache line. The piece is absent if bytes is 0.
struct Piece {
  std::uint32_t offset = 0, bytes = 0;
};

// The temporary memory of a worker of a forward pass, on its stack.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // The memory of a piece: not initialised, aligned to a cache line, and empty if the piece is absent.
  template <class T>
  std::span<T> span(const Piece& piece) {
    return {at<T>(piece), piece.bytes / sizeof(T)};
  }
  template <class T>
  T* at(const Piece& piece) {
    return piece.bytes == 0 ? nullptr : static_cast<T*>(static_cast<void*>(bytes_ + piece.offset));
  }

 private:
  alignas(kCacheLine) std::byte bytes_[kForwardScratchBytes];
};

// The error if a plan needs more scratch than there is, whatever the sizes of the caches.
inline constexpr const char* kTooLarge = "the columns, types and layouts need more scratch than a worker has";

}  // namespace evenorm::internal
