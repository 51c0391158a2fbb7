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

// The range of the magnitudes of some elements, but for zeros.
class MagnitudeRange {
 public:
  void Include(const double* values, size_t n) {
    const hn::ScalableTag<double> d;
    constexpr size_t kN = hn::MaxLanes(d);
    auto least = hn::Set(d, least_), largest = hn::Set(d, largest_), watch = hn::Zero(d);
    const auto include = [&](hn::Vec<decltype(d)> v) HWY_ATTR {
      const auto magnitude = hn::Abs(v);
      const auto absent = hn::Set(d, std::numeric_limits<double>::infinity());
      least = hn::Min(least, hn::IfThenElse(hn::Eq(magnitude, hn::Zero(d)), absent, magnitude));
      largest = hn::Max(largest, magnitude);
      watch = hn::MulAdd(v, hn::Zero(d), watch);  // Min() and Max() may drop a NaN
    };
    size_t i = 0;
    for (; i + kN <= n; i += kN) include(hn::LoadU(d, values + i));
    double tail[kN] = {};
    std::memcpy(tail, values + i, (n - i) * sizeof(double));
    include(hn::LoadU(d, tail));
    least_ = hn::GetLane(hn::MinOfLanes(d, least));
    largest_ = hn::GetLane(hn::MaxOfLanes(d, largest));
    finite_ = finite_ && hn::AllTrue(d, hn::Eq(watch, hn::Zero(d)));
  }
  bool IsWithin(double low, double high) const { return finite_ && least_ >= low && largest_ <= high; }

 private:
  double least_ = std::numeric_limits<double>::infinity(), largest_ = 0;
  bool finite_ = true;
};

// The exponent that takes a largest magnitude to about 1; 0 for what is 0 or not finite.
inline int ScaleExponent(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 0;
  return std::ilogb(largest);
}

// Below all others, even twice.
inline constexpr int kExponentOfZero = -100000;

// One row, given its scalars.
class ScaledGradient {
 public:
  using W = Paired<DScalar>;

  explicit ScaledGradient(const GradientScalars& s) : s_(s) {}

  // The largest exponents of g and of g (x - mean) in n elements, where they are above what is there.
  void FindExponents(const double* x, const double* dy, const double* gamma, size_t n, int* g, int* gd) const {
    for (size_t i = 0; i < n; ++i) {
      const Term of_xhat = GTerm(LoadOne(dy + i), LoadOne(gamma + i));
      *g = HWY_MAX(*g, of_xhat.exponent);
      *gd = HWY_MAX(*gd, Product(of_xhat, CentredTerm(LoadOne(x + i))).exponent);
    }
  }

  // Adds n elements to a row's sums of g 2^-c1_exponent and g (x - mean) 2^-c2_exponent, as it is without rstd's. dy
  // and gamma are not scaled each by its largest: where one is huge the other may be tiny, and the products that matter
  // be subnormal.
  void Sum(const double* x, const double* dy, const double* gamma, size_t n, W* g, W* gd) const {
    const DScalar d;
    for (size_t i = 0; i < n; ++i) {
      const Term of_xhat = GTerm(LoadOne(dy + i), LoadOne(gamma + i));
      *g = Add(d, *g, of_xhat.Below(s_.c1_exponent));
      *gd = Add(d, *gd, Product(of_xhat, CentredTerm(LoadOne(x + i))).Below(s_.c2_exponent));
    }
  }

  // Adds n elements to the sums over rows. Factors keep exponents of their own until they are multiplied: beside a huge
  // x or dy, one would else be subnormal.
  void AddToColumns(const double* x, const double* dy, size_t n, const ColumnPlaces<double>& to) const {
    const DScalar d;
    const Term rstd = RstdTerm();
    for (size_t i = 0; i < n; ++i) {
      int of_dy = 0;
      const auto significand = hn::Set(d, std::frexp(LoadOne(dy + i), &of_dy));
      const Term t = CentredTerm(LoadOne(x + i));
      const W term = Times(d, Multiply(d, t.value, rstd.value), significand);
      const int exponent = t.exponent + rstd.exponent + of_dy;
      Accumulate(to.dgamma + i, to.low, std::ldexp(hn::GetLane(term.hi), exponent),
                 std::ldexp(hn::GetLane(term.lo), exponent));
      Accumulate(to.dbeta + i, to.low, LoadOne(dy + i), 0);
    }
  }

