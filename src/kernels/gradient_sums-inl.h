// The sums of the backward pass, by one look at x and dy: a row's sums of g and of g (x - mean), and, column by column,
// those over rows. Included once per target.
#if defined(EVENORM_KERNELS_GRADIENT_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_GRADIENT_SUMS_INL_H_
#undef EVENORM_KERNELS_GRADIENT_SUMS_INL_H_
#else
#define EVENORM_KERNELS_GRADIENT_SUMS_INL_H_
#endif

#include <hwy/cache_control.h>

#include "kernels/gradient_functions.hpp"
#include "kernels/statistics-inl.h"
#include "scratch_plan.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Some columns of one row, of storage type T, and its statistics.
template <class T>
struct GradientRow {
  const T* x;
  const T* dy;
  double mean_hi, mean_lo, rstd;
  size_t ahead = 0;  // elements from here to what is fetched meanwhile; 0: nothing
};

// A row's sums over a block, in virtual lanes: g and g (x - mean).
template <class A>
struct GradientLanes {
  using W = Wide<A, DF64>;
  static constexpr size_t kN = hn::MaxLanes(DF64());
  static constexpr size_t kVectors = kLanes / kN;

  HWY_INLINE void Clear() {
    const DF64 d;
    for (size_t v = 0; v < kVectors; ++v) g[v] = gd[v] = W::Zero(d);
  }
  HWY_INLINE BlockSums<A> Join() const { return {JoinLaneVectors<A, false>(g), JoinLaneVectors<A, false>(gd)}; }

  W g[kVectors], gd[kVectors];
};

// Sums over rows in vectors: Wide numbers of consecutive columns.
template <class W>
HWY_INLINE W LoadColumns(const double* values, size_t low, size_t i) {
  const DF64 d;
  return W::From(d, hn::LoadU(d, values + i), low == 0 ? hn::Zero(d) : hn::LoadU(d, values + low + i));
}
HWY_INLINE void StoreColumns(Plain<DF64> w, double* values, size_t, size_t i) {
  const DF64 d;
  hn::StoreU(w.hi, d, values + i);
}
HWY_INLINE void StoreColumns(Paired<DF64> w, double* values, size_t low, size_t i) {
  const DF64 d;
  hn::StoreU(w.hi, d, values + i);
  hn::StoreU(w.lo, d, values + low + i);
}

// dgamma, dbeta and how far behind each of them its low part is; null where the columns are not summed.
template <class A>
struct ColumnPlaces {
  double* dgamma = nullptr;
  double* dbeta = nullptr;
  size_t low = 0;

  ColumnPlaces() = default;
  // Column `col` of sums.
  HWY_INLINE ColumnPlaces(const ColumnSums& sums, size_t col)
      : dgamma(sums.values + (col - sums.first)),
        dbeta(dgamma + sums.stride),
        low(std::is_same_v<A, double> ? 2 * sums.stride : 0) {}
};

// n columns of kRows rows, n a multiple of kLanes, to `lanes`, one for each row, and (kColumns) to `columns`.
template <class T, class Norm, size_t kRows, bool kColumns>
class GradientLook {
  using A = Arithmetic<T>;

