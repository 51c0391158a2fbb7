// Sets MXCSR on x86 and FPCR on AArch64. Other processors keep their modes.
#include "contracts/fp_mode.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace evenorm::contracts {
namespace {

#if defined(__x86_64__) || defined(__i386__)
constexpr unsigned long kStickyFlags = 0x3F;
unsigned long read_control() { return _mm_getcsr() & ~kStickyFlags; }
void write_control(unsigned long control) { _mm_setcsr(static_cast<unsigned>(control)); }

unsigned long with_mode(unsigned long control, FpMode mode) {
  constexpr unsigned long kFlush = 0x8040, kRounding = 0x6000;  // FTZ and DAZ; RC
  control &= ~(kFlush | kRounding);
  switch (mode) {
    case FpMode::flush_to_zero:
      return control | kFlush;
    case FpMode::upward:
      return control | 0x4000;
    case FpMode::downward:
      return control | 0x2000;
    case FpMode::toward_zero:
      return control | 0x6000;
    default:
      return control;
  }
}
#elif defined(__aarch64__)
unsigned long read_control() {
  unsigned long control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void write_control(unsigned long control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }

unsigned long with_mode(unsigned long control, FpMode mode) {
  constexpr unsigned long kFlush = 1ul << 24, kRounding = 3ul << 22;  // FZ; RMode
  control &= ~(kFlush | kRounding);
  switch (mode) {
    case FpMode::flush_to_zero:
      return control | kFlush;
    case FpMode::upward:
      return control | (1ul << 22);
    case FpMode::downward:
      return control | (2ul << 22);
    case FpMode::toward_zero:
      return control | (3ul << 22);
    default:
      return control;
  }
}
#else
unsigned long read_control() { return 0; }
void write_control(unsigned long) {}
unsigned long with_mode(unsigned long control, FpMode) { return control; }
#endif

}  // namespace

const char* name(FpMode mode) noexcept {
  switch (mode) {
    case FpMode::flush_to_zero:
      return "flush to zero";
    case FpMode::upward:
      return "rounding upward";
    case FpMode::downward:
      return "rounding downward";
    case FpMode::toward_zero:
      return "rounding toward zero";
    default:
      return "plain";
  }
}

std::span<const FpMode> unusual_fp_modes() noexcept {
  static constexpr FpMode kModes[] = {FpMode::flush_to_zero, FpMode::upward, FpMode::downward, FpMode::toward_zero};
  return kModes;
}

FpModeScope::FpModeScope(FpMode mode) noexcept : saved_(read_control()), set_(with_mode(saved_, mode)) {
  write_control(set_);
}
FpModeScope::~FpModeScope() { write_control(saved_); }
bool FpModeScope::is_as_set() const noexcept { return read_control() == set_; }

}  // namespace evenorm::contracts
