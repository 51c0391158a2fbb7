// The memory that one worker needs beside its registers: on its stack, handed out piece by piece, never given back.
#pragma once

#include <cassert>
#include <cstddef>

namespace evenorm::internal {

// With what else a row function keeps on the stack, some 9 KiB, below the 64 KiB that are promised. On x86 16 gathered
// rows of 768 columns of f32 just fit. No bit depends on it.
inline constexpr std::size_t kScratchBytes = std::size_t{852} * 64;

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Room for n values, not initialised, aligned to a cache line. The sum of all pieces is the callers' to bound.
  template <class T>
  T* take(std::size_t n) {
    void* piece = bytes_ + used_;
    used_ += (n * sizeof(T) + kLine - 1) / kLine * kLine;
    assert(used_ <= kScratchBytes);
    return static_cast<T*>(piece);
  }
  std::size_t left() const { return kScratchBytes - used_; }

 private:
  static constexpr std::size_t kLine = 64;

  std::size_t used_ = 0;
  alignas(kLine) std::byte bytes_[kScratchBytes];
};

}  // namespace evenorm::internal
