// The sizes of the processor's caches, and the thresholds that follow from them. Neither affects a bit.
#pragma once

#include <cstddef>

namespace evenorm::internal {

// Bytes of a core's first and second cache, and of the last one. These defaults apply if the system does not report a
// size.
struct Caches {
  std::size_t first = 32u << 10u, second = 1u << 20u, last = 32u << 20u;
};

// Determined at the first call.
const Caches& caches() noexcept;

// The least bytes of an output that is written with non-temporal stores, and of an x that is prefetched.
std::size_t streamed_from(const Caches& caches) noexcept;
std::size_t prefetched_from(const Caches& caches) noexcept;

}  // namespace evenorm::internal
