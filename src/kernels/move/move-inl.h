// Transpositions between a channels-first tensor and a tile. Elements are moved unchanged, whatever their type.
// Included once per target.
#pragma once

#include <hwy/highway.h>

#include "kernels/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Loads and stores of the 128-bit blocks of a vector, which are `stride` bytes apart in memory.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const char* from, std::ptrdiff_t stride) {
  if constexpr (sizeof(hn::Vec<D>) == 16) {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
  } else {
    const hn::Half<D> half;
    constexpr std::ptrdiff_t kBlocks = sizeof(hn::Vec<D>) / 32;
    return hn::Combine(d, LoadBlocks(half, from + kBlocks * stride, stride), LoadBlocks(half, from, stride));
  }
}
template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, char* to, std::ptrdiff_t stride) {
  if constexpr (sizeof(hn::Vec<D>) == 16) {
    hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  } else {
    const hn::Half<D> half;
    constexpr std::ptrdiff_t kBlocks = sizeof(hn::Vec<D>) / 32;
    StoreBlocks(half, hn::LowerHalf(half, v), to, stride);
    StoreBlocks(half, hn::UpperHalf(half, v), to + kBlocks * stride, stride);
  }
}

// Moves as many rows as a vector has lanes, and as many columns as a 128-bit block has. They are squares, one in each
// block. Rounds of interleaving the first half of the vectors with the second half transpose them.
template <Move kMove, bool kStream, class D>
HWY_INLINE void MoveSquares(D d, char* tensor, std::ptrdiff_t col_stride, char* tile, std::ptrdiff_t tile_stride) {
  using U = hn::TFromD<D>;
  constexpr size_t kN = 16 / sizeof(U);
  const auto column = [&](size_t i) {
    return reinterpret_cast<U*>(tensor + static_cast<std::ptrdiff_t>(i) * col_stride);
  };
  const auto row = [&](size_t i) { return tile + static_cast<std::ptrdiff_t>(i) * tile_stride; };
  hn::Vec<D> v[kN];
  for (size_t i = 0; i < kN; ++i) {
    v[i] = kMove == Move::gather ? hn::LoadU(d, column(i)) : LoadBlocks(d, row(i), kN * tile_stride);
  }
  for (size_t round = 1; round < kN; round *= 2) {
    hn::Vec<D> w[kN];
    for (size_t i = 0; i < kN / 2; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + kN / 2]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kN / 2]);
    }
    for (size_t i = 0; i < kN; ++i) v[i] = w[i];
  }
  for (size_t i = 0; i < kN; ++i) {
    if constexpr (kMove == Move::gather) {
      StoreBlocks(d, v[i], row(i), kN * tile_stride);
    } else {
      kStream ? hn::Stream(v[i], d, column(i)) : hn::StoreU(v[i], d, column(i));
    }
  }
}

// Moves the squares of a channels-first plane. The caller moves what they leave at the right and at the bottom.
template <Move kMove, bool kStream, class U>
HWY_INLINE void MoveAllSquares(const Plane& p, char* tile, size_t tile_stride) {
  const hn::ScalableTag<U> d;
  const hn::Full128<U> d128;
  constexpr size_t kN = 16 / sizeof(U), kLanesD = hn::MaxLanes(d);
  const size_t rows = p.rows / kN * kN, cols = p.cols / kN * kN;
  const auto stride = static_cast<std::ptrdiff_t>(tile_stride);
  for (size_t c = 0; c < cols; c += kN) {
    char* tensor = p.data + static_cast<std::ptrdiff_t>(c) * p.col_stride;
    char* squares = tile + c * sizeof(U);
    size_t r = 0;
    for (; r + kLanesD <= rows; r += kLanesD) {
      MoveSquares<kMove, kStream>(d, tensor + r * sizeof(U), p.col_stride, squares + r * tile_stride, stride);
    }
    for (; r < rows; r += kN) {
      MoveSquares<kMove, kStream>(d128, tensor + r * sizeof(U), p.col_stride, squares + r * tile_stride, stride);
    }
  }
}

#endif

// Returns the side of the squares that were moved; fewer rows and columns than a side remain. 0: nothing was moved.
// stream: with non-temporal stores, if whole cache lines are written.
template <class U>
size_t MoveTransposed(const Plane& p, Move move, bool stream, char* tile, size_t tile_stride) {
#if HWY_TARGET == HWY_SCALAR
  (void)p, (void)move, (void)stream, (void)tile, (void)tile_stride;
  return 0;
#else
  const auto places = reinterpret_cast<uintptr_t>(p.data) | static_cast<uintptr_t>(p.col_stride) | p.rows * sizeof(U);
  if (move == Move::gather) {
    MoveAllSquares<Move::gather, false, U>(p, tile, tile_stride);
  } else if (stream && places % 64 == 0) {
    MoveAllSquares<Move::scatter, true, U>(p, tile, tile_stride);
  } else {
    MoveAllSquares<Move::scatter, false, U>(p, tile, tile_stride);
  }
  return 16 / sizeof(U);
#endif
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
