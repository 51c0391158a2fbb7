// dx, and what rows add to dgamma and dbeta: chains of kChainRows rows in the arithmetic's type, then wide sums.
// Included once per target.
#pragma once

#include "kernels/convert-inl.h"
#include "kernels/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Calls use(vector, its first lane) for the lanes of a chain as f64.
template <class Use>
HWY_INLINE void ForEachF64(V64 chain, const Use& use) {
  use(chain, size_t{0});
}
template <class Use>
HWY_INLINE void ForEachF64(hn::Vec<DF32> chain, const Use& use) {
#if HWY_TARGET == HWY_SCALAR
  use(hn::PromoteTo(DF64(), chain), size_t{0});
#else
  use(LowerToF64(chain), size_t{0});
  use(UpperToF64(chain), hn::MaxLanes(DF64()));
#endif
}
// Adds a chain to sums of columns; or its first n lanes.
template <class V>
HWY_INLINE void AddToColumns(V chain, double* sums) {
  const DF64 d;
  ForEachF64(chain, [&](V64 v, size_t at) HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, sums + at), v), d, sums + at); });
}
template <class V>
HWY_INLINE void AddFirstToColumns(V chain, double* sums, size_t n) {
  const DF64 d;
  ForEachF64(chain, [&](V64 v, size_t at) HWY_ATTR {
    if (at < n) StoreFirst(hn::Add(LoadFirst(d, sums + at, n - at), v), d, sums + at, n - at);
  });
}

// What becomes of the chains of columns with a row: it begins them, or goes on; it ends them, and they are added to the
// columns.
enum class Chain { none, begin, middle, end, whole };

// dx, from dy, gamma and centre - x. watch becomes not finite where a dx is not.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V DxOf(D d, V dy, V gamma, V difference, V rstd, V k2, V a, V& watch) {
  const V dx = Fma(d, hn::Mul(dy, gamma), rstd, Fma(d, difference, k2, a));
  watch = hn::Add(watch, dx);
  return dx;
}

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
  HWY_INLINE void LoadChains(const GradientColumns<A>& columns) {
    for (size_t v = 0; v < kVectors && !(kPart && LeftOf(v) == 0); ++v) {
      dgamma_[v] = LoadChain(columns.dgamma_chain, v);
      dbeta_[v] = LoadChain(columns.dbeta_chain, v);
    }
  }
  HWY_INLINE void StoreChains(const GradientColumns<A>& columns) const {
    for (size_t v = 0; v < kVectors && !(kPart && LeftOf(v) == 0); ++v) {
      StoreChain(dgamma_[v], columns.dgamma_chain, v);
      StoreChain(dbeta_[v], columns.dbeta_chain, v);
    }
  }
  HWY_INLINE void AddTo(const ColumnPlaces& sums) const {
    for (size_t v = 0; v < kVectors && !(kPart && LeftOf(v) == 0); ++v) {
      const size_t at = c_ + v * kN;
      if constexpr (kPart) {
        AddFirstToColumns(dgamma_[v], sums.dgamma + at, LeftOf(v));
        AddFirstToColumns(dbeta_[v], sums.dbeta + at, LeftOf(v));
      } else {
        AddToColumns(dgamma_[v], sums.dgamma + at);
        AddToColumns(dbeta_[v], sums.dbeta + at);
      }
    }
  }

  // A row. watch becomes not finite where a dx is not.
  template <bool kColumns, bool kStream>
  HWY_INLINE void Row(const T* x, const T* dy, T* dx, V centre, V offset, V rstd, V k2, V a, V& watch) {
    const D d;
    V out[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const V y = Load(dy, v), difference = hn::Sub(centre, Load(x, v));
      if constexpr (kColumns) {
        dgamma_[v] = Fma(d, y, NegatedFma(d, difference, rstd, offset), dgamma_[v]);
        dbeta_[v] = hn::Add(dbeta_[v], y);
      }
      out[v] = DxOf(d, y, scale_[v], difference, rstd, k2, a, watch);
    }
    for (size_t v = 0; v < kVectors; v += kPart ? 1 : 2) {
      if constexpr (kPart) {
        StoreFirst(out[v], d, dx + c_ + v * kN, LeftOf(v));
      } else {
        StorePair<kStream>(out[v], out[v + 1], d, dx + c_ + v * kN);
      }
    }
  }

 private:
  HWY_INLINE size_t LeftOf(size_t v) const { return left_ > v * kN ? left_ - v * kN : 0; }
  template <class From>
  HWY_INLINE V Load(const From* from, size_t v) const {
    if constexpr (kPart) return LoadFirst(D(), from + c_ + v * kN, LeftOf(v));
    return LoadArithmetic(D(), from + c_ + v * kN);
  }

  // In f32 arithmetic a chain has room for whole lines.
  static constexpr bool kExactChains = kPart && std::is_same_v<A, double>;
  HWY_INLINE V LoadChain(const A* chain, size_t v) const {
    const A* from = chain + c_ + v * kN;
    return kExactChains ? LoadFirst(D(), from, LeftOf(v)) : hn::LoadU(D(), from);
  }
  HWY_INLINE void StoreChain(V value, A* chain, size_t v) const {
    A* to = chain + c_ + v * kN;
    kExactChains ? StoreFirst(value, D(), to, LeftOf(v)) : hn::StoreU(value, D(), to);
  }

  size_t c_, left_;
  V scale_[kVectors], dgamma_[kVectors], dbeta_[kVectors];
};

