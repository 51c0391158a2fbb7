// From a row's moments to what the map needs: variance, rstd, and whether the row is within the safe range.
// Included once per target.
#if defined(EVENORM_KERNELS_STATISTICS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_STATISTICS_INL_H_
#undef EVENORM_KERNELS_STATISTICS_INL_H_
#else
#define EVENORM_KERNELS_STATISTICS_INL_H_
#endif

#include <cmath>
#include <limits>

#include "kernels/moments-inl.h"
#include "scratch_plan.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

inline void StoreStatistic(const Vector<void*>& to, size_t row, double value) {
  if (to.data == nullptr) return;
  if (value != value) value = std::numeric_limits<double>::quiet_NaN();
  char* place = static_cast<char*>(to.data) + to.axes.offset(row);
  if (to.dtype == DType::f64) {
    StoreOne(value, place);
  } else {
    StoreOne(static_cast<float>(value), place);
  }
}

// 1 / sqrt(var + eps), and 0 where that is 1 / 0.
template <class D, class W>
HWY_INLINE hn::Vec<D> RstdOf(D d, W var, hn::Vec<D> eps) {
  const W shifted = Add(d, var, W::From(d, eps, hn::Zero(d)));
  return hn::IfThenElse(hn::Gt(shifted.hi, hn::Zero(d)), ReciprocalSqrt(d, shifted), hn::Zero(d));
}

// What r = RstdOf(d, var, eps) leaves of 1 / sqrt(var + eps), in f64 arithmetic.
template <class D>
HWY_INLINE hn::Vec<D> RstdLowOf(D d, Paired<D> var, hn::Vec<D> eps, hn::Vec<D> r) {
  const auto residual = NewtonResidual(d, Add(d, var, Paired<D>{eps, hn::Zero(d)}), r);
  return hn::Mul(hn::Mul(r, hn::Set(d, 0.5)), residual);
}
template <class D>
HWY_INLINE hn::Vec<D> RstdLowOf(D d, Plain<D>, hn::Vec<D>, hn::Vec<D>) {
  return hn::Zero(d);
}

// 1 / sqrt(var + eps) of one row, lo where the arithmetic is f64.
struct Rstd {
  double hi, lo;
};
template <class W>
HWY_INLINE Rstd RstdOfRow(W var, double eps) {
  const DScalar d;
  const auto r = RstdOf(d, var, hn::Set(d, eps));
  return {hn::GetLane(r), hn::GetLane(RstdLowOf(d, var, hn::Set(d, eps), r))};
}
// Of a row without variance.
template <class A>
HWY_INLINE Rstd RstdOfConstant(double eps) {
  return RstdOfRow(Wide<A, DScalar>::Zero(DScalar()), eps);
}

// A row's scalars in the arithmetic's type: what the map multiplies and subtracts.
template <class A>
struct MapScalars {
  A mean_hi, mean_lo, rstd;
};

// mean_hi + mean_lo and rstd, rounded to the arithmetic's type; mean_lo to what mean_hi leaves.
template <class A, class D, class V = hn::Vec<D>>
HWY_INLINE void StoreMapScalars(D d, V mean_hi, V mean_lo, V rstd, A* hi, A* lo, A* scale) {
  if constexpr (std::is_same_v<A, double>) {
    hn::StoreU(mean_hi, d, hi);
    hn::StoreU(mean_lo, d, lo);
    hn::StoreU(rstd, d, scale);
  } else {
    const hn::Rebind<float, D> df;
    const auto rounded = NarrowToF32(df, mean_hi);
    hn::StoreU(rounded, df, hi);
    hn::StoreU(NarrowToF32(df, hn::Sub(mean_hi, hn::PromoteTo(d, rounded))), df, lo);
    // A constant row's rstd may be out of f32's range where eps is tiny; its x - mean is 0.
    const auto largest = hn::Set(d, static_cast<double>(std::numeric_limits<float>::max()));
    hn::StoreU(NarrowToF32(df, hn::Min(rstd, largest)), df, scale);
  }
}

template <class A>
HWY_INLINE MapScalars<A> MapScalarsOf(const RowScalars& row) {
  const DScalar d;
  MapScalars<A> map;
  StoreMapScalars<A>(d, hn::Set(d, row.mean_hi), hn::Set(d, row.mean_lo), hn::Set(d, row.rstd), &map.mean_hi,
                     &map.mean_lo, &map.rstd);
  return map;
}

