// Measures errors against the reference in binary128.
#include "contracts/accuracy.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace evenorm::contracts {
namespace {

using reference::Real;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double decode(DType dtype, std::uint64_t bits) { return static_cast<double>(reference::widen(dtype, &bits, 1)[0]); }

// Converts f64 and f32 directly. The 16-bit types use a table, because tests convert millions of them.
double value_of(DType dtype, std::uint64_t bits) {
  if (dtype == DType::f64) return std::bit_cast<double>(bits);
  if (dtype == DType::f32) return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  static const auto make_table = [](DType type) {
    std::vector<double> values(65536);
    for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = decode(type, i);
    return values;
  };
  static const std::vector<double> bf16 = make_table(DType::bf16), f16 = make_table(DType::f16);
  return (dtype == DType::bf16 ? bf16 : f16)[bits];
}

std::uint64_t sign_bit(DType dtype) { return std::uint64_t{1} << (8 * size_of(dtype) - 1); }

// The numbers, from `low` to `high`, that round to y in its type. The direction of ties does not matter here.
struct Interval {
  double low, high;
};

Interval numbers_rounding_to(DType dtype, std::uint64_t bits) {
  const std::uint64_t magnitude_bits = bits & ~sign_bit(dtype);
  const double magnitude = value_of(dtype, magnitude_bits);
  double nearer = 0, farther = kInfinity;
  if (std::isinf(magnitude)) {
    const double largest = largest_finite(dtype);
    nearer = dtype == DType::f64 ? largest : largest + (largest - value_of(dtype, magnitude_bits - 2)) / 2;
  } else {
    const double above = value_of(dtype, magnitude_bits + 1);
    if (magnitude_bits == 0) {
      return {-above / 2, above / 2};
    }
    const double below = value_of(dtype, magnitude_bits - 1);
    nearer = magnitude - (magnitude - below) / 2;
    farther = magnitude + (std::isinf(above) ? magnitude - below : above - magnitude) / 2;
  }
  return bits == magnitude_bits ? Interval{nearer, farther} : Interval{-farther, -nearer};
}

double distance(Pair exact, Interval interval) {
  const double below = (interval.low - exact.hi) - exact.lo;
  const double above = (exact.hi - interval.high) + exact.lo;
  return std::max({0.0, below, above});
}

}  // namespace

std::size_t levels_of_tree(std::size_t cols) {
  const std::size_t blocks = (cols + internal::kBlock - 1) / internal::kBlock;
  return static_cast<std::size_t>(std::bit_width(blocks - 1));
}

double output_limit(const Operation& op) {
  const int added = op.weight && op.zero_centered ? 1 : 0;
  if (op.arithmetic() == DType::f64) {
    const auto levels = static_cast<double>(levels_of_tree(op.cols));
    return (op.kind == Kind::layer ? 196 + 15 * levels : 42 + levels) + added;
  }
  // The roundings: rstd and two fused operations, and for layer norm x - centre or the offset.
  return (op.kind == Kind::layer ? 4 : 3) + added + kOfStatistics;
}

double mean_share(const Operation& op, double largest_xhat) {
  if (op.kind == Kind::rms || op.arithmetic() == DType::f64) return 0;
  return (3 + static_cast<double>(levels_of_tree(op.cols)) * (1 + largest_xhat)) * 0x1p-53;
}

double rstd_limit(const Operation& op) {
  if (op.arithmetic() != DType::f64) return kRstdLimit;
  return 133 + 12 * static_cast<double>(levels_of_tree(op.cols));
}

double growth_by_mean(const Operation& op, const reference::Moments& m) {
  if (op.kind == Kind::rms || op.arithmetic() != DType::f64 || m.var == 0) return 1;
  const Real rho_squared = Real{42 * 0x1p-53} * (m.mean * m.mean / m.var) * Real{42 * 0x1p-53};
  return 1 + static_cast<double>(rho_squared);
}

double unit_roundoff(DType arithmetic) { return arithmetic == DType::f64 ? 0x1p-53 : 0x1p-24; }

double mean_limit(std::size_t cols) {
  // additions in a lane, joins of lanes, and the division by n
  constexpr std::size_t kInBlock = internal::kBlock / internal::kLanes + 8;
  return static_cast<double>(kInBlock + 4 * levels_of_tree(cols));
}

Pair to_pair(Real value) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  const auto hi = static_cast<double>(value);
  if (std::isinf(hi)) {
    const double end = std::copysign(kLargest, hi);
    const auto beyond = static_cast<double>(value - static_cast<Real>(end));
    return std::isinf(beyond) ? Pair{hi, 0} : Pair{end, beyond};
  }
  if (hi != hi) return {hi, 0};
  return {hi, static_cast<double>(value - static_cast<Real>(hi))};
}

std::uint64_t bits_at(const Array& values, std::size_t i) {
  std::uint64_t bits = 0;
  const std::size_t bytes = size_of(values.dtype());
  std::memcpy(&bits, values.data() + i * bytes, bytes);
  return bits;
}

double value_at(const Array& values, std::size_t i) { return value_of(values.dtype(), bits_at(values, i)); }

std::vector<double> values_of(const Array& array) {
  std::vector<double> values(array.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(array, i);
  return values;
}

bool is_finite(const Array& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(value_at(values, i))) return false;
  }
  return true;
}

