// The temporary memory of one worker, on its stack. src/plan/scratch_plan.hpp plans the pieces of it.
#pragma once

#include <cstddef>

#include "plan/scratch_plan.hpp"

namespace evenorm::internal {

class Scratch {
 public:
  // The memory of a piece: not initialised, aligned to a cache line, and null if the piece is absent.
  template <class T>
  T* at(const Piece& piece) const {
    return piece.bytes == 0 ? nullptr : static_cast<T*>(static_cast<void*>(bytes_ + piece.offset));
  }

 protected:
  explicit Scratch(std::byte* bytes) : bytes_(bytes) {}

 private:
  std::byte* bytes_;
};

template <std::size_t kBytes>
class ScratchMemory : public Scratch {
 public:
  ScratchMemory() : Scratch(memory_) {}
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

 private:
  alignas(64) std::byte memory_[kBytes];
};

}  // namespace evenorm::internal
