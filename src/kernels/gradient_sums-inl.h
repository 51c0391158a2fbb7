// A row's sums for the backward pass: of g = dy gamma and of g (centre - x), added along short chains in the
// arithmetic's type, then in wide lanes. Included once per target.
#pragma once

#include "kernels/convert-inl.h"
#include "kernels/fold-inl.h"

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

// What lines add to wide lanes l, in the arithmetic's type: the sums of lanes l and l + 8.
template <class A>
struct GradientHalves {
  using D = hn::CappedTag<A, kWideLanes>;
  static constexpr size_t kVectors = kWideLanes / hn::MaxLanes(D());

  hn::Vec<D> g[kVectors], gd[kVectors];
};
template <class V, class Half>
HWY_INLINE void AddHalves(const V* line, Half* to) {
  constexpr size_t kVectors = kWideLanes / hn::MaxLanes(hn::DFromV<V>());
  if constexpr (kVectors != 0) {
    for (size_t v = 0; v < kVectors; ++v) to[v] = hn::Add(line[v], line[v + kVectors]);
  } else {
    const hn::Half<hn::DFromV<V>> half;
    to[0] = hn::Add(hn::LowerHalf(half, line[0]), UpperHalf(half, line[0]));
  }
}

// One vector of each of at most kChainLines lines. Products are added in pairs, which halves the chain of their
// roundings.
template <class V>
struct LineSums {
  HWY_INLINE void AddLine(size_t line, V product, V difference) {
    const hn::DFromV<V> d;
    g = line == 0 ? product : hn::Add(g, product);
    V& sum = line < 2 ? first : second;
    sum = line % 2 == 0 ? hn::Mul(product, difference) : Fma(d, product, difference, sum);
  }
  HWY_INLINE V Products(size_t lines) const { return lines > 2 ? hn::Add(first, second) : first; }

  V g, first, second;
};

// kPart: the last line has but `left` columns; those that do not exist count as 0.
template <size_t kLines, bool kPart, class T, class A = Arithmetic<T>, class V = hn::Vec<hn::ScalableTag<A>>>
HWY_INLINE GradientHalves<A> SumLines(const T* x, const T* dy, const A* gamma, size_t left, V centre) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kVectors = kLanes / kN;
  LineSums<V> sums[kVectors];
  HWY_UNROLL(4)
  for (size_t line = 0; line < kLines; ++line) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t c = line * kLanes + v * kN;
      const auto load = [&](const auto* from) HWY_ATTR {
        if (!kPart || line + 1 != kLines) return LoadArithmetic(d, from + c);
        return LoadFirst(d, from + c, left > v * kN ? left - v * kN : 0);
      };
      sums[v].AddLine(line, hn::Mul(load(dy), load(gamma)), hn::Sub(centre, load(x)));
    }
  }
  V g[kVectors], gd[kVectors];
  for (size_t v = 0; v < kVectors; ++v) g[v] = sums[v].g, gd[v] = sums[v].Products(kLines);
  GradientHalves<A> halves;
  AddHalves(g, halves.g);
  AddHalves(gd, halves.gd);
  return halves;
}

template <bool kPart, class T, class A = Arithmetic<T>, class V = hn::Vec<hn::ScalableTag<A>>>
EVENORM_INLINE_LOOP GradientHalves<A> SumFewLines(size_t lines, const T* x, const T* dy, const A* gamma, size_t left,
                                                  V centre) {
  static_assert(kChainLines == 4);
  if constexpr (kPart) {
    if (lines == 4) return SumLines<4, kPart>(x, dy, gamma, left, centre);
  }
  if (lines == 1) return SumLines<1, kPart>(x, dy, gamma, left, centre);
  if (lines == 2) return SumLines<2, kPart>(x, dy, gamma, left, centre);
  return SumLines<3, kPart>(x, dy, gamma, left, centre);
}
// n columns, the last line of them partly, that are no more than a chain.
template <class T, class A = Arithmetic<T>>
HWY_NOINLINE GradientHalves<A> SumPartOfLines(const T* x, const T* dy, const A* gamma, A centre, size_t n) {
  return SumFewLines<true>(n / kLanes + 1, x, dy, gamma, n % kLanes, hn::Set(hn::ScalableTag<A>(), centre));
}

template <class Half>
HWY_INLINE void AddToWideLanes(const Half* halves, V64* lanes) {
  const DF64 d;
  using A = hn::TFromV<Half>;
  for (size_t v = 0; v < GradientHalves<A>::kVectors; ++v) {
    if constexpr (std::is_same_v<A, double>) {
      lanes[v] = hn::Add(lanes[v], halves[v]);
    } else if constexpr (hn::MaxLanes(d) == hn::MaxLanes(hn::DFromV<Half>())) {
      lanes[v] = hn::Add(lanes[v], hn::PromoteTo(d, halves[v]));
    } else {
      lanes[2 * v] = hn::Add(lanes[2 * v], LowerToF64(halves[v]));
      lanes[2 * v + 1] = hn::Add(lanes[2 * v + 1], UpperToF64(halves[v]));
    }
  }
}
template <class A>
HWY_INLINE void AddToLanes(const GradientHalves<A>& sums, GradientSumLanes& lanes) {
  AddToWideLanes(sums.g, lanes.g);
  AddToWideLanes(sums.gd, lanes.gd);
}

// n columns, no more than a block; all but the last call of a block take whole chains.
template <class T, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP void AddRow(const T* x, const T* dy, const A* gamma, A centre, size_t n, size_t ahead,
                                GradientSumLanes& lanes) {
  constexpr size_t kChain = kChainLines * kLanes;
  const auto k = hn::Set(hn::ScalableTag<A>(), centre);
  size_t c = 0;
#pragma GCC unroll 1
  for (; c + kChain <= n; c += kChain) {
    if (ahead != 0) {
      PrefetchBehind(x + c, kChain * sizeof(T), ahead);
      PrefetchBehind(dy + c, kChain * sizeof(T), ahead);
    }
    AddToLanes(SumLines<kChainLines, false>(x + c, dy + c, gamma + c, 0, k), lanes);
  }
  if (c == n) return;
  AddToLanes((n - c) % kLanes == 0 ? SumFewLines<false>((n - c) / kLanes, x + c, dy + c, gamma + c, 0, k)
                                   : SumPartOfLines(x + c, dy + c, gamma + c, centre, n - c),
             lanes);
}

template <class T>
void SumGradients(const GradientPiece<T>& piece, Arithmetic<T> centre, bool is_first, GradientLanes* sums) {
  GradientSumLanes lanes;
  is_first ? lanes.Clear() : lanes.Load(*sums);
  AddRow(piece.x, piece.dy, piece.gamma, centre, piece.n, piece.ahead, lanes);
  lanes.Store(*sums);
}

// The same of a whole block.
template <class T, class A = Arithmetic<T>>
HWY_INLINE GradientSumLanes RowLanes(const T* x, const T* dy, const A* gamma, A centre, size_t n, size_t ahead) {
  GradientSumLanes lanes;
  lanes.Clear();
  AddRow(x, dy, gamma, centre, n, ahead, lanes);
  return lanes;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
