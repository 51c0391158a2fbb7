// Sets the default floating-point modes (round to nearest, no flush-to-zero, no traps) while an object lives, and
// restores the caller's modes afterwards.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace evenorm::internal {

class FpEnvironment {
 public:
  FpEnvironment() noexcept : saved_(read()) {
    if ((saved_ & kModes) != kDefault) write((saved_ & ~kModes) | kDefault);
  }
  ~FpEnvironment() {
    if ((saved_ & kModes) != kDefault) write(saved_);
  }
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  using Word = unsigned;
  static constexpr Word kModes = 0xFFC0;    // all of MXCSR except the sticky flags
  static constexpr Word kDefault = 0x1F80;  // every exception masked
  static Word read() noexcept { return _mm_getcsr(); }
  static void write(Word word) noexcept { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kModes = 0x07C89F07;  // AHP, DN, FZ, RMode, FZ16, traps, and FEAT_AFP's AH, FIZ, NEP
  static constexpr Word kDefault = 0;
  static Word read() noexcept {
    Word word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) noexcept { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = unsigned;
  static constexpr Word kModes = 0, kDefault = 0;
  static Word read() noexcept { return 0; }
  static void write(Word) noexcept {}
#endif
  Word saved_;
};

}  // namespace evenorm::internal
