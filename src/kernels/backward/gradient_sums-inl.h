// A row's sums for the backward pass: of g = dy gamma and of g (centre - x), added along short chains in the
// arithmetic's type, then in wide lanes. Included once per target.
#pragma once

#include "kernels/fold-inl.h"
#include "kernels/move/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

inline constexpr size_t kWideLanes = kLanes / 2;  // lanes l and l + 8 are added before they are widened

// A row's sums over at most a block.
struct GradientSumLanes {
  static constexpr size_t kN = hn::MaxLanes(DF64()), kVectors = kWideLanes / kN;

  HWY_INLINE void Clear() {
    for (size_t v = 0; v < kVectors; ++v) g[v] = gd[v] = hn::Zero(DF64());
  }
  HWY_INLINE void Load(const GradientLanes& from) {
    for (size_t v = 0; v < kVectors; ++v) {
      g[v] = hn::Load(DF64(), from.g + v * kN);
      gd[v] = hn::Load(DF64(), from.gd + v * kN);
    }
  }
  HWY_INLINE void Store(GradientLanes& to) const {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(g[v], DF64(), to.g + v * kN);
      hn::Store(gd[v], DF64(), to.gd + v * kN);
    }
  }

  V64 g[kVectors], gd[kVectors];
};

// Adds the lanes of a slice, kLanes columns, to wide lanes: l and l + 8 to wide lane l.
template <class V>
HWY_INLINE void AddToWideLanes(const V* slice, V64* lanes) {
  constexpr size_t kN = hn::MaxLanes(hn::DFromV<V>()), kN64 = hn::MaxLanes(DF64());
  const auto add = [&](auto both, size_t first) HWY_ATTR {
    ForEachF64(both, [&](V64 v, size_t at) HWY_ATTR {
      V64& sum = lanes[(first + at) / kN64];
      sum = hn::Add(sum, v);
    });
  };
  if constexpr (kN == kLanes) {
    const hn::Half<hn::DFromV<V>> half;
    add(hn::Add(LowerHalf(half, slice[0]), UpperHalf(half, slice[0])), 0);
  } else {
    for (size_t v = 0; v < kWideLanes / kN; ++v) add(hn::Add(slice[v], slice[v + kWideLanes / kN]), v * kN);
  }
}

// One vector of each of at most kChainSlices slices. Products are added in pairs, which halves the chain of their
// roundings.
template <class V>
struct SliceSums {
  HWY_INLINE void AddSlice(size_t slice, V product, V difference) {
    const hn::DFromV<V> d;
    g = slice == 0 ? product : hn::Add(g, product);
    V& sum = slice < 2 ? first : second;
    sum = slice % 2 == 0 ? hn::Mul(product, difference) : Fma(d, product, difference, sum);
  }
  HWY_INLINE V Products(size_t slices) const { return slices > 2 ? hn::Add(first, second) : first; }

  V g, first, second;
};

// Adds kSlices slices, at most a chain. kPart: the last one has only `left` columns; missing ones count as 0.
template <size_t kSlices, bool kPart, class T, class A = Arithmetic<T>, class V = hn::Vec<hn::ScalableTag<A>>>
HWY_INLINE void AddSlices(const T* x, const T* dy, const A* gamma, size_t left, V centre, GradientSumLanes& lanes) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kVectors = kLanes / kN;
  SliceSums<V> sums[kVectors];
  HWY_UNROLL(4)
  for (size_t slice = 0; slice < kSlices; ++slice) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t c = slice * kLanes + v * kN;
      const auto load = [&](const auto* from) HWY_ATTR {
        if (!kPart || slice + 1 != kSlices) return LoadArithmetic(d, from + c);
        return LoadFirst(d, from + c, LeftFrom(v * kN, left));
      };
      sums[v].AddSlice(slice, hn::Mul(load(dy), load(gamma)), hn::Sub(centre, load(x)));
    }
  }
  V g[kVectors], gd[kVectors];
  for (size_t v = 0; v < kVectors; ++v) g[v] = sums[v].g, gd[v] = sums[v].Products(kSlices);
  AddToWideLanes(g, lanes.g);
  AddToWideLanes(gd, lanes.gd);
}
// Adds `slices` slices, from 1 to kMost.
template <size_t kMost, bool kPart, class T, class A = Arithmetic<T>, class V = hn::Vec<hn::ScalableTag<A>>>
EVENORM_INLINE_LOOP void AddFewSlices(size_t slices, const T* x, const T* dy, const A* gamma, size_t left, V centre,
                                      GradientSumLanes& lanes) {
  if constexpr (kMost > 1) {
    if (slices != kMost) return AddFewSlices<kMost - 1, kPart>(slices, x, dy, gamma, left, centre, lanes);
  }
  AddSlices<kMost, kPart>(x, dy, gamma, left, centre, lanes);
}

// n columns, no more than a block; all but the last call of a block take whole chains.
template <class T, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP void AddRow(const T* x, const T* dy, const A* gamma, A centre, size_t n, size_t ahead,
                                GradientSumLanes& lanes) {
  constexpr size_t kChain = kChainSlices * kLanes;
  const auto k = hn::Set(hn::ScalableTag<A>(), centre);
  size_t c = 0;
#pragma GCC unroll 1
  for (; c + kChain <= n; c += kChain) {
    if (ahead != 0) {
      PrefetchBehind(x + c, kChain * sizeof(T), ahead);
      PrefetchBehind(dy + c, kChain * sizeof(T), ahead);
    }
    AddSlices<kChainSlices, false>(x + c, dy + c, gamma + c, 0, k, lanes);
  }
  if (c == n) return;
  if ((n - c) % kLanes == 0) {
    AddFewSlices<kChainSlices - 1, false>((n - c) / kLanes, x + c, dy + c, gamma + c, 0, k, lanes);
  } else {
    AddFewSlices<kChainSlices, true>((n - c) / kLanes + 1, x + c, dy + c, gamma + c, n % kLanes, k, lanes);
  }
}

// Not inlined, because several kernels share it.
template <class T>
HWY_NOINLINE void SumGradients(const GradientPiece<T>& piece, Arithmetic<T> centre, bool is_first,
                               GradientLanes* sums) {
  GradientSumLanes lanes;
  is_first ? lanes.Clear() : lanes.Load(*sums);
  AddRow(piece.x, piece.dy, piece.gamma, centre, piece.n, piece.ahead, lanes);
  lanes.Store(*sums);
}

// The sums of a whole block. kInline: without a call.
template <bool kInline, class T, class A = Arithmetic<T>>
HWY_INLINE GradientSumLanes RowLanes(const GradientPiece<T>& piece, A centre) {
  GradientSumLanes lanes;
  if constexpr (kInline) {
    lanes.Clear();
    AddRow(piece.x, piece.dy, piece.gamma, centre, piece.n, piece.ahead, lanes);
  } else {
    GradientLanes sums;
    SumGradients(piece, centre, true, &sums);
    lanes.Load(sums);
  }
  return lanes;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
