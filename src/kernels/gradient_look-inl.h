// The sums of the backward pass, by one look at x and dy: a row's sums of g and of g (x - mean), and, column by column,
// those over rows. Included once per target.
#pragma once

#include <hwy/cache_control.h>

#include "kernels/convert-inl.h"
#include "kernels/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// A row's sums over a block, in virtual lanes: g and g (x - mean).
template <class A>
struct VectorLanes {
  using W = Wide<A, DF64>;
  static constexpr size_t kN = hn::MaxLanes(DF64());
  static constexpr size_t kVectors = kLanes / kN;

  HWY_INLINE void Clear() {
    const DF64 d;
    for (size_t v = 0; v < kVectors; ++v) g[v] = gd[v] = W::Zero(d);
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
  HWY_INLINE BlockSums Join() const {
    return {JoinFolded(FoldLanes<A, false>(g)), JoinFolded(FoldLanes<A, false>(gd))};
  }

  W g[kVectors], gd[kVectors];

 private:
  static constexpr size_t kLow = std::is_same_v<A, double> ? kLanes : 0;  // from a high part to its low part
};

// Rows in registers, or near: what is stored meanwhile cannot overlap these copies. Field by field, since a driver has
// just written them: wider loads would wait for its stores.
template <class T, size_t kRows>
struct LookedRows {
  HWY_INLINE explicit LookedRows(const GradientRow<T>* rows) : ahead(rows[0].ahead) {
    for (size_t r = 0; r < kRows; ++r) {
      x[r] = rows[r].x;
      dy[r] = rows[r].dy;
      mean_hi[r] = rows[r].mean_hi;
      mean_lo[r] = rows[r].mean_lo;
      rstd[r] = rows[r].rstd;
    }
  }

  const T* x[kRows];
  const T* dy[kRows];
  double mean_hi[kRows], mean_lo[kRows], rstd[kRows];
  size_t ahead;
};

// What a look sums: over columns, to rows' lanes, and over rows, to columns.
enum class LookFor { rows, columns, both };

// n columns of kRows rows, n a multiple of kLanes, to `lanes`, one for each row, and to `columns`, or to one of them.
template <class T, bool kCentred, size_t kRows, LookFor kWhat>
class LookAtWholeLanes {
  using A = Arithmetic<T>;

 public:
  static HWY_INLINE void Run(const LookedRows<T, kRows>& rows, const A* gamma, size_t n, VectorLanes<A>* lanes,
                             ColumnPlaces columns) {
    if constexpr (kWhat == LookFor::columns) {
      RunOverColumns(rows, n, columns);
    } else {
      RunOverLanes(rows, gamma, n, lanes, columns);
    }
  }

 private:
  using W = Wide<A, DF64>;
  static constexpr size_t kN = VectorLanes<A>::kN, kVectors = VectorLanes<A>::kVectors;
  static constexpr size_t kAtOnce = HWY_TARGET == HWY_AVX3 && !std::is_same_v<A, double> ? 2 : 1;
  static constexpr bool kSums = kWhat != LookFor::columns, kColumns = kWhat != LookFor::rows;
  using Sums = W[kRows][kAtOnce];

  static HWY_INLINE void RunOverLanes(const LookedRows<T, kRows>& rows, const A* gamma, size_t n, VectorLanes<A>* lanes,
                                      const ColumnPlaces& columns) {
    for (size_t v0 = 0; v0 < kVectors; v0 += kAtOnce) {
      Sums g, gd;
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t v = 0; v < kAtOnce; ++v) {
          g[r][v] = lanes[r].g[v0 + v];
          gd[r][v] = lanes[r].gd[v0 + v];
        }
      }
#pragma GCC unroll 1
      for (size_t c = v0 * kN; c < n; c += kLanes) {
        if (v0 == 0 && rows.ahead != 0) Fetch(rows, c);
        for (size_t v = 0; v < kAtOnce; ++v) Add(rows, gamma, c + v * kN, columns, v, g, gd);
      }
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t v = 0; v < kAtOnce; ++v) {
          lanes[r].g[v0 + v] = g[r][v];
          lanes[r].gd[v0 + v] = gd[r][v];
        }
      }
    }
  }

  static HWY_INLINE void RunOverColumns(const LookedRows<T, kRows>& rows, size_t n, const ColumnPlaces& columns) {
    Sums none, no_products;
    for (size_t c = 0; c < n; c += kLanes) {
      if (rows.ahead != 0) Fetch(rows, c);
      for (size_t v = 0; v < kVectors; ++v) Add(rows, nullptr, c + v * kN, columns, 0, none, no_products);
    }
  }

  static HWY_INLINE void Fetch(const LookedRows<T, kRows>& rows, size_t c) {
    for (size_t r = 0; r < kRows; ++r) {
      hwy::Prefetch(rows.x[r] + c + rows.ahead);
      hwy::Prefetch(rows.dy[r] + c + rows.ahead);
    }
  }

  // Columns [c, c + kN) of all rows.
  static HWY_INLINE void Add(const LookedRows<T, kRows>& rows, const A* gamma, size_t c, const ColumnPlaces& columns,
                             size_t v, Sums& g, Sums& gd) {
    const DF64 d;
    auto scale = hn::Zero(d);
    if constexpr (kSums) scale = LoadF64(d, gamma + c);
    W dgamma = W::Zero(d), dbeta = W::Zero(d);
    if constexpr (kColumns) {
      dgamma = LoadColumns<W>(columns.dgamma, columns.low, c);
      dbeta = LoadColumns<W>(columns.dbeta, columns.low, c);
    }
    for (size_t r = 0; r < kRows; ++r) {
      const auto dy = LoadF64(d, rows.dy[r] + c), x = LoadF64(d, rows.x[r] + c);
      const auto mean = W::From(d, hn::Set(d, rows.mean_hi[r]), hn::Set(d, rows.mean_lo[r]));
      const W difference = kCentred ? Difference(d, x, mean) : W::From(d, x, hn::Zero(d));
      const W product = Times(d, difference, dy);
      if constexpr (kSums && kCentred) AccumulateExactProduct(d, g[r][v], dy, scale);
      if constexpr (kSums) AccumulateProduct(d, gd[r][v], product, scale);
      if constexpr (kColumns) {
        AccumulateProduct(d, dgamma, product, hn::Set(d, rows.rstd[r]));
        AccumulateSum(d, dbeta, dy);
      }
    }
    if constexpr (kColumns) {
      StoreColumns(dgamma, columns.dgamma, columns.low, c);
      StoreColumns(dbeta, columns.dbeta, columns.low, c);
    }
  }
};