double error_in_u(std::uint64_t bits, Pair exact, const ResultBound& bound) {
  if (std::isinf(bound.terms)) return 0;  // an infinity is allowed, and its sign is not measured
  const double value = value_of(bound.output, bits);
  if (value != value || exact.hi != exact.hi) return kInfinity;
  if (std::isinf(exact.hi)) return value == exact.hi ? 0 : kInfinity;
  const bool rounded_after = bound.output != bound.arithmetic || std::isinf(value);
  const double apart = rounded_after ? distance(exact, numbers_rounding_to(bound.output, bits))
                                     : std::fabs((value - exact.hi) - exact.lo);
  const double excess = apart - bound.quanta * smallest_subnormal(bound.arithmetic) - bound.besides;
  if (excess <= 0) return 0;
  return static_cast<double>(static_cast<long double>(excess) / unit_roundoff(bound.arithmetic) / bound.terms);
}

double error_in_u(std::uint64_t y_bits, Pair exact, const OutputBound& bound) {
  const long double terms = static_cast<long double>(bound.scale) * bound.largest_xhat + bound.shift;
  const double more = bound.arithmetic == DType::f64 ? bound.scale * (2 * smallest_subnormal(DType::f64)) : 0;
  return error_in_u(y_bits, exact,
                    ResultBound{bound.arithmetic, bound.output, terms, bound.scale + 1, bound.besides + more});
}

double relative_error_in_u(double value, Real exact, double u) {
  const auto rounded = static_cast<double>(exact);
  if (std::isinf(rounded) || rounded == 0) return value == rounded ? 0 : kInfinity;
  const Pair pair = to_pair(exact);
  const double apart = std::fabs((value - pair.hi) - pair.lo) - smallest_subnormal(DType::f64);
  return apart <= 0 ? 0 : apart / std::fabs(pair.hi) / u;
}

void Errors::include(const Errors& other) {
  // Keeps a NaN.
  const auto worse = [](double a, double b) { return a >= b || a != a ? a : b; };
  output = worse(output, other.output);
  rstd = worse(rstd, other.rstd);
  mean = worse(mean, other.mean);
}

bool Errors::within_limits(const Operation& op) const {
  return output <= output_limit(op) && rstd <= rstd_limit(op) && mean <= 1;
}

Expected::Expected(const Operation& op, const Array& x, const Array& weight, const Array& bias) : op_(op) {
  const std::vector<Real> wide_x = reference::widen(op.x, x.data(), op.cols);
  const std::vector<Real> gamma = reference::widen(weight.dtype(), weight.data(), op.weight ? op.cols : 0);
  const std::vector<Real> beta = reference::widen(bias.dtype(), bias.data(), op.bias ? op.cols : 0);
  const reference::Parameters parameters{gamma, beta, op.zero_centered};
  moments_ = reference::moments(op.kind, wide_x);
  rstd_ = reference::rstd(moments_, op.eps);
  growth_ = growth_by_mean(op, moments_);
  largest_xhat_ = static_cast<double>(reference::largest_xhat(wide_x, moments_, rstd_));
  // the error of the row's mean, in units of its xhat
  const double offset = std::fabs(static_cast<double>(moments_.mean * rstd_));
  besides_ = moments_.var == 0 ? 0 : mean_share(op, largest_xhat_) * offset;
  const std::vector<Real> y = reference::apply(wide_x, moments_, rstd_, parameters);
  y_.resize(op.cols);
  largest_x_ = 0;
  for (std::size_t i = 0; i < op.cols; ++i) {
    y_[i] = to_pair(y[i]);
    largest_x_ = std::max(largest_x_, std::fabs(static_cast<double>(wide_x[i])));
    if (op.weight) scale_.push_back(std::fabs(static_cast<double>(reference::scale_at(parameters, i))));
    if (op.bias) shift_.push_back(std::fabs(static_cast<double>(reference::shift_at(parameters, i))));
  }
}

double Expected::error_of(const Array& y, std::size_t at, std::size_t i, double besides) const {
  const double exact = y_[i].hi, value = value_at(y, at);
  if (!std::isfinite(exact)) return value == exact || (value != value && exact != exact) ? 0 : kInfinity;
  const double scale = op_.weight ? scale_[i] : 1, shift = op_.bias ? shift_[i] : 0;
  return error_in_u(bits_at(y, at), y_[i],
                    OutputBound{op_.arithmetic(), y.dtype(), scale, largest_xhat_, shift, besides * scale});
}

Errors Expected::errors_of(const Array& y, std::size_t first, double mean, double rstd) const {
  Errors errors;
  for (std::size_t i = 0; i < op_.cols; ++i) errors.include({error_of(y, first + i, i, besides_) / growth_, 0, 0});
  errors.rstd = relative_error_in_u(rstd, rstd_, unit_roundoff(op_.arithmetic())) / growth_;
  if (op_.kind == Kind::layer) {
    const Pair exact = to_pair(moments_.mean);
    const double apart = std::fabs((mean - exact.hi) - exact.lo) - smallest_subnormal(DType::f64);
    const double allowed = mean_limit(op_.cols) * 0x1p-53 * largest_x_;
    errors.mean = apart <= 0 ? 0 : apart / allowed;
  }
  return errors;
}

}  // namespace evenorm::contracts