// Up to kMaxGroup rows side by side: their moments, and what becomes of them.
template <class A>
class GroupStatistics {
 public:
  HWY_INLINE void Set(size_t row, const WideMoments<A>& m) { Put(row, m.mean, m.m2); }
  // A row of one block: MomentsFromGroupSums() makes moments of all rows' sums.
  HWY_INLINE void SetSums(size_t row, const BlockSums<A>& sums) { Put(row, sums.s, sums.q); }

  // Rows of one block of `cols` columns. True where a row needs the second look; NeedsSecondLook() tells which.
  template <class Norm>
  HWY_INLINE bool MomentsFromGroupSums(size_t rows, size_t cols) {
    if constexpr (!Norm::kCentred) return false;
    const D d;
    bool any = false;
    for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
      const auto q = W::From(d, hn::Load(d, m2_hi_ + i), hn::Load(d, m2_lo_ + i));
      const auto sums = WideSums<W>{W::From(d, hn::Load(d, mean_hi_ + i), hn::Load(d, mean_lo_ + i)), q};
      const auto moments = MomentsFromSums(d, sums, cols);
      Store(i, moments.mean, moments.m2);
      const auto second_look = SecondLook<A>(d, moments.m2, q);
      hn::Store(hn::IfThenElseZero(second_look, hn::Set(d, 1.0)), d, flag_ + i);
      any = any || !hn::AllFalse(d, second_look);
    }
    return any;
  }
  HWY_INLINE bool NeedsSecondLook(size_t row) const { return flag_[row] != 0; }

  // rstd and the map's scalars of `rows` rows of so many columns.
  HWY_INLINE void Finish(size_t rows, double columns, double eps) {
    const D d;
    const auto count = hn::Set(d, columns);
    for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
      const auto mean = hn::Load(d, mean_hi_ + i), mean_lo = hn::Load(d, mean_lo_ + i);
      const auto m2 = W::From(d, hn::Load(d, m2_hi_ + i), hn::Load(d, m2_lo_ + i));
      const auto var = Divide(d, m2, count);
      const auto rstd = RstdOf(d, var, hn::Set(d, eps));
      hn::Store(rstd, d, rstd_ + i);
      StoreMapScalars<A>(d, mean, mean_lo, rstd, map_mean_hi_ + i, map_mean_lo_ + i, map_rstd_ + i);
      const auto mean_square = hn::Add(hn::Mul(mean, mean), var.hi);
      hn::Store(hn::IfThenZeroElse(InRange(mean_square, eps), hn::Set(d, 1.0)), d, flag_ + i);
    }
  }

  HWY_INLINE bool IsExtreme(size_t row) const { return flag_[row] != 0; }
  void SetExtreme(size_t row) { flag_[row] = 1; }
  HWY_INLINE bool AnyExtreme(size_t rows) const {
    double any = 0;
    for (size_t i = 0; i < rows; ++i) any += flag_[i];
    return any != 0;
  }
  HWY_INLINE MapScalars<A> Map(size_t row) const { return {map_mean_hi_[row], map_mean_lo_[row], map_rstd_[row]}; }
  // In f64 arithmetic: what rstd leaves of 1 / sqrt(var + eps).
  HWY_INLINE double RstdLow(size_t row, size_t cols, double eps) const {
    const DScalar d;
    const auto m2 = Wide<A, DScalar>::From(d, hn::Set(d, m2_hi_[row]), hn::Set(d, m2_lo_[row]));
    const auto var = Divide(d, m2, hn::Set(d, static_cast<double>(cols)));
    return hn::GetLane(RstdLowOf(d, var, hn::Set(d, eps), hn::Set(d, rstd_[row])));
  }
  bool IsFinite(size_t row) const { return std::isfinite(mean_hi_[row]) && std::isfinite(m2_hi_[row]); }
  double Mean(size_t row) const { return mean_hi_[row]; }
  double Rstd(size_t row) const { return rstd_[row]; }
  RowScalars Row(size_t row) const { return {mean_hi_[row], mean_lo_[row], rstd_[row], IsExtreme(row)}; }

 private:
  using D = hn::CappedTag<double, kMaxGroup>;
  using W = Wide<A, D>;

  HWY_INLINE void Put(size_t row, Wide<A, DScalar> a, Wide<A, DScalar> b) {
    const DScalar d;
    mean_hi_[row] = hn::GetLane(a.hi);
    mean_lo_[row] = hn::GetLane(a.Low(d));
    m2_hi_[row] = hn::GetLane(b.hi);
    m2_lo_[row] = hn::GetLane(b.Low(d));
  }
  HWY_INLINE void Store(size_t i, W mean, W m2) {
    const D d;
    hn::Store(mean.hi, d, mean_hi_ + i);
    hn::Store(mean.Low(d), d, mean_lo_ + i);
    hn::Store(m2.hi, d, m2_hi_ + i);
    hn::Store(m2.Low(d), d, m2_lo_ + i);
  }

  static HWY_INLINE auto InRange(hn::Vec<D> mean_square, double eps) {
    const D d;
    constexpr bool kWide = std::is_same_v<A, double>;
    constexpr SafeRange kSafe = kWide ? kSafeF64 : kSafeF32;
    const double high = !kWide && eps > kLargestEpsF32 ? 0 : kSafe.high;
    auto in_range = hn::And(hn::Ge(mean_square, hn::Set(d, kSafe.low)), hn::Le(mean_square, hn::Set(d, high)));
    // Squares of f32 do not underflow in f64: a mean square of 0 is a row of zeros, and needs no scaling.
    if constexpr (!kWide) in_range = hn::Or(in_range, hn::Eq(mean_square, hn::Zero(d)));
    return in_range;
  }

  // Unused rows of a group are computed too, and must be numbers.
  HWY_ALIGN double mean_hi_[kMaxGroup] = {}, mean_lo_[kMaxGroup] = {};
  HWY_ALIGN double m2_hi_[kMaxGroup] = {}, m2_lo_[kMaxGroup] = {};
  HWY_ALIGN double rstd_[kMaxGroup], flag_[kMaxGroup];
  HWY_ALIGN A map_mean_hi_[kMaxGroup], map_mean_lo_[kMaxGroup], map_rstd_[kMaxGroup];
};

