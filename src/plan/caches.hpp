// How large the processor's caches are, and what follows from it for how memory is used. Neither affects a bit.
#pragma once

#include <cstddef>

namespace evenorm::internal {

// Bytes: of a core's second cache, and of the last one. What the system does not tell is taken to be as here.
struct Caches {
  std::size_t second = std::size_t{1} << 20u, last = std::size_t{32} << 20u;
};

// Found at the first call.
const Caches& caches() noexcept;

// Bytes of an output from which on it is written past the caches, and of x from which on it is fetched ahead.
std::size_t streamed_from(const Caches& caches) noexcept;
std::size_t fetched_from(const Caches& caches) noexcept;

}  // namespace evenorm::internal