// Whether what has been summed is all finite; finite numbers may have a sum that is not.
template <class A, class V = hn::Vec<hn::ScalableTag<A>>>
HWY_INLINE bool AllFinite(V watch) {
  return hn::AllTrue(hn::ScalableTag<A>(), hn::Eq(hn::Sub(watch, watch), hn::Zero(hn::ScalableTag<A>())));
}

// The loops below make dx of a row and add the row to its columns, two vectors at a time. The first takes as many of
// the n columns as fill vectors, and returns how many these are. kStream: non-temporal stores; dx is then aligned to a
// whole vector.
template <class T, Chain kChain, bool kStream, class A = Arithmetic<T>>
HWY_INLINE size_t DxOfVectors(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                              const GradientColumns<A>& to, bool& finite) {
  const GradientColumns<A> columns = to;  // copies, which can stay in registers
  const T *x = piece.x, *dy = piece.dy;
  const A* gamma = piece.gamma;
  const hn::ScalableTag<A> d;
  constexpr size_t kStep = 2 * hn::MaxLanes(d);
  const auto centre = hn::Set(d, scalars.centre), offset = hn::Set(d, scalars.offset), rstd = hn::Set(d, scalars.rstd),
             k2 = hn::Set(d, scalars.k2), a = hn::Set(d, scalars.a);
  auto watch = hn::Zero(d);
  size_t c = 0;
#pragma GCC unroll 1
  for (const size_t n = piece.n; c + kStep <= n; c += kStep) {
    DxOfColumns<T, 2, false> part(gamma, c, 0);
    if constexpr (kChain == Chain::middle || kChain == Chain::end) part.LoadChains(columns);
    part.template Row<kChain != Chain::none, kStream>(x, dy, dx, centre, offset, rstd, k2, a, watch);
    if constexpr (kChain == Chain::begin || kChain == Chain::middle) part.StoreChains(columns);
    if constexpr (kChain == Chain::end || kChain == Chain::whole) part.AddTo(columns.sums);
  }
  finite = finite && AllFinite<A>(watch);
  return c;
}
// The second takes the columns from c on. It is out of line, with vectors of its own, so that those of the first loop
// stay in registers, and serves every place in a chain. Returns whether all of its dx are finite.
template <class T, class A = Arithmetic<T>>
HWY_NOINLINE bool DxOfTail(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                           const GradientColumns<A>& columns, Chain chain, size_t c) {
  const hn::ScalableTag<A> d;
  auto watch = hn::Zero(d);
  for (; c < piece.n; c += 2 * hn::MaxLanes(d)) {
    DxOfColumns<T, 2, true> part(piece.gamma, c, piece.n - c);
    if (chain == Chain::middle || chain == Chain::end) part.LoadChains(columns);
    part.template Row<true, false>(piece.x, piece.dy, dx, hn::Set(d, scalars.centre), hn::Set(d, scalars.offset),
                                   hn::Set(d, scalars.rstd), hn::Set(d, scalars.k2), hn::Set(d, scalars.a), watch);
    if (chain == Chain::begin || chain == Chain::middle) part.StoreChains(columns);
    if (chain == Chain::end || chain == Chain::whole) part.AddTo(columns.sums);
  }
  return AllFinite<A>(watch);
}

template <class T, Chain kChain, class A = Arithmetic<T>>
HWY_NOINLINE bool DxAtPlace(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                            const GradientColumns<A>& columns, bool stream) {
  bool finite = true;
  const size_t done = stream && IsAlignedToVector(dx)
                          ? DxOfVectors<T, kChain, true>(piece, dx, scalars, columns, finite)
                          : DxOfVectors<T, kChain, false>(piece, dx, scalars, columns, finite);
  return done == piece.n ? finite : DxOfTail<T>(piece, dx, scalars, columns, kChain, done) && finite;
}

// dx of a row, which has this place in its chains. Returns false if some of dx may not be finite.
template <class T, class A = Arithmetic<T>>
HWY_INLINE bool DxOfRow(const GradientPiece<T>& piece, T* dx, const DxScalars<A>& scalars,
                        const GradientColumns<A>& columns, const ChainPlace& place, bool stream) {
  if (columns.sums.dgamma == nullptr) return DxAtPlace<T, Chain::none>(piece, dx, scalars, columns, stream);
  if (place.begins) {
    return place.ends ? DxAtPlace<T, Chain::whole>(piece, dx, scalars, columns, stream)
                      : DxAtPlace<T, Chain::begin>(piece, dx, scalars, columns, stream);
  }
  return place.ends ? DxAtPlace<T, Chain::end>(piece, dx, scalars, columns, stream)
                    : DxAtPlace<T, Chain::middle>(piece, dx, scalars, columns, stream);
}

template <class T>
bool DxOfPiece(const GradientPiece<T>& piece, T* dx, const DxScalarsOfRows<Arithmetic<T>>& scalars,
               const GradientColumns<Arithmetic<T>>& columns, const ChainPlace& place, bool stream) {
  return DxOfRow(piece, dx, scalars.of(0), columns, place, stream);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
