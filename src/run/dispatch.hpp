// The SIMD targets: which are compiled in, which this CPU supports, which is in use, and their kernels.
#pragma once

#include <span>
#include <string_view>

#include "kernels/kernels.hpp"

namespace evenorm::internal {

// Best first.
enum class Target : unsigned char { avx3, avx2, neon, portable };

std::string_view name(Target target) noexcept;
std::span<const Target> compiled_targets() noexcept;  // best first; the last is always `portable`
bool is_supported(Target target) noexcept;            // compiled in, and this CPU can run it

Target best_target() noexcept;  // the first supported target

// The target in use: the one that EVENORM_TARGET names, else best_target(). The first call decides it.
// Throws Error if EVENORM_TARGET names an unknown or unsupported target.
Target active_target();

// The kernels of a supported target.
const Kernels& kernels_of(Target target) noexcept;

}  // namespace evenorm::internal
