// dx, and what rows add to dgamma and dbeta: chains of kChainRows rows in the arithmetic's type, then wide sums.
// Included once per target.
#pragma once

#include "kernels/convert-inl.h"
#include "kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// A vector of a chain, added to wide sums of columns.
HWY_INLINE void AddToColumns(hn::Vec<DF64> chain, double* sums, size_t low, size_t c) {
  using W = Paired<DF64>;
  W total = LoadColumns<W>(sums, low, c);
  AccumulateSum(DF64(), total, chain);
  StoreColumns(total, sums, low, c);
}
HWY_INLINE void AddToColumns(hn::Vec<DF32> chain, double* sums, size_t, size_t c) {
  const DF64 d;
#if HWY_TARGET == HWY_SCALAR
  hn::StoreU(hn::Add(hn::LoadU(d, sums + c), hn::PromoteTo(d, chain)), d, sums + c);
#else
  hn::StoreU(hn::Add(hn::LoadU(d, sums + c), LowerToF64(chain)), d, sums + c);
  double* upper = sums + c + hn::Lanes(d);
  hn::StoreU(hn::Add(hn::LoadU(d, upper), UpperToF64(chain)), d, upper);
#endif
}

// What becomes of a chain with these rows: it begins with them, it ends with them and is added to the columns.
enum class Chain { none, begin, middle, end, whole };

template <class T, size_t kRows>
struct DxRows {
  const T* x[kRows];
  const T* dy[kRows];
  T* dx[kRows];
};

// dx of kRows rows, and their sums over rows.
template <class T, size_t kRows, Chain kChain>
class DxAndColumns {
  using A = Arithmetic<T>;
  using D = hn::ScalableTag<A>;
  using V = hn::Vec<D>;
  static constexpr size_t kN = hn::MaxLanes(D());

 public:
  HWY_INLINE DxAndColumns(const DxRows<T, kRows>& rows, const A* gamma, const GradientMapScalarsOfRows<A>& scalars,
                          size_t first, const GradientColumns<A>& columns)
      : rows_(rows), gamma_(gamma), columns_(columns), watch_(hn::Zero(D())) {
    const D d;
    for (size_t r = 0; r < kRows; ++r) {
      const GradientMapScalars<A> s = scalars.of(first + r);
      centre_[r] = hn::Set(d, s.centre);
      offset_[r] = hn::Set(d, s.offset);
      rstd_[r] = hn::Set(d, s.rstd);
      k2_[r] = hn::Set(d, s.k2);
      a_[r] = hn::Set(d, s.a);
    }
  }

  // As many of n columns as fill vectors, by twos; returns how many. kStream: non-temporal stores; dx is then aligned
  // to a whole vector.
  template <bool kStream>
  HWY_INLINE size_t Run(size_t n) {
    size_t c = 0;
    if constexpr (kRows > 1) {
      for (; c + 4 * kN <= n; c += 4 * kN) Step<4, kStream, false>(c, 0);
    }
#pragma GCC unroll 1
    for (; c + 2 * kN <= n; c += 2 * kN) Step<2, kStream, false>(c, 0);
    return c;
  }
  // `left` columns from column c on, fewer than two vectors hold.
  HWY_INLINE void RunTail(size_t c, size_t left) { Step<2, false, true>(c, left); }

  // Whether all of dx is finite, before it is rounded to T.
  HWY_INLINE bool IsFinite() const { return hn::AllTrue(D(), hn::Eq(watch_, hn::Zero(D()))); }

 private:
  static constexpr bool kEnds = kChain == Chain::end || kChain == Chain::whole;

  // kVectors vectors from column c on. kPart: `left` columns, fewer than these hold.
  template <size_t kVectors, bool kStream, bool kPart>
  HWY_INLINE void Step(size_t c, size_t left) {
    const D d;
    const auto left_of = [&](size_t v) { return left > v * kN ? left - v * kN : 0; };
    const auto load = [&](const auto* from, size_t v) HWY_ATTR {
      if constexpr (kPart) return LoadFirst(d, from + c + v * kN, left_of(v));
      return LoadArithmetic(d, from + c + v * kN);
    };
    V dgamma[kVectors], dbeta[kVectors], scale[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      scale[v] = load(gamma_, v);
      dgamma[v] = dbeta[v] = hn::Zero(d);
      if ((kChain == Chain::middle || kChain == Chain::end) && !(kPart && left_of(v) == 0)) {
        dgamma[v] = hn::LoadU(d, columns_.dgamma_chain + c + v * kN);
        dbeta[v] = hn::LoadU(d, columns_.dbeta_chain + c + v * kN);
      }
    }
#pragma GCC unroll 1  // of several rows, the compiler would mix them, and run out of registers
    for (size_t r = 0; r < kRows; ++r) {
      V dx[kVectors];
      for (size_t v = 0; v < kVectors; ++v) {
        const V dy = load(rows_.dy[r], v), difference = hn::Sub(centre_[r], load(rows_.x[r], v));
        if constexpr (kChain != Chain::none) {
          const V xhat = NegatedFma(d, difference, rstd_[r], offset_[r]);
          dgamma[v] = Fma(d, dy, xhat, dgamma[v]);
          dbeta[v] = hn::Add(dbeta[v], dy);
        }
        dx[v] = Fma(d, hn::Mul(dy, scale[v]), rstd_[r], Fma(d, difference, k2_[r], a_[r]));
        watch_ = hn::Or(watch_, hn::Sub(dx[v], dx[v]));
      }
      for (size_t v = 0; v < kVectors; v += kPart ? 1 : 2) {
        if constexpr (kPart) {
          StoreFirst(dx[v], d, rows_.dx[r] + c + v * kN, left_of(v));
        } else {
          StorePair<kStream>(dx[v], dx[v + 1], d, rows_.dx[r] + c + v * kN);
        }
      }
    }
    for (size_t v = 0; kChain != Chain::none && v < kVectors; ++v) {
      const size_t at = c + v * kN;
      if (kPart && left_of(v) == 0) break;
      if constexpr (!kEnds) {  // there is room for whole lines
        hn::StoreU(dgamma[v], d, columns_.dgamma_chain + at);
        hn::StoreU(dbeta[v], d, columns_.dbeta_chain + at);
      } else if constexpr (kPart) {
        AddFirst(dgamma[v], columns_.sums.dgamma + at, left_of(v));
        AddFirst(dbeta[v], columns_.sums.dbeta + at, left_of(v));
      } else {
        AddToColumns(dgamma[v], columns_.sums.dgamma, columns_.sums.low, at);
        AddToColumns(dbeta[v], columns_.sums.dbeta, columns_.sums.low, at);
      }
    }
  }