 public:
  static HWY_INLINE void Run(const GradientRow<T>* rows, const A* gamma, size_t n, GradientLanes<A>* lanes,
                             ColumnPlaces<A> columns) {
    for (size_t v0 = 0; v0 < kVectors; v0 += kAtOnce) {
      W g[kRows][kAtOnce], gd[kRows][kAtOnce];
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t v = 0; v < kAtOnce; ++v) {
          g[r][v] = lanes[r].g[v0 + v];
          gd[r][v] = lanes[r].gd[v0 + v];
        }
      }
#pragma GCC unroll 1
      for (size_t c = v0 * kN; c < n; c += kLanes) {
        if (v0 == 0 && rows[0].ahead != 0) Fetch(rows, c);
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

 private:
  using W = Wide<A, DF64>;
  static constexpr size_t kN = GradientLanes<A>::kN, kVectors = GradientLanes<A>::kVectors;
  static constexpr size_t kAtOnce = HWY_TARGET == HWY_AVX3 && !std::is_same_v<A, double> ? 2 : 1;

  static HWY_INLINE void Fetch(const GradientRow<T>* rows, size_t c) {
    for (size_t r = 0; r < kRows; ++r) {
      hwy::Prefetch(rows[r].x + c + rows[0].ahead);
      hwy::Prefetch(rows[r].dy + c + rows[0].ahead);
    }
  }

  // Columns [c, c + kN) of all rows.
  static HWY_INLINE void Add(const GradientRow<T>* rows, const A* gamma, size_t c, const ColumnPlaces<A>& columns,
                             size_t v, W (&g)[kRows][kAtOnce], W (&gd)[kRows][kAtOnce]) {
    const DF64 d;
    const auto scale = LoadF64(d, gamma + c);
    W dgamma = W::Zero(d), dbeta = W::Zero(d);
    if constexpr (kColumns) {
      dgamma = LoadColumns<W>(columns.dgamma, columns.low, c);
      dbeta = LoadColumns<W>(columns.dbeta, columns.low, c);
    }
    for (size_t r = 0; r < kRows; ++r) {
      const auto dy = LoadF64(d, rows[r].dy + c), x = LoadF64(d, rows[r].x + c);
      const auto mean = W::From(d, hn::Set(d, rows[r].mean_hi), hn::Set(d, rows[r].mean_lo));
      const W difference = Norm::kCentred ? Difference(d, x, mean) : W::From(d, x, hn::Zero(d));
      const W product = Times(d, difference, dy);
      if constexpr (Norm::kCentred) AccumulateExactProduct(d, g[r][v], dy, scale);
      AccumulateProduct(d, gd[r][v], product, scale);
      if constexpr (kColumns) {
        AccumulateProduct(d, dgamma, product, hn::Set(d, rows[r].rstd));
        AccumulateSum(d, dbeta, dy);
      }
    }
    if constexpr (kColumns) {
      StoreColumns(dgamma, columns.dgamma, columns.low, c);
      StoreColumns(dbeta, columns.dbeta, columns.low, c);
    }
  }
};

// The columns that do not fill the lanes, fewer than kLanes: what does not exist has dy = 0 and x = mean_hi.
template <class T, class Norm, size_t kRows, bool kColumns, class A = Arithmetic<T>>
HWY_NOINLINE void LookAtTail(const GradientRow<T>* rows, const A* gamma, size_t n, GradientLanes<A>* lanes,
                             ColumnPlaces<A> columns) {
  HWY_ALIGN A x[kRows][kLanes], dy[kRows][kLanes] = {}, scale[kLanes] = {};
  HWY_ALIGN double sums[4][kLanes] = {};
  GradientRow<A> tail[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    for (A& value : x[r]) value = static_cast<A>(rows[r].mean_hi);
    Widen(rows[r].x, x[r], n);
    Widen(rows[r].dy, dy[r], n);
    tail[r] = {x[r], dy[r], rows[r].mean_hi, rows[r].mean_lo, rows[r].rstd};
  }
  std::memcpy(scale, gamma, n * sizeof(A));
  double* places[] = {columns.dgamma, columns.dbeta, columns.dgamma + columns.low, columns.dbeta + columns.low};
  const size_t used = !kColumns ? 0 : columns.low == 0 ? 2 : 4;
  for (size_t i = 0; i < used; ++i) std::memcpy(sums[i], places[i], n * sizeof(double));
  GradientLook<A, Norm, kRows, kColumns>::Run(tail, scale, kLanes, lanes, ColumnPlaces<A>({sums[0], 0, kLanes}, 0));
  for (size_t i = 0; i < used; ++i) std::memcpy(places[i], sums[i], n * sizeof(double));
}

// n columns of kRows rows.
template <class T, class Norm, size_t kRows, bool kColumns, class A = Arithmetic<T>>
HWY_INLINE void LookAtRows(const GradientRow<T>* rows, const A* gamma, size_t n, GradientLanes<A>* lanes,
                           ColumnPlaces<A> columns) {
  const size_t whole = n / kLanes * kLanes;
  GradientLook<T, Norm, kRows, kColumns>::Run(rows, gamma, whole, lanes, columns);
  if (whole == n) return;
  GradientRow<T> rest[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    rest[r] = rows[r];
    rest[r].x += whole;
    rest[r].dy += whole;
  }
  if (columns.dgamma != nullptr) {
    columns.dgamma += whole;
    columns.dbeta += whole;
  }
  LookAtTail<T, Norm, kRows, kColumns>(rest, gamma + whole, n - whole, lanes, columns);
}

// Sums over the blocks of a row are joined in the tree of their moments.
template <class A>
struct JoinGradients {
  using Part = BlockSums<A>;
  using W = Wide<A, DScalar>;

