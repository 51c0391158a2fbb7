// The thresholds, which fix no bits: sizes of groups, prefetching, streaming, tasks. kernel_sizes.hpp has those that
// are compiled into kernels. Measured by default on AMD EPYC (Zen 5), avx3, f32, one thread; docs/lab/README.md has the
// runs. "Not measured apart": chosen, and only measured along with everything else.
#pragma once

#include <algorithm>
#include <cstddef>

#include "plan/kernel_sizes.hpp"

namespace evenorm::internal {

// --- the forward pass

// Bytes of x of a group: half of L1. Not measured apart.
inline constexpr std::size_t kGroupBytes = 24576;
// Bytes of x of a group in the caches, of at most kFewRows rows, if sums and normalise step are one loop. Eight rows
// have left L1 by the time they are normalised. Time relative to groups of eight on Zen 4, 64 x 768, 4000 x 256, 512 x
// 160: 0.94, 0.87, 0.84; single rows: 0.95, 1.07, 0.98.
inline constexpr std::size_t kFewRowsBytes = 6144;
// f64 takes four rows, because finishing them takes long. Time of four relative to two on Zen 3, 64 x 768: 0.93.
constexpr std::size_t few_rows(std::size_t cols, std::size_t element) {
  return element == sizeof(double) ? kFewRows : std::clamp<std::size_t>(kFewRowsBytes / (cols * element), 2, kFewRows);
}
// Rows of several blocks in the caches that are processed together block by block, and bytes of their x. Time relative
// to one by one on Zen 4, avx3, 64 x 2048, 16 x 4096, 16 x 8192: 0.76, 0.84, 0.87.
inline constexpr std::size_t kLongRows = 4, kLongRowsBytes = 65536;
static_assert(2 * kLongRows <= kMaxGroup);
// The least number of such sets of rows. 4 x 4096: 0.85 of one set's time.
inline constexpr std::size_t kLongStages = 4;
// The prefetch distance of x in bytes. 2048 x 4096: 3.2 ms without, 1.9 with it; 3072 has half of that gain, 512 none.
inline constexpr std::size_t kPrefetchAhead = 6144;

// Lines (plan/lines.hpp) of which scalars are kept.
inline constexpr std::size_t kStripLines = 512;
// Bytes of lines along vectors, bytes of rows that are lines across them, and otherwise lines across them, that are
// summed, then normalised. Half of the second: (16, 512, 7, 7) in groups of one channel 1.16 on a Xeon.
inline constexpr std::size_t kChunkBytes = 24576, kChunkBytesOfRows = 16384, kChunkLines = 4096;
// Bytes up to which the next rows are prefetched during a normalise step; otherwise positions ahead across vectors, for
// sums and for the normalise step. Time of sums 192 positions ahead relative to 64, (1, 128, 256, 256): f32 0.80, bf16
// 0.83.
inline constexpr std::size_t kMostAhead = 256u << 10u, kPositionsAhead = 192, kPositionsAheadOfStep = 16;

// --- both passes

// The least bytes of a row for which a ring of sums pays, if the sums are written with non-temporal stores. 4096 x 768:
// 970 us with a ring, 1,275 without; 65536 x 32 (128 bytes a row): 1,590 and 1,217.
inline constexpr std::size_t kLeastStreamed = 256;
// The least bytes of an output that is written with non-temporal stores: at most kStreamBytes, and the last cache /
// kLastToStream. With 32 MiB this gains 25 % at 12 MiB (4096 x 768) and loses 5 % at 3 MiB. dx is streamed from a part
// of that on, because x and dy take room in the caches, too: docs/lab/README.md, "Streaming stores and prefetching".
inline constexpr std::size_t kStreamBytes = 8u << 20u, kLastToStream = 4, kPartToStreamDx = 2;
// The least bytes of x for which x, and dy, are prefetched: the smaller of kPrefetchBytes and the second cache *
// kSecondToPrefetch. With 1 MiB of second cache this gains 10 to 20 % of a backward pass; below, it loses up to 10 %.
inline constexpr std::size_t kPrefetchBytes = 4u << 20u, kSecondToPrefetch = 4;

// --- the backward pass

// The prefetch distance of x and dy in bytes, unless the next rows are nearer. 20 x 100000: 2,048 0.93 of the time of
// 6,144, 3,072 0.86; a whole row 1.33.
inline constexpr std::size_t kGradientAhead = 3072;
// kNarrowRows rows go together if their x, dy and dx take at most this part of the first cache. Time of 64 x 256 of f32
// on a Xeon with 48 KiB 0.74; of 4096 x 256 on a Zen 3 with 32 KiB 1.25.
inline constexpr std::size_t kNarrowPercent = 67;
// Columns per piece of rows that pass through scratch, whole chains. Not measured apart.
template <class A>
inline constexpr std::size_t kGradientPiece = sizeof(A) == 8 ? 128 : 512;
// Columns that the second of two steps takes at a time: a page of each row. With half of that, 20 x 100000 takes 1.2
// times as long.
template <class A>
inline constexpr std::size_t kColumnPiece = 4096 / sizeof(A);

// The most scratch that is promised for a small x, in bytes; sets at once, as many as the pool may have threads.
// Shorter rows take one step: a second pass over x costs what threads gain. Not measured apart.
inline constexpr std::size_t kMostScratch = 256u << 10u, kMostSetsAtOnce = 256, kTwoStepCols = 1024;

// --- threads

// The least elements of a task, and the most parts of a long row, which bounds the memory for their moments.
inline constexpr std::size_t kForwardTask = 32768, kBackwardTask = 16384, kMaxParts = 512;

// Rows that one task gathers together: a cache line of 16-bit elements.
inline constexpr std::size_t kTileRows = 32;

// More tasks than threads, so that a slow thread delays no other. Not measured apart.
inline constexpr std::size_t kTasksPerThread = 4;

}  // namespace evenorm::internal
