// A row's sums for the backward pass: of g = dy gamma and of g (centre - x), added along short chains in the
// arithmetic's type, then in wide lanes. Included once per target.
#pragma once

#include "kernels/convert-inl.h"
#include "kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

inline constexpr size_t kWideLanes = kLanes / 2;  // lanes l and l + 8 are added before they are widened

// A row's sums over at most a block.
template <class A>
struct GradientSumLanes {
  using W = Wide<A, DF64>;
  static constexpr size_t kN = hn::MaxLanes(DF64()), kVectors = kWideLanes / kN;

  HWY_INLINE void Clear() {
    for (size_t v = 0; v < kVectors; ++v) g[v] = gd[v] = W::Zero(DF64());
  }
  HWY_INLINE void Load(const GradientLanes& from) {
    for (size_t v = 0; v < kVectors; ++v) {
      g[v] = LoadColumns<W>(from.g_hi, kLow, v * kN);
      gd[v] = LoadColumns<W>(from.gd_hi, kLow, v * kN);
    }
  }
  HWY_INLINE void Store(GradientLanes& to) const {
    for (size_t v = 0; v < kVectors; ++v) {
      StoreColumns(g[v], to.g_hi, kLow, v * kN);
      StoreColumns(gd[v], to.gd_hi, kLow, v * kN);
    }
  }

  W g[kVectors], gd[kVectors];

 private:
  static constexpr size_t kLow = std::is_same_v<A, double> ? kWideLanes : 0;  // from a high part to its low part
};

// A line's vectors, one for each of kLanes lanes: lanes l and l + 8 are added, and their sum to wide lane l.
HWY_INLINE void AddToWideLanes(const hn::Vec<DF64>* line, Paired<DF64>* lanes) {
  constexpr size_t kVectors = kWideLanes / hn::MaxLanes(DF64());
  for (size_t v = 0; v < kVectors; ++v) AccumulateSum(DF64(), lanes[v], hn::Add(line[v], line[v + kVectors]));
}
HWY_INLINE void AddToWideLanes(const hn::Vec<DF32>* line, Plain<DF64>* lanes) {
  const DF64 d;
#if HWY_TARGET == HWY_SCALAR
  for (size_t v = 0; v < kWideLanes; ++v) {
    AccumulateSum(d, lanes[v], hn::PromoteTo(d, hn::Add(line[v], line[v + kWideLanes])));
  }
#else
  constexpr size_t kN = hn::MaxLanes(DF32());
  if constexpr (kN == kLanes) {
    const hn::Half<DF32> half;
    AccumulateSum(d, lanes[0], hn::PromoteTo(d, hn::Add(hn::LowerHalf(half, line[0]), hn::UpperHalf(half, line[0]))));
  } else {
    constexpr size_t kVectors = kWideLanes / kN;
    for (size_t v = 0; v < kVectors; ++v) {
      const auto sum = hn::Add(line[v], line[v + kVectors]);
      AccumulateSum(d, lanes[2 * v], LowerToF64(sum));
      AccumulateSum(d, lanes[2 * v + 1], UpperToF64(sum));
    }
  }
#endif
}

// At most kChainLines lines. Products are added in pairs, which halves the chain of their roundings. kPart: the last
// line has but `left` columns; those that do not exist count as 0.
template <size_t kLines, bool kPart, class T, class A = Arithmetic<T>, class V = hn::Vec<hn::ScalableTag<A>>>
HWY_INLINE void AddLines(const T* x, const T* dy, const A* gamma, size_t left, V centre, GradientSumLanes<A>& lanes) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kVectors = kLanes / kN;
  V g[kVectors], gd[kVectors], pair[kVectors];
  HWY_UNROLL(4)
  for (size_t line = 0; line < kLines; ++line) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t c = line * kLanes + v * kN;
      const auto load = [&](const auto* from) HWY_ATTR {
        if (!kPart || line + 1 != kLines) return LoadArithmetic(d, from + c);
        return LoadFirst(d, from + c, left > v * kN ? left - v * kN : 0);
      };
      const V product = hn::Mul(load(dy), load(gamma));
      const V difference = hn::Sub(centre, load(x));
      g[v] = line == 0 ? product : hn::Add(g[v], product);
      V& sum = line < 2 ? gd[v] : pair[v];
      sum = line % 2 == 0 ? hn::Mul(product, difference) : Fma(d, product, difference, sum);
    }
  }
  if constexpr (kLines > 2) {
    for (size_t v = 0; v < kVectors; ++v) gd[v] = hn::Add(gd[v], pair[v]);
  }
  AddToWideLanes(g, lanes.g);
  AddToWideLanes(gd, lanes.gd);
}

template <bool kPart, class T, class A = Arithmetic<T>, class V = hn::Vec<hn::ScalableTag<A>>>
HWY_INLINE void AddFewLines(size_t lines, const T* x, const T* dy, const A* gamma, size_t left, V centre,
                            GradientSumLanes<A>& lanes) {
  static_assert(kChainLines == 4);
  if (lines == 1) return AddLines<1, kPart>(x, dy, gamma, left, centre, lanes);
  if (lines == 2) return AddLines<2, kPart>(x, dy, gamma, left, centre, lanes);
  if (lines == 3) return AddLines<3, kPart>(x, dy, gamma, left, centre, lanes);
  if constexpr (kPart) AddLines<4, kPart>(x, dy, gamma, left, centre, lanes);
}

// n columns, the last line of them partly, that are no whole chain.
template <class T, class A = Arithmetic<T>>
HWY_NOINLINE void AddPartOfLines(const T* x, const T* dy, const A* gamma, A centre, size_t n,
                                 GradientSumLanes<A>& lanes) {
  AddFewLines<true>(n / kLanes + 1, x, dy, gamma, n % kLanes, hn::Set(hn::ScalableTag<A>(), centre), lanes);
}

// n columns, no more than a block; all but the last call of a block take whole chains.
template <class T, class A = Arithmetic<T>>
HWY_INLINE void AddRow(const T* x, const T* dy, const A* gamma, A centre, size_t n, size_t ahead,
                       GradientSumLanes<A>& lanes) {
  constexpr size_t kChain = kChainLines * kLanes;
  const auto k = hn::Set(hn::ScalableTag<A>(), centre);
  size_t c = 0;
#pragma GCC unroll 1
  for (; c + kChain <= n; c += kChain) {
    if (ahead != 0) {
      FetchBehind(x + c, kChain * sizeof(T), ahead);
      FetchBehind(dy + c, kChain * sizeof(T), ahead);
    }
    AddLines<kChainLines, false>(x + c, dy + c, gamma + c, 0, k, lanes);
  }
  if (c == n) return;
  if ((n - c) % kLanes == 0) return AddFewLines<false>((n - c) / kLanes, x + c, dy + c, gamma + c, 0, k, lanes);
  AddPartOfLines(x + c, dy + c, gamma + c, centre, n - c, lanes);
}

template <class T>
void SumGradients(const GradientPiece<T>& piece, Arithmetic<T> centre, bool is_first, GradientLanes* sums) {
  GradientSumLanes<Arithmetic<T>> lanes;
  is_first ? lanes.Clear() : lanes.Load(*sums);
  AddRow(piece.x, piece.dy, piece.gamma, centre, piece.n, piece.ahead, lanes);
  lanes.Store(*sums);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