// The columns from `whole` on that do not fill the lanes, fewer than kLanes: what does not exist has dy = 0 and
// x = mean_hi.
template <class T, bool kCentred, size_t kRows, LookFor kWhat, class A = Arithmetic<T>>
HWY_NOINLINE void LookAtTail(const GradientLook<T>& look, size_t whole, VectorLanes<A>* lanes) {
  constexpr bool kColumns = kWhat != LookFor::rows;
  const size_t n = look.n - whole;
  HWY_ALIGN A x[kRows][kLanes], dy[kRows][kLanes] = {}, scale[kLanes] = {};
  HWY_ALIGN double sums[4][kLanes] = {};
  GradientRow<A> tail[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const GradientRow<T>& row = look.rows[r];
    for (A& value : x[r]) value = static_cast<A>(row.mean_hi);
    Widen(row.x + whole, x[r], n);
    Widen(row.dy + whole, dy[r], n);
    tail[r] = {x[r], dy[r], row.mean_hi, row.mean_lo, row.rstd};
  }
  if constexpr (kWhat != LookFor::columns) std::memcpy(scale, look.gamma + whole, n * sizeof(A));
  double* const dgamma = kColumns ? look.columns.dgamma + whole : nullptr;
  double* const dbeta = kColumns ? look.columns.dbeta + whole : nullptr;
  const size_t low = look.columns.low;
  const size_t used = !kColumns ? 0 : low == 0 ? 2 : 4;
  double* places[] = {dgamma, dbeta, used == 4 ? dgamma + low : nullptr, used == 4 ? dbeta + low : nullptr};
  for (size_t i = 0; i < used; ++i) std::memcpy(sums[i], places[i], n * sizeof(double));
  LookAtWholeLanes<A, kCentred, kRows, kWhat>::Run(LookedRows<A, kRows>(tail), scale, kLanes, lanes,
                                                   ColumnPlaces{sums[0], sums[1], low == 0 ? 0 : 2 * kLanes});
  for (size_t i = 0; i < used; ++i) std::memcpy(places[i], sums[i], n * sizeof(double));
}

// Of kRowsAtOnce rows of f32 arithmetic: the sums of all, as a GradientGroup has them.
HWY_INLINE void JoinTogether(const VectorLanes<float>* lanes, double* sums) {
  const DF64 d;
  Plain<DF64> vectors[2 * kRowsAtOnce];
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    vectors[r] = FoldedToOne(FoldLanes<float, false>(lanes[r].g));
    vectors[kRowsAtOnce + r] = FoldedToOne(FoldLanes<float, false>(lanes[r].gd));
  }
  for (size_t i = 0; i < 2 * kRowsAtOnce; i += hn::MaxLanes(d)) {
    hn::Store(JoinFoldedRows<false>(vectors + i).hi, d, sums + i);
  }
}
HWY_INLINE void JoinTogether(const VectorLanes<float>* lanes, BlockSums* sums) {
  HWY_ALIGN double joined[2 * kRowsAtOnce];
  JoinTogether(lanes, joined);
  for (size_t r = 0; r < kRowsAtOnce; ++r) sums[r] = {{joined[r], 0}, {joined[kRowsAtOnce + r], 0}};
}

// kRowsAtOnce rows of whole lanes, whose lanes stay in registers.
template <class T, bool kCentred, LookFor kWhat, class Sums>
EVENORM_INLINE_LOOP void LookAtOnce(const GradientRow<T>* rows, const float* gamma, size_t n,
                                    const ColumnPlaces& columns, Sums* sums) {
  VectorLanes<float> lanes[kRowsAtOnce];
  for (auto& row : lanes) row.Clear();
  LookAtWholeLanes<T, kCentred, kRowsAtOnce, kWhat>::Run(LookedRows<T, kRowsAtOnce>(rows), gamma, n, lanes, columns);
  JoinTogether(lanes, sums);
}

