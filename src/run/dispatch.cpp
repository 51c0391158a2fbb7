#include "run/dispatch.hpp"

#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "evenorm/evenorm.hpp"
#include "problem/printable.hpp"

namespace evenorm::internal {

// Defined in src/targets/.
extern const Kernels kKernelsAvx3, kKernelsAvx2, kKernelsNeon, kKernelsPortable;

#if HWY_ARCH_X86
const bool kRoundsToBf16 = __builtin_cpu_supports("avx512bf16") != 0;
#else
const bool kRoundsToBf16 = false;
#endif

namespace {

struct Entry {
  Target target;
  std::string_view name;
  std::int64_t highway_bit;
  const Kernels* kernels;
};

// Those that are compiled in, best first.
constexpr Entry kLadder[] = {
#if HWY_TARGETS & HWY_AVX3
    {Target::avx3, "avx3", HWY_AVX3, &kKernelsAvx3},
#endif
#if HWY_TARGETS & HWY_AVX2
    {Target::avx2, "avx2", HWY_AVX2, &kKernelsAvx2},
#endif
#if HWY_TARGETS & HWY_NEON
    {Target::neon, "neon", HWY_NEON, &kKernelsNeon},
#endif
    {Target::portable, "portable", HWY_SCALAR, &kKernelsPortable},
};

constexpr auto kCompiled = [] {
  std::array<Target, std::size(kLadder)> targets{};
  std::ranges::transform(kLadder, targets.begin(), &Entry::target);
  return targets;
}();

const Entry& entry_of(Target target) noexcept {
  for (const Entry& entry : kLadder) {
    if (entry.target == target) return entry;
  }
  return kLadder[std::size(kLadder) - 1];
}

std::string supported_names() {
  std::string names;
  for (Target target : compiled_targets()) {
    if (!is_supported(target)) continue;
    if (!names.empty()) names += ", ";
    names += name(target);
  }
  return names;
}

Target choose_target() {
  const char* forced = std::getenv("EVENORM_TARGET");
  if (forced == nullptr || *forced == '\0') return best_target();
  for (const Entry& entry : kLadder) {
    if (entry.name == forced && is_supported(entry.target)) return entry.target;
  }
  throw Error("EVENORM_TARGET is '" + printable(forced, 200) + "', but this machine supports " + supported_names());
}

}  // namespace

std::string_view name(Target target) noexcept { return entry_of(target).name; }

std::span<const Target> compiled_targets() noexcept { return kCompiled; }

bool is_supported(Target target) noexcept {
  const Entry& entry = entry_of(target);
  if (entry.target != target) return false;
  return target == Target::portable || (hwy::SupportedTargets() & entry.highway_bit) != 0;
}

Target best_target() noexcept { return *std::ranges::find_if(kCompiled, is_supported); }

const Kernels& kernels_of(Target target) noexcept { return *entry_of(target).kernels; }

Target active_target() {
  static const Target target = choose_target();
  return target;
}

}  // namespace evenorm::internal
