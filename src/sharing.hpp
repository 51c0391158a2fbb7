// How both passes share work out and use the caches: what they have in common. No bit depends on it.
#pragma once

#include <cstddef>

#include "kernels/gradient_functions.hpp"

namespace evenorm::internal {

inline constexpr std::size_t kTasksPerThread = 4;       // so that a slow thread holds nobody up
inline constexpr std::size_t kStreamBytes = 8u << 20u;  // of an output, above which it is written past the caches
inline constexpr std::size_t kFetchBytes = 4u << 20u;   // of x, above which it is fetched ahead, and dy as well

// Where share i of `shares` even ones of `units` begins: as row blocks do, whose starts are part of the specification.
inline std::size_t share_start(std::size_t units, std::size_t shares, std::size_t i) {
  return row_block_start(units, shares, i);
}

}  // namespace evenorm::internal
