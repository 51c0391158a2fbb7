// Rows of f64 arithmetic whose x, dy or gamma would leave the range on the way: scaled by powers of two, element by
// element, in double-double. Rows that hold a NaN or an infinity come out as they should here, too.
// Included once per target.
#if defined(EVENORM_KERNELS_GRADIENT_SCALED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_GRADIENT_SCALED_INL_H_
#undef EVENORM_KERNELS_GRADIENT_SCALED_INL_H_
#else
#define EVENORM_KERNELS_GRADIENT_SCALED_INL_H_
#endif

#include "kernels/gradient_map-inl.h"
#include "kernels/gradient_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The exponent that takes a largest magnitude to about 1; 0 for what is 0 or not finite.
inline int ScaleExponent(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 0;
  return std::ilogb(largest);
}

// One row, given its scalars.
class ScaledGradient {
 public:
  using W = Paired<DScalar>;

  explicit ScaledGradient(const GradientScalars& s) : s_(s) {}

  // Adds n elements to a row's sums of g and g (x - mean).
  void Sum(const double* x, const double* dy, const double* gamma, size_t n, W* g, W* gd) const {
    const DScalar d;
    for (size_t i = 0; i < n; ++i) {
      const W of_xhat = G(LoadOne(dy + i), LoadOne(gamma + i));
      *g = Add(d, *g, of_xhat);
      *gd = Add(d, *gd, Multiply(d, of_xhat, Centred(LoadOne(x + i))));
    }
  }

  // Adds n elements to the sums over rows.
  void AddToColumns(const double* x, const double* dy, size_t n, const ColumnPlaces<double>& to) const {
    const DScalar d;
    for (size_t i = 0; i < n; ++i) {
      const W xhat = Times(d, Centred(LoadOne(x + i)), hn::Set(d, s_.rstd));
      const W term = Times(d, xhat, hn::Set(d, std::ldexp(LoadOne(dy + i), -s_.dy_exponent)));
      Accumulate(to.dgamma + i, to.low, std::ldexp(hn::GetLane(term.hi), s_.dy_exponent),
                 std::ldexp(hn::GetLane(term.lo), s_.dy_exponent));
      Accumulate(to.dbeta + i, to.low, LoadOne(dy + i), 0);
    }
  }

  // dx of n elements; `zero`: it is 0 by definition.
  void Map(bool zero, const double* x, const double* dy, const double* gamma, size_t n, double* dx) const {
    const DScalar d;
    const W c1{hn::Set(d, s_.c1_hi), hn::Set(d, s_.c1_lo)}, c2{hn::Set(d, s_.c2_hi), hn::Set(d, s_.c2_lo)};
    const bool finite = std::isfinite(s_.c1_hi) && std::isfinite(s_.c2_hi);
    int exponent = 0;  // of rstd, put back at the end: in between nothing shall be subnormal that need not be
    const auto significand = hn::Set(d, std::frexp(s_.rstd, &exponent)), rstd = hn::Set(d, s_.rstd);
    for (size_t i = 0; i < n; ++i) {
      const W xhat = Times(d, Centred(LoadOne(x + i)), rstd);
      const W along = Add(d, c1, Multiply(d, xhat, c2));
      const W rest = Times(d, Add(d, G(LoadOne(dy + i), LoadOne(gamma + i)), Negate(d, along)), significand);
      const double value = std::ldexp(hn::GetLane(rest.hi), exponent + s_.dx_exponent);
      const bool number = finite && value == value;
      StoreOne(!number ? std::numeric_limits<double>::quiet_NaN() : zero ? 0 : value, dx + i);
    }
  }

 private:
  W G(double dy, double gamma) const {
    const DScalar d;
    return TwoProduct(d, hn::Set(d, std::ldexp(dy, -s_.dy_exponent)),
                      hn::Set(d, std::ldexp(gamma, -s_.gamma_exponent)));
  }
  W Centred(double x) const {
    const DScalar d;
    return Difference(d, hn::Set(d, std::ldexp(x, -s_.x_exponent)), W{hn::Set(d, s_.mean_hi), hn::Set(d, s_.mean_lo)});
  }
  static void Accumulate(double* sum, size_t low, double hi, double lo) {
    const DScalar d;
    W total{hn::Set(d, sum[0]), hn::Set(d, sum[low])};
    AccumulateSum(d, total, hn::Set(d, hi));
    sum[0] = hn::GetLane(total.hi);
    sum[low] = hn::GetLane(total.lo) + lo;
  }

  const GradientScalars& s_;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