// A row whose mean square is out of range, handled as x * 2^-exponent.
struct ScaledRow {
  int map_exponent;    // the map's exponent
  RowScalars scalars;  // of the row scaled by it
  double mean;         // of the row itself
  Rstd rstd;           // likewise
  double rstd_lo;      // of scalars.rstd
  bool by_eps;         // rstd is 1 / sqrt(eps): the variance is 0, or far below eps
};

// A subnormal rstd would lose digits that x, up to 4 in magnitude, shows: the map takes it 2^16 times larger, x
// smaller.
template <class A>
HWY_INLINE ScaledRow FinishScaled(const WideMoments<A>& scaled, int exponent, double eps) {
  const DScalar d;
  const auto var = Divide(d, scaled.m2, scaled.count);
  const double scaled_eps = std::ldexp(eps, -2 * exponent);
  const bool eps_alone = scaled_eps > std::numeric_limits<double>::max();  // var is below it by hundreds of places
  const Rstd scaled_rstd = eps_alone ? Rstd{0, 0} : RstdOfRow(var, scaled_eps);
  ScaledRow row{};
  row.by_eps = hn::GetLane(var.hi) == 0 || eps_alone;
  row.rstd = row.by_eps ? RstdOfConstant<A>(eps)
                        : Rstd{std::ldexp(scaled_rstd.hi, -exponent), std::ldexp(scaled_rstd.lo, -exponent)};
  row.mean = std::ldexp(hn::GetLane(scaled.mean.hi), exponent);
  const int shift = std::ldexp(row.rstd.hi, exponent) < static_cast<double>(std::numeric_limits<A>::min()) ? 16 : 0;
  row.map_exponent = exponent + shift;
  row.scalars.rstd = eps_alone ? std::ldexp(row.rstd.hi, row.map_exponent) : std::ldexp(scaled_rstd.hi, shift);
  row.rstd_lo = eps_alone ? std::ldexp(row.rstd.lo, row.map_exponent) : std::ldexp(scaled_rstd.lo, shift);
  row.scalars.mean_hi = std::ldexp(hn::GetLane(scaled.mean.hi), -shift);
  row.scalars.mean_lo = std::ldexp(hn::GetLane(scaled.mean.Low(d)), -shift);
  return row;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