  // dx of n elements; `zero`: it is 0 by definition. Terms keep exponents of their own until they are added: beside a
  // huge dy, a g_i or xhat_i c2 that is all of dx_i would else be subnormal.
  void Map(bool zero, const double* x, const double* dy, const double* gamma, size_t n, double* dx) const {
    const DScalar d;
    const bool finite = std::isfinite(s_.c1_hi) && std::isfinite(s_.c2_hi);
    const Term c1 = Normalised({hn::Set(d, s_.c1_hi), hn::Set(d, s_.c1_lo)}, s_.c1_exponent);
    const Term c2 = Normalised({hn::Set(d, s_.c2_hi), hn::Set(d, s_.c2_lo)}, s_.c2_exponent);
    const Term rstd = RstdTerm();
    for (size_t i = 0; i < n; ++i) {
      const Term g = GTerm(LoadOne(dy + i), LoadOne(gamma + i)), t = CentredTerm(LoadOne(x + i));
      const Term along =
          Normalised(Multiply(d, Multiply(d, t.value, rstd.value), c2.value), t.exponent + rstd.exponent + c2.exponent);
      const int largest = HWY_MAX(g.exponent, HWY_MAX(c1.exponent, along.exponent));
      const W means = Add(d, c1.Below(largest), along.Below(largest));
      const W rest = Multiply(d, Add(d, g.Below(largest), Negate(d, means)), rstd.value);
      const double value = std::ldexp(hn::GetLane(rest.hi), largest + rstd.exponent);
      const bool number = finite && value == value;
      StoreOne(!number ? std::numeric_limits<double>::quiet_NaN() : zero ? 0 : value, dx + i);
    }
  }

 private:
  // value 2^exponent; 0 has an exponent below all others.
  struct Term {
    W value;
    int exponent;
    W Below(int largest) const { return Shifted(value, exponent - largest); }
  };
  static W Shifted(const W& w, int by) {
    const DScalar d;
    return {hn::Set(d, std::ldexp(hn::GetLane(w.hi), by)), hn::Set(d, std::ldexp(hn::GetLane(w.lo), by))};
  }
  static Term Normalised(const W& w, int exponent) {
    const double hi = hn::GetLane(w.hi);
    if (hi == 0) return {w, kExponentOfZero};
    const int own = ScaleExponent(std::fabs(hi));
    return {Shifted(w, -own), exponent + own};
  }

  // Of 0, too, since it is never compared.
  Term RstdTerm() const {
    int exponent = 0;
    const double hi = std::frexp(s_.rstd, &exponent);
    const DScalar d;
    return {{hn::Set(d, hi), hn::Set(d, std::ldexp(s_.rstd_lo, -exponent))}, exponent + s_.rstd_exponent};
  }
  static Term GTerm(double dy, double gamma) {
    const DScalar d;
    int of_dy = 0, of_gamma = 0;
    const auto dy_part = hn::Set(d, std::frexp(dy, &of_dy)), gamma_part = hn::Set(d, std::frexp(gamma, &of_gamma));
    return Normalised(TwoProduct(d, dy_part, gamma_part), of_dy + of_gamma);
  }
  static Term Product(const Term& a, const Term& b) {
    const DScalar d;
    return Normalised(Multiply(d, a.value, b.value), a.exponent + b.exponent);
  }
  W Centred(double x) const {
    const DScalar d;
    return Difference(d, hn::Set(d, std::ldexp(x, -s_.x_exponent)), W{hn::Set(d, s_.mean_hi), hn::Set(d, s_.mean_lo)});
  }
  // The same as a Term, of x itself; without a mean x is not scaled, which loses digits beside a huge one.
  Term CentredTerm(double x) const {
    if (s_.mean_hi != 0 || s_.mean_lo != 0) return Normalised(Centred(x), s_.x_exponent);
    const DScalar d;
    return Normalised({hn::Set(d, x), hn::Zero(d)}, 0);
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
