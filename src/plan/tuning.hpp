// What fixes no bit: groups, steps, prefetching, thresholds. Beside each its figure, of AMD EPYC, Zen 5, avx3, f32, one
// thread; docs/lab/README.md has the runs. "Not measured apart": chosen, and only ever measured along with all else.
#pragma once

#include <cstddef>

namespace evenorm::internal {

// --- the forward pass

// Short rows whose statistics are finished together. 65536 x 32: at 1.23 of oneDNN's speed, one by one at 0.78.
inline constexpr std::size_t kMaxGroup = 8;
// Bytes of x for such a group, half of L1. Not measured apart.
inline constexpr std::size_t kGroupBytes = 24576;
// Rows of a group in the caches where sums and map are one loop, and bytes of x for it: eight are out of L1 by the time
// that they are mapped. Time beside theirs on Zen 4, 64 x 768, 4000 x 256, 512 x 160: 0.94, 0.87, 0.84; by single rows
// 0.95, 1.07, 0.98.
inline constexpr std::size_t kFewRows = 4, kFewRowsBytes = 6144;
// Groups of rows under way: summed, finished, mapped. 65536 x 32: 524 us, finished right after the sums 678.
inline constexpr std::size_t kGroups = 3;
// Columns of rows of several blocks of which the next but one is summed under a map; of longer ones the next one. 64 x
// 2048: 246 to 252 ns a row, 247 to 259 one row ahead.
inline constexpr std::size_t kFarAheadCols = 16384;
// Rows of several blocks in the caches that go together block by block, and bytes of x of them. Time beside that of one
// by one on Zen 4, avx3, 64 x 2048, 16 x 4096, 16 x 8192: 0.76, 0.84, 0.87.
inline constexpr std::size_t kLongRows = 4, kLongRowsBytes = 65536;
static_assert(2 * kLongRows <= kMaxGroup);
// The same where gamma or beta is converted at each use, for all of them at once. 32 x 50000 of bf16 with bf16 gamma
// and beta on a Xeon, avx3: 0.82 of the time of one by one, avx2 0.79; rows of f32, which need none, 1.5.
inline constexpr std::size_t kConvertedRowsBytes = 512u << 10u;
// Turns of such rows, at least, and half of what two rows ahead pays from. 4 x 4096: 0.85 of the time of one turn.
inline constexpr std::size_t kLongTurns = 4;
// Columns mapped, then columns summed, in turn. 8192 x 2048: 64 or 128 2.8 ms, 512 or 1024 4.4 to 4.7, whole rows 3.15.
inline constexpr std::size_t kStep = 128;
// Bytes from the sums to where x is fetched. 2048 x 4096: 3.2 ms without, 1.9 so; 3072 has half of that gain, 512 none.
inline constexpr std::size_t kFetchAhead = 6144;

// Bytes of x from rows that lie side by side to those that are fetched under their map.
inline constexpr std::size_t kPlanarAhead = 24576;

// Bytes of short rows that are quantised together. 60 x 768: 112 ns a row, 8192 120, one by one 127.
inline constexpr std::size_t kValueBytes = 16384;

// --- both passes

// Columns of a parameter that are gathered before they are converted: 1 KiB. Not measured apart.
inline constexpr std::size_t kRawColumns = 256;
// Rows of a tile of less than whole rows: a cache line of 16-bit elements. (8, 2048, 14, 14) over axis 1: 2.3 ms, half
// lines 3.0. Whole rows of x: 16 in place of 32, so within L1, are no faster.
inline constexpr std::size_t kMaxTileRows = 32;
// Columns by which such tiles differ. Not measured apart.
inline constexpr std::size_t kTileStep = 128;
// Bytes of a row from which on a ring of sums pays, where they are written past the caches. 4096 x 768: 970 us with a
// ring, 1,275 without; 65536 x 32, 128 bytes: 1,590 and 1,217.
inline constexpr std::size_t kLeastStreamed = 256;
// Bytes of an output from which on it is written past the caches, at most, and as a share of the last cache: with 32
// MiB 25 % at 12 MiB (4096 x 768), -5 % at 3. No dx gains.
inline constexpr std::size_t kStreamBytes = 8u << 20u, kLastToStream = 4;
// Bytes of x from which on it is fetched ahead, and dy as well, at most, and in second caches: with 1 MiB 10 to 20 % of
// a backward pass; below, up to -10 %.
inline constexpr std::size_t kFetchBytes = 4u << 20u, kSecondToFetch = 4;

// --- the backward pass

// Rows that are summed, and their scalars computed, before dx of the first one, and bytes of such a row: x and dy of all
// of them stay in L1.
inline constexpr std::size_t kGradientRows = 8, kGroupedRowBytes = 1024;
// Columns of such rows up to which their dx is computed side by side, with the chains in registers. Not measured apart.
inline constexpr std::size_t kNarrowColumns = 128;
// Short rows a call. Not measured apart.
inline constexpr std::size_t kMaxShortRows = 32;
// Columns of long or staged rows that are done at once: in L1, and whole chains. Not measured apart.
template <class A>
inline constexpr std::size_t kGradientPiece = sizeof(A) == 8 ? 128 : 512;

// --- threads

// So that a slow thread holds nobody up. Not measured apart.
inline constexpr std::size_t kTasksPerThread = 4;

}  // namespace evenorm::internal