  HWY_INLINE Part Join(const Part& left, const Part& right) const {
    const DScalar d;
    return {Add(d, left.s, right.s), Add(d, left.q, right.q)};
  }
  HWY_INLINE Part Load(size_t node) const {
    const DScalar d;
    const GradientNode& n = nodes[node];
    return {W::From(d, hn::Set(d, n.g_hi), hn::Set(d, n.g_lo)), W::From(d, hn::Set(d, n.gd_hi), hn::Set(d, n.gd_lo))};
  }
  HWY_INLINE void Store(const Part& part, size_t node) const {
    const DScalar d;
    nodes[node] = {hn::GetLane(part.s.hi), hn::GetLane(part.s.Low(d)), hn::GetLane(part.q.hi),
                   hn::GetLane(part.q.Low(d))};
  }

  GradientNode* nodes = nullptr;
};
template <class A>
using GradientTree = JoinTree<JoinGradients<A>>;

// A mean from a sum over n elements: in f32 arithmetic times 1 / n, rounded, which costs less than a division per row.
template <class D>
HWY_INLINE Plain<D> MeanOf(D d, Plain<D> sum, size_t n) {
  return Times(d, sum, hn::Set(d, 1.0 / static_cast<double>(n)));
}
template <class D>
HWY_INLINE Paired<D> MeanOf(D d, Paired<D> sum, size_t n) {
  return Divide(d, sum, hn::Set(d, static_cast<double>(n)));
}

// c1 = mean(g) and c2 = mean(g xhat) from sums of rows, side by side.
template <class W>
struct GradientMeans {
  W c1, c2;
};
template <class Norm, class D, class W>
HWY_INLINE GradientMeans<W> GradientMeansOf(D d, const WideSums<W>& sums, W rstd, size_t cols) {
  return {Norm::kCentred ? MeanOf(d, sums.s, cols) : W::Zero(d), Multiply(d, MeanOf(d, sums.q, cols), rstd)};
}
// The same of one row.
template <class A, class Norm>
HWY_INLINE void SetMeans(const BlockSums<A>& sums, size_t cols, GradientScalars* s) {
  const DScalar d;
  const auto rstd = Wide<A, DScalar>::From(d, hn::Set(d, s->rstd), hn::Set(d, s->rstd_lo));
  const auto means = GradientMeansOf<Norm>(d, sums, rstd, cols);
  s->c1_hi = hn::GetLane(means.c1.hi);
  s->c1_lo = hn::GetLane(means.c1.Low(d));
  s->c2_hi = hn::GetLane(means.c2.hi);
  s->c2_lo = hn::GetLane(means.c2.Low(d));
}

// Sums over rows of runs of row blocks, in the tree of a row's blocks; the left one takes the right one up.
template <class A>
struct JoinColumns {
  using Part = double*;

  HWY_INLINE Part Join(Part left, Part right) const {
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
      const auto at = [&](const double* sums) {
        return W1::From(d1, hn::Set(d1, sums[i]), hn::Set(d1, sums[low + i]));
      };
      const W1 sum = Add(d1, at(left), at(right));
      left[i] = hn::GetLane(sum.hi);
      if (low != 0) left[low + i] = hn::GetLane(sum.Low(d1));
    }
    return left;
  }
  HWY_INLINE Part Load(size_t node) const { return nodes[node]; }
  HWY_INLINE void Store(Part part, size_t node) const { nodes[node] = part; }

  double** nodes = nullptr;
  size_t count = 0;  // of dgamma and dbeta together, without their low parts
};
template <class A>
using ColumnTree = JoinTree<JoinColumns<A>>;

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