template <class T, bool kCentred, size_t kRows, LookFor kWhat>
HWY_NOINLINE void LookAt(const GradientLook<T>& look) {
  using A = Arithmetic<T>;
  constexpr bool kSums = kWhat != LookFor::columns;
  const size_t whole = look.n / kLanes * kLanes;
  if constexpr (kSums && std::is_same_v<A, float> && kRows == kRowsAtOnce) {
    if (HWY_LIKELY(whole == look.n && look.first && look.last)) {
      return LookAtOnce<T, kCentred, kWhat>(look.rows, look.gamma, look.n, look.columns, look.sums);
    }
  }
  VectorLanes<A> lanes[kRows];
  if constexpr (kSums) {
    for (size_t r = 0; r < kRows; ++r) look.first ? lanes[r].Clear() : lanes[r].Load(look.lanes[r]);
  }
  LookAtWholeLanes<T, kCentred, kRows, kWhat>::Run(LookedRows<T, kRows>(look.rows), look.gamma, whole, lanes,
                                                   look.columns);
  if (whole != look.n) LookAtTail<T, kCentred, kRows, kWhat>(look, whole, lanes);
  if constexpr (kSums) {
    if (!look.last) {
      for (size_t r = 0; r < kRows; ++r) lanes[r].Store(look.lanes[r]);
    } else if constexpr (std::is_same_v<A, float> && kRows == kRowsAtOnce) {
      JoinTogether(lanes, look.sums);
    } else {
      for (size_t r = 0; r < kRows; ++r) look.sums[r] = lanes[r].Join();
    }
  }
}

template <class T, bool kCentred, size_t kRows>
void LookAtRows(const GradientLook<T>& look) {
  if (look.columns.dgamma == nullptr) return LookAt<T, kCentred, kRows, LookFor::rows>(look);
  look.sums == nullptr ? LookAt<T, kCentred, kRows, LookFor::columns>(look)
                       : LookAt<T, kCentred, kRows, LookFor::both>(look);
}

template <class T, bool kCentred>
void LookAtGradients(const GradientLook<T>& look) {
  look.count == kRowsAtOnce ? LookAtRows<T, kCentred, kRowsAtOnce>(look) : LookAtRows<T, kCentred, 1>(look);
}

template <class A>
void AddColumns(double* left, const double* right, size_t count) {
  const DF64 d;
  using W = Wide<A, DF64>;
  constexpr size_t kN = hn::MaxLanes(d);
  const size_t low = std::is_same_v<A, double> ? count : 0;
  size_t i = 0;
  for (; i + kN <= count; i += kN) {
    StoreColumns(Add(d, LoadColumns<W>(left, low, i), LoadColumns<W>(right, low, i)), left, low, i);
  }
  const DScalar d1;
  using W1 = Wide<A, DScalar>;
  for (; i < count; ++i) {
    const auto at = [&](const double* sums) { return W1::From(d1, hn::Set(d1, sums[i]), hn::Set(d1, sums[low + i])); };
    const W1 sum = Add(d1, at(left), at(right));
    left[i] = hn::GetLane(sum.hi);
    if (low != 0) left[low + i] = hn::GetLane(sum.Low(d1));
  }
}

// Watches for values that are not finite: in dx so far, or in rounded columns.
template <class A>
struct GradientWatch {
  using D = hn::ScalableTag<A>;

  HWY_INLINE GradientWatch() : even(hn::Zero(D())), odd(hn::Zero(D())) {}
  HWY_INLINE bool AllFinite() const {
    const D d;
    return hn::AllTrue(d, hn::Eq(hn::Add(even, odd), hn::Zero(d)));
  }

  hn::Vec<D> even, odd;  // 0, or NaN
};

// n sums over rows, plus what `there` holds unless it is null, rounded to f64. Returns true if all are finite.
template <class A>
bool RoundColumns(const double* sums, size_t low, const double* there, size_t n, double* values) {
  const auto round = [&](auto d, size_t i, auto& finite) HWY_ATTR {
    using W = Wide<A, decltype(d)>;
    W total = W::From(d, hn::LoadU(d, sums + i), hn::LoadU(d, sums + low + i));
    if (there != nullptr) AccumulateSum(d, total, hn::LoadU(d, there + i));
    const auto value = hn::Add(total.hi, total.Low(d));
    hn::StoreU(value, d, values + i);
    finite = hn::MulAdd(value, hn::Zero(d), finite);  // stays 0 while all are finite, else becomes NaN
  };
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d);
  GradientWatch<double> watch;
  size_t i = 0;
  for (; i + 2 * kN <= n; i += 2 * kN) round(d, i, watch.even), round(d, i + kN, watch.odd);
  const DScalar d1;
  auto rest = hn::Zero(d1);
  for (; i < n; ++i) round(d1, i, rest);
  return hn::GetLane(rest) == 0 && watch.AllFinite();
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
