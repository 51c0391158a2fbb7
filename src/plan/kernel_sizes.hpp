// The sizes that are compiled into kernels, and fix no bits. tuning.hpp has the thresholds, and says how all were
// measured.
#pragma once

#include <cstddef>

namespace evenorm::internal {

inline constexpr std::size_t kCacheLine = 64;  // bytes

// --- the forward pass

// Short rows whose statistics are finished together. 65536 x 32: 1.23 of oneDNN's speed; 0.78 if finished one by one.
inline constexpr std::size_t kMaxGroup = 8;
// The loop that groups of short rows go through.
enum class GroupLoop : unsigned char {
  any,     // sums and the normalise step alternate, or follow each other
  few,     // full groups of at most kFewRows rows: one loop sums a row and normalises another
  narrow,  // the same for full groups of kMaxGroup rows of at most kStep columns
};
inline constexpr std::size_t kFewRows = 4;
// Groups in the pipeline: summed, finished, normalised. 65536 x 32: 524 us; 678 if finished right after the sums.
inline constexpr std::size_t kGroups = 3;
// Columns that are normalised, then summed, alternately. 8192 x 2048: 64 or 128 2.8 ms, 512 or 1024 4.4 to 4.7, rows
// 3.15.
inline constexpr std::size_t kStep = 128;

// Lines (plan/lines.hpp) that are summed at once across vectors: 128 take 0.91 and 0.79 of the time of 64 for
// (8, 320, 64, 64) and (1, 128, 256, 256). Positions of a lane for which their lanes stay in registers; positions whose
// lines are normalised together.
inline constexpr std::size_t kLinesAtOnce = 128, kPositionsOfLane = 8, kPositionsTogether = 8;
// Bytes of lines across vectors that stay in L1: they are summed lane by lane, and normalised line by line.
inline constexpr std::size_t kNearBytes = 32768;

// --- the backward pass

// Rows that are summed together, if L1 holds them. Their dx follows tile by tile, with chains in registers.
inline constexpr std::size_t kNarrowRows = 8;
// Short rows with precomputed statistics in one call. Not measured apart.
inline constexpr std::size_t kMaxShortRows = 32;

}  // namespace evenorm::internal