  // The first n lanes of a chain to their columns, one by one.
  HWY_INLINE void AddFirst(V chain, double* sums, size_t n) const {
    HWY_ALIGN A lanes[kN];
    hn::Store(chain, D(), lanes);
    const DScalar d;
    for (size_t i = 0; i < n && i < kN; ++i) {
      auto total = Wide<A, DScalar>::From(d, hn::Set(d, sums[i]), hn::Set(d, sums[columns_.sums.low + i]));
      AccumulateSum(d, total, hn::Set(d, static_cast<double>(lanes[i])));
      sums[i] = hn::GetLane(total.hi);
      if (columns_.sums.low != 0) sums[columns_.sums.low + i] = hn::GetLane(total.Low(d));
    }
  }

  const DxRows<T, kRows> rows_;  // a copy, whose pointers can stay in registers
  const A* gamma_;
  const GradientColumns<A> columns_;
  V centre_[kRows], offset_[kRows], rstd_[kRows], k2_[kRows], a_[kRows];
  V watch_;  // 0, or NaN; by bits, since a chain of additions would be waited for
};

// Out of line, with vectors of its own: those of the loop stay in registers.
template <class T, size_t kRows, Chain kChain, class A = Arithmetic<T>>
HWY_NOINLINE bool DxOfTail(const DxRows<T, kRows>& rows, const A* gamma, size_t c, size_t left,
                           const GradientMapScalarsOfRows<A>& scalars, size_t first,
                           const GradientColumns<A>& columns) {
  DxAndColumns<T, kRows, kChain> work(rows, gamma, scalars, first, columns);
  work.RunTail(c, left);
  return work.IsFinite();
}

// n columns of kRows rows. Whether all of dx is finite.
template <class T, size_t kRows, Chain kChain, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP bool DxOfRows(const DxRows<T, kRows>& rows, const A* gamma, size_t n,
                                  const GradientMapScalarsOfRows<A>& scalars, size_t first,
                                  const GradientColumns<A>& columns, bool stream) {
  for (size_t r = 0; r < kRows; ++r) stream = stream && IsAlignedToVector(rows.dx[r]);
  DxAndColumns<T, kRows, kChain> work(rows, gamma, scalars, first, columns);
  const size_t done = stream ? work.template Run<true>(n) : work.template Run<false>(n);
  const bool finite = work.IsFinite();
  return done == n ? finite
                   : DxOfTail<T, kRows, kChain>(rows, gamma, done, n - done, scalars, first, columns) && finite;
}

// The same of one row, at its place in a chain.
template <class T, class A = Arithmetic<T>>
HWY_INLINE bool DxOfRow(const GradientPiece<T>& piece, T* dx, const GradientMapScalarsOfRows<A>& scalars, size_t row,
                        const GradientColumns<A>& columns, bool begins, bool ends, bool stream) {
  const DxRows<T, 1> rows{{piece.x}, {piece.dy}, {dx}};
  const auto run = [&]<Chain kChain>() HWY_ATTR {
    return DxOfRows<T, 1, kChain>(rows, piece.gamma, piece.n, scalars, row, columns, stream);
  };
  if (columns.sums.dgamma == nullptr) return run.template operator()<Chain::none>();
  if (begins) return ends ? run.template operator()<Chain::whole>() : run.template operator()<Chain::begin>();
  return ends ? run.template operator()<Chain::end>() : run.template operator()<Chain::middle>();
}

template <class T>
bool MapGradient(const GradientPiece<T>& piece, T* dx, const GradientMapScalarsOfRows<Arithmetic<T>>& scalars,
                 const GradientColumns<Arithmetic<T>>& columns, const ChainPlace& place, bool stream) {
  return DxOfRow(piece, dx, scalars, 0, columns, place.begins, place.ends, stream);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
