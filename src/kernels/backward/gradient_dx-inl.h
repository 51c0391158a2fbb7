// dx, and what rows add to dgamma and dbeta: pairs of chains of kChainRows rows in the arithmetic's type, then wide
// sums. Included once per target.
#pragma once

#include "kernels/fold-inl.h"
#include "kernels/move/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class V>
HWY_INLINE void AddToColumns(V chain, double* sums) {
  const DF64 d;
  ForEachF64(chain, [&](V64 v, size_t at) HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, sums + at), v), d, sums + at); });
}

// dx, from dy, gamma and centre - x. watch becomes not finite where a dx is not.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V DxOf(D d, V dy, V gamma, V difference, V rstd, V k2, V a, V& watch) {
  const V dx = Fma(d, hn::Mul(dy, gamma), rstd, Fma(d, difference, k2, a));
  watch = hn::Add(watch, dx);
  return dx;
}

// A row's scalars in all lanes.
template <class D>
struct DxVectors {
  template <class A>
  HWY_INLINE explicit DxVectors(const DxScalars<A>& s)
      : centre(hn::Set(D(), s.centre)),
        offset(hn::Set(D(), s.offset)),
        rstd(hn::Set(D(), s.rstd)),
        k2(hn::Set(D(), s.k2)),
        a(hn::Set(D(), s.a)) {}

  hn::Vec<D> centre, offset, rstd, k2, a;
};

// kVectors vectors of columns from column c on: what rows add to them, and dx. kPart: `left` columns, fewer than these
// vectors hold.
template <class T, size_t kVectors, bool kPart>
class DxOfColumns {
  using A = Arithmetic<T>;
  using D = hn::ScalableTag<A>;
  using V = hn::Vec<D>;
  static constexpr size_t kN = hn::MaxLanes(D());

 public:
  HWY_INLINE DxOfColumns(const A* gamma, size_t c, size_t left) : c_(c), left_(left) {
    for (size_t v = 0; v < kVectors; ++v) scale_[v] = Load(gamma, v);
    Clear();
  }

  HWY_INLINE void Clear() {
    for (size_t v = 0; v < kVectors; ++v) dgamma_[v] = dbeta_[v] = hn::Zero(D());
  }
  HWY_INLINE void LoadChains(const A* dgamma, const A* dbeta) {
    for (size_t v = 0; v < kVectors; ++v) dgamma_[v] = Load(dgamma, v), dbeta_[v] = Load(dbeta, v);
  }
  HWY_INLINE void StoreChains(A* dgamma, A* dbeta) const {
    for (size_t v = 0; v < kVectors; ++v) Store(dgamma_[v], dgamma, v), Store(dbeta_[v], dbeta, v);
  }
  // Adds the first chains of a pair.
  HWY_INLINE void Add(const DxOfColumns& first) {
    for (size_t v = 0; v < kVectors; ++v) {
      dgamma_[v] = hn::Add(first.dgamma_[v], dgamma_[v]);
      dbeta_[v] = hn::Add(first.dbeta_[v], dbeta_[v]);
    }
  }
  HWY_INLINE void AddTo(const ColumnPlaces& sums) const {
    for (size_t v = 0; v < kVectors; ++v) AddTo(dgamma_[v], sums.dgamma, v), AddTo(dbeta_[v], sums.dbeta, v);
  }

  // A row. watch becomes not finite where a dx is not.
  template <bool kStream>
  HWY_INLINE void Row(const T* x, const T* dy, T* dx, const DxVectors<D>& s, V& watch) {
    const D d;
    V out[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const V y = Load(dy, v), difference = hn::Sub(s.centre, Load(x, v));
      dgamma_[v] = Fma(d, y, NegatedFma(d, difference, s.rstd, s.offset), dgamma_[v]);
      dbeta_[v] = hn::Add(dbeta_[v], y);
      out[v] = DxOf(d, y, scale_[v], difference, s.rstd, s.k2, s.a, watch);
    }
    for (size_t v = 0; v < kVectors; v += kPart ? 1 : 2) {
      if constexpr (kPart) {
        Store(out[v], dx, v);
      } else {
        StorePair<kStream>(out[v], out[v + 1], d, dx + c_ + v * kN);
      }
    }
  }

