// Sets MXCSR on x86 and FPCR on AArch64. Other processors keep their modes.
#include "contracts/fp_mode.hpp"

#include <cstddef>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace evenorm::contracts {
namespace {

// kBits: of each mode, in the order of FpMode.
#if defined(__x86_64__) || defined(__i386__)
constexpr unsigned long kStickyFlags = 0x3F;
constexpr unsigned long kBits[] = {0, 0x8040, 0x4000, 0x2000, 0x6000};  // FTZ and DAZ; RC
unsigned long read_control() { return _mm_getcsr() & ~kStickyFlags; }
void write_control(unsigned long control) { _mm_setcsr(static_cast<unsigned>(control)); }
#elif defined(__aarch64__)
constexpr unsigned long kBits[] = {0, 1ul << 24, 1ul << 22, 2ul << 22, 3ul << 22};  // FZ; RMode
unsigned long read_control() {
  unsigned long control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void write_control(unsigned long control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
#else
constexpr unsigned long kBits[] = {0, 0, 0, 0, 0};
unsigned long read_control() { return 0; }
void write_control(unsigned long) {}
#endif

unsigned long with_mode(unsigned long control, FpMode mode) {
  for (const unsigned long bits : kBits) control &= ~bits;
  return control | kBits[static_cast<std::size_t>(mode)];
}

}  // namespace

const char* name(FpMode mode) noexcept {
  constexpr const char* kNames[] = {"plain", "flush_to_zero", "upward", "downward", "toward_zero"};
  return kNames[static_cast<std::size_t>(mode)];
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
