// Where precision is lost: errors on one row as its mean grows, and as it is scaled down. The reference computes exact
// numbers, the library evenorm's.
#include <cmath>
#include <limits>
#include <span>

#include "evenorm/evenorm.hpp"
#include "learn/explain/pictures_of_input.hpp"
#include "learn/explain/real_row.hpp"

namespace evenorm::cli {
namespace {

using reference::Moments;
using reference::Real;
using Reals = std::vector<Real>;

constexpr int kPowers = 8;  // of ten, in half steps
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// 10^(halves / 2) with the same bits everywhere; std::pow does not guarantee that.
double half_power_of_ten(int halves) {
  double power = halves % 2 == 0 ? 1 : std::sqrt(10.0);
  for (int i = 0; i < halves / 2; ++i) power *= 10;
  return power;
}

bool finite(Real value) { return value - value == 0; }

double std_of(const Moments& moments) { return inverse(reference::rstd(moments, 0)); }

Reals exact_xhat(const Reals& x, const Moments& moments, double eps) {
  return reference::apply(x, moments, reference::rstd(moments, eps), {});
}

// Layer norm of one row as it is often written: every operation in f32, all sums in order. Only the picture of their
// errors uses these functions.
float count(std::span<const float> x) { return static_cast<float>(x.size()); }

float mean_of(std::span<const float> x) {
  float sum = 0;
  for (const float v : x) sum += v;
  return sum / count(x);
}

std::vector<float> normalised(std::span<const float> x, float mean, float var, float eps) {
  const float sigma = std::sqrt(var + eps);
  std::vector<float> xhat;
  xhat.reserve(x.size());
  for (const float v : x) xhat.push_back((v - mean) / sigma);
  return xhat;
}

// var = E[x^2] - E[x]^2
std::vector<float> textbook_norm(std::span<const float> x, float eps) {
  float squares = 0;
  for (const float v : x) squares += v * v;
  const float mean = mean_of(x);
  return normalised(x, mean, squares / count(x) - mean * mean, eps);
}

// First the mean, then the squared deviations from it.
std::vector<float> two_pass_norm(std::span<const float> x, float eps) {
  const float mean = mean_of(x);
  float squares = 0;
  for (const float v : x) squares += (v - mean) * (v - mean);
  return normalised(x, mean, squares / count(x), eps);
}

// Mean and variance in one pass, by updates.
std::vector<float> welford_norm(std::span<const float> x, float eps) {
  float mean = 0, squares = 0, seen = 0;
  for (const float v : x) {
    const float before = v - mean;
    mean += before / ++seen;
    squares += before * (v - mean);
  }
  return normalised(x, mean, squares / count(x), eps);
}

std::vector<float> own_norm(const std::vector<float>& x, double eps) {
  std::vector<float> y(x.size());
  layer_norm<float>(x, y, x.size(), {.eps = eps});
  return y;
}

// The largest error of a method's result. NaN if the result is not finite.
double error_of(const std::vector<float>& xhat, const Reals& exact) {
  const double error = largest_difference(exact, {xhat.begin(), xhat.end()});
  return std::isfinite(error) ? error : kNoNumber;
}

PrecisionErrors errors_of(const std::vector<float>& x, const Reals& exact, double eps) {
  if (!finite(exact[0])) return {kNoNumber, kNoNumber, kNoNumber, kNoNumber};  // the shifted row is out of f32's range
  const auto narrow = static_cast<float>(eps);
  return {error_of(textbook_norm(x, narrow), exact), error_of(two_pass_norm(x, narrow), exact),
          error_of(welford_norm(x, narrow), exact), error_of(own_norm(x, eps), exact)};
}

// Moves the row's mean to 10^(halves / 2) units.
ShiftedRow shifted(const Reals& x, Real mean, double unit, int halves, double eps) {
  ShiftedRow result;
  result.power = halves / 2.0;
  result.shift = unit * half_power_of_ten(halves);
  std::vector<float> row(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    reference::store(DType::f32, row.data(), i, x[i] - mean + static_cast<Real>(result.shift));
  }
  const Reals held(row.begin(), row.end());
  const Moments moments = reference::moments(Kind::layer, held);
  result.var = static_cast<double>(moments.var);
  result.std_over_mean = std_of(moments) / std::abs(static_cast<double>(moments.mean));
  result.errors = errors_of(row, exact_xhat(held, moments, eps), eps);
  return result;
}

ScaledRow scaled(const Reals& x, int halves, double eps) {
  const double scale = half_power_of_ten(halves);
  Reals row;
  for (const Real v : x) row.push_back(static_cast<Real>(static_cast<double>(v) / scale));
  const Moments moments = reference::moments(Kind::layer, row);
  const Real plain = reference::rstd(moments, 0);
  const Real out = plain == 0 ? 0 : reference::rstd(moments, eps) / plain;
  return {halves == 0 ? 0 : -halves / 2.0, inverse(plain), static_cast<double>(out)};
}

Divisor divisor(const Reals& x) {
  const std::vector<double> row = doubles(x);
  std::vector<double> xhat(row.size());
  layer_norm<double>(row, xhat, row.size(), {.eps = 0});
  const double var = static_cast<double>(reference::moments(Kind::layer, Reals(xhat.begin(), xhat.end())).var);
  const auto n = static_cast<double>(row.size());
  return {row.size(), var, var * (n - 1) / n};
}

}  // namespace

std::optional<Precision> precision(const Reals& x, double eps) {
  const Moments moments = reference::moments(Kind::layer, x);
  if (x.size() < 2 || !finite(moments.mean)) return std::nullopt;
  Precision result;
  if (const double unit = std_of(moments); unit > 0) result.unit = unit;
  for (int halves = 0; halves <= 2 * kPowers; ++halves) {
    result.shifted.push_back(shifted(x, moments.mean, result.unit, halves, eps));
    result.scaled.push_back(scaled(x, halves, eps));
  }
  if (moments.var > 0) result.divisor = divisor(x);
  return result;
}

}  // namespace evenorm::cli