 private:
  template <class From>
  HWY_INLINE V Load(const From* from, size_t v) const {
    if constexpr (kPart) return LoadFirst(D(), from + c_ + v * kN, LeftFrom(v * kN, left_));
    return LoadArithmetic(D(), from + c_ + v * kN);
  }
  template <class To>
  HWY_INLINE void Store(V value, To* to, size_t v) const {
    if constexpr (kPart) return StoreFirst(value, D(), to + c_ + v * kN, LeftFrom(v * kN, left_));
    StoreArithmetic(value, D(), to + c_ + v * kN);
  }
  HWY_INLINE void AddTo(V chain, double* sums, size_t v) const {
    const DF64 d;
    if constexpr (!kPart) return AddToColumns(chain, sums + c_ + v * kN);
    ForEachF64(chain, [&](V64 wide, size_t at) HWY_ATTR {
      const size_t left = LeftFrom(v * kN + at, left_);
      double* const to = sums + c_ + v * kN + at;
      if (left != 0) StoreFirst(hn::Add(LoadFirst(d, to, left), wide), d, to, left);
    });
  }

  size_t c_, left_;
  V scale_[kVectors], dgamma_[kVectors], dbeta_[kVectors];
};

// Whether what has been summed is all finite; finite numbers may have a sum that is not.
template <class A, class V = hn::Vec<hn::ScalableTag<A>>>
HWY_INLINE bool AllFinite(V watch) {
  return hn::AllTrue(hn::ScalableTag<A>(), hn::Eq(hn::Sub(watch, watch), hn::Zero(hn::ScalableTag<A>())));
}

// dx of columns [c, end) of a row, two vectors at a time, and what the row adds to them. kPart: they are fewer.
// kStream: non-temporal stores; dx is then aligned to a cache line. Returns false if some of dx may not be finite.
template <bool kPart, bool kStream, class T, class A = Arithmetic<T>>
HWY_INLINE bool DxOfSpan(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                         const GradientColumns<A>& to, Chain chain, size_t c, size_t end) {
  const GradientColumns<A> columns = to;  // copies, which can stay in registers
  const T *x = piece.x, *dy = piece.dy;
  const A* gamma = piece.gamma;
  const hn::ScalableTag<A> d;
  const DxVectors<hn::ScalableTag<A>> row(scalars);
  auto watch = hn::Zero(d);
#pragma GCC unroll 1
  for (; c < end; c += 2 * hn::MaxLanes(d)) {
    DxOfColumns<T, 2, kPart> part(gamma, c, end - c), first = part;
    if (chain == Chain::middle || chain == Chain::end) part.LoadChains(columns.dgamma_chain, columns.dbeta_chain);
    part.template Row<kStream>(x, dy, dx, row, watch);
    if (chain == Chain::begin || chain == Chain::middle) part.StoreChains(columns.dgamma_chain, columns.dbeta_chain);
    if (chain == Chain::end || chain == Chain::whole) {
      if (columns.to_other < 0) {
        first.LoadChains(columns.dgamma_chain + columns.to_other, columns.dbeta_chain + columns.to_other);
        part.Add(first);
      }
      part.AddTo(columns.sums);
    }
  }
  return AllFinite<A>(watch);
}
// The columns from c on. Not inlined, with vectors of its own, so that those of whole vectors stay in registers. It
// serves every chain.
template <class T, class A = Arithmetic<T>>
HWY_NOINLINE bool DxOfTail(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                           const GradientColumns<A>& columns, Chain chain, size_t c) {
  return DxOfSpan<true, false>(piece, dx, scalars, columns, chain, c, piece.n);
}
template <class T, Chain kChain, class A = Arithmetic<T>>
HWY_NOINLINE bool DxOfRowIn(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                            const GradientColumns<A>& columns, bool stream) {
  constexpr size_t kStep = 2 * hn::MaxLanes(hn::ScalableTag<A>());
  const size_t whole = piece.n / kStep * kStep;
  const bool finite = stream && FillsLines(dx, piece.n)
                          ? DxOfSpan<false, true>(piece, dx, scalars, columns, kChain, 0, whole)
                          : DxOfSpan<false, false>(piece, dx, scalars, columns, kChain, 0, whole);
  return whole == piece.n ? finite : DxOfTail(piece, dx, scalars, columns, kChain, whole) && finite;
}

// dx of a row. Returns false if some of dx may not be finite.
template <class T, class A = Arithmetic<T>>
HWY_INLINE bool DxOfRow(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                        const GradientColumns<A>& columns, Chain chain, bool stream) {
  if (chain == Chain::none) return DxOfRowIn<T, Chain::none>(piece, dx, scalars, columns, stream);
  if (chain == Chain::begin) return DxOfRowIn<T, Chain::begin>(piece, dx, scalars, columns, stream);
  if (chain == Chain::middle) return DxOfRowIn<T, Chain::middle>(piece, dx, scalars, columns, stream);
  if (chain == Chain::end) return DxOfRowIn<T, Chain::end>(piece, dx, scalars, columns, stream);
  return DxOfRowIn<T, Chain::whole>(piece, dx, scalars, columns, stream);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
