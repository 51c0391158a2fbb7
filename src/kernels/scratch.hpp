// The memory that one worker needs beside its registers, on its stack: pieces of it, as src/scratch_plan.hpp plans
// them.
#pragma once

#include <cstddef>

#include "scratch_plan.hpp"

namespace evenorm::internal {

template <std::size_t kBytes>
class ScratchOf {
 public:
  ScratchOf() = default;
  ScratchOf(const ScratchOf&) = delete;
  ScratchOf& operator=(const ScratchOf&) = delete;

  // Not initialised, aligned to a cache line; null where the piece is absent.
  template <class T>
  T* at(const Piece& piece) {
    return piece.bytes == 0 ? nullptr : static_cast<T*>(static_cast<void*>(bytes_ + piece.offset));
  }

 private:
  alignas(64) std::byte bytes_[kBytes];
};

using Scratch = ScratchOf<kScratchBytes>;
using BlockScratchMemory = ScratchOf<kBlockScratchBytes>;

}  // namespace evenorm::internal
