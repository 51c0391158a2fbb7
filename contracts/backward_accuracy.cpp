// How errors of gradients are measured against the reference.
#include "contracts/backward_accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/spec.hpp"

namespace evenorm::contracts {
namespace {

using reference::Real;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// In binary128, as are the bounds until they are whole: on the way they may leave f64's range.
Real magnitude(Real a) { return a < 0 ? -a : a; }

// A NaN must not get lost.
double worse(double a, double b) { return a >= b || a != a ? a : b; }

// Of one row: h_i = |xhat_i| + e, what an error of xhat_i is measured in. e is what the last places of the mean are
// worth, which reaches every xhat alike, however small; RMS norm and a constant row have none. In f64 arithmetic e is
// 1, an error of the mean in units of the standard deviation, or in RMS norm what a scaled row may lose of small x.
std::vector<Real> xhat_terms(const Operation& op, std::span<const Real> x, std::span<const Real> xhat,
                             const reference::Moments& m, Real rstd) {
  const Real largest_x = magnitude(std::ranges::max(x, {}, magnitude));
  const bool has_mean = op.kind == Kind::layer && m.var != 0, is_f64 = op.arithmetic() == DType::f64;
  const Real of_mean = !has_mean ? 0 : is_f64 ? 1 : 2 * unit_roundoff(DType::f32) * largest_x * rstd;
  const Real of_scaling = is_f64 && op.kind == Kind::rms ? Real{0x1p-1000} * largest_x * rstd : 0;
  std::vector<Real> h;
  h.reserve(xhat.size());
  for (const Real v : xhat) h.push_back(magnitude(v) + of_mean + (v != 0 ? of_scaling : 0));
  return h;
}

// The power of two by which f64 arithmetic scales a row's x: 1 unless rstd is out of range, and not by eps alone.
Real scale_of(std::span<const Real> x, Real var, Real rstd, double eps) {
  constexpr internal::RstdRange kRange = internal::kRstdRange<double>;
  const Real largest = magnitude(std::ranges::max(x, {}, magnitude));
  if (var == 0 || (rstd >= Real{kRange.least} && rstd <= Real{kRange.most})) return 1;
  const int exponent = std::max(std::ilogb(static_cast<double>(largest)), -1022);
  if (std::ldexp(eps, -2 * exponent) > internal::kLargestScaledEps) return 1;
  return Real{std::ldexp(1.0, -exponent)};
}

// mean|g|, 0 for RMS norm, and mean(|g| h).
struct MeanMagnitudes {
  Real g, gh;
};

MeanMagnitudes mean_magnitudes(Kind kind, const std::vector<Real>& g, const std::vector<Real>& h) {
  Real of_g = 0, of_gh = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (kind == Kind::layer) of_g += magnitude(g[i]);
    of_gh += magnitude(g[i]) * h[i];
  }
  const auto cols = static_cast<Real>(g.size());
  return {of_g / cols, of_gh / cols};
}

// Whether the sums and products of a row may leave the range of f64 on the way. rstd: of the row as scaled.
bool may_overflow(const std::vector<Real>& g, const MeanMagnitudes& means, Real rstd, Real cols) {
  return std::max({magnitude(std::ranges::max(g, {}, magnitude)), means.g * cols, means.gh * rstd * rstd,
                   means.g * rstd, rstd == 0 ? 0 : means.gh * cols / rstd}) > Real{0x1p1020};
}

// Whether a result of these terms, which is off by at most `error` of them, may be past f64's range.
bool may_leave_range(Real terms, double error) { return terms * (1 + Real{error}) > Real{largest_finite(DType::f64)}; }

}  // namespace

GradientLimits gradient_limits(const Operation& op) {
  const int added = op.weight && op.zero_centered ? 1 : 0;
  if (op.arithmetic() == DType::f64) {
    const auto levels = static_cast<double>(levels_of_tree(op.cols));
    const auto rows = static_cast<double>(2 * internal::least_rows_of_block(op.x));  // of a row block, at most
    return {(op.kind == Kind::layer ? 552 + 43 * levels : 150 + 4 * levels) + added, 210 + 15 * levels + rows / 4,
            13 + rows / 4};
  }
  // The term of xhat_i takes the most: the sum of g d and k2, and both fmas; in layer norm also x - mean, twice.
  const int roundings = (op.kind == Kind::layer ? 10 : 8) + added;
  return {roundings + kOfStatistics, 9 + kOfStatistics, 5 + kOfStatistics};
}

void GradientErrors::include(const GradientErrors& other) {
  dx = worse(dx, other.dx);
  dgamma = worse(dgamma, other.dgamma);
  dbeta = worse(dbeta, other.dbeta);
}

bool GradientErrors::within_limits(const Operation& op) const {
  const GradientLimits limits = gradient_limits(op);
  return dx <= limits.dx && dgamma <= limits.dgamma && dbeta <= limits.dbeta;
}

ExpectedGradients::ExpectedGradients(const Operation& op, const Array& x, const Array& dy, const Array& weight)
    : op_(op) {
  const std::vector<Real> wide_x = reference::widen(op.x, x.data(), x.size());
  const std::vector<Real> wide_dy = reference::widen(op.y, dy.data(), dy.size());
  const std::vector<Real> gamma = reference::widen(weight.dtype(), weight.data(), op.weight ? op.cols : 0);
  dgamma_ = {{}, std::vector<long double>(op.cols), std::vector<double>(op.cols, 1)};
  dbeta_ = dgamma_;
  reference::ParameterGradients sums(op.cols);
  for (std::size_t first = 0; first < x.size(); first += op.cols) {
    add_row(std::span(wide_x).subspan(first, op.cols), std::span(wide_dy).subspan(first, op.cols),
            {gamma, {}, op.zero_centered}, sums);
  }
  for (std::size_t i = 0; i < op.cols; ++i) {
    dgamma_.exact.push_back(to_pair(sums.dgamma()[i]));
    dbeta_.exact.push_back(to_pair(sums.dbeta()[i]));
    if (dgamma_.terms[i] == 0) dgamma_.quanta[i] = 0;
  }
}

void ExpectedGradients::add_row(std::span<const Real> x, std::span<const Real> dy,
                                const reference::Parameters& parameters, reference::ParameterGradients& sums) {
  const reference::Moments m = reference::moments(op_.kind, x);
  const Real rstd = reference::rstd(m, op_.eps);
  const std::vector<Real> xhat = reference::apply(x, m, rstd, {});
  const std::vector<Real> h = xhat_terms(op_, x, xhat, m, rstd);
  const reference::GradientSums of_row = reference::gradient_sums(op_.kind, xhat, dy, parameters);
  const std::vector<Real> dx = reference::dx_of_sums(of_row, xhat, rstd);
  const std::vector<Real>& g = of_row.g;
  const MeanMagnitudes means = mean_magnitudes(op_.kind, g, h);
  const auto growth = static_cast<Real>(growth_by_mean(op_, m));
  const bool is_f64 = op_.arithmetic() == DType::f64;
  const Real scale = is_f64 ? scale_of(x, m.var, rstd, op_.eps) : 1, scaled_rstd = rstd / scale;
  const bool overflows = is_f64 && may_overflow(g, means, scaled_rstd, static_cast<Real>(op_.cols));
  const bool no_gradient = rstd == 0 || (op_.kind == Kind::layer && op_.cols == 1);
  const double error = gradient_limits(op_).dx * unit_roundoff(op_.arithmetic());
  for (std::size_t i = 0; i < op_.cols; ++i) {
    const Real of_dy = magnitude(dy[i]);
    const Real terms = growth * rstd * (magnitude(g[i]) + means.g + h[i] * means.gh);
    const Real of_k2 = is_f64 && rstd != 0 ? h[i] / scaled_rstd * scale : 0;  // c2 rstd^2 may be subnormal
    const Real quanta = 2 + (1 + rstd) * rstd * (1 + h[i] + means.gh) + of_k2;
    dx_.exact.push_back(to_pair(dx[i]));
    // The dx of the scaled row may leave the range where dx does not.
    const bool leaves = overflows || (!no_gradient && may_leave_range(terms / scale, error));
    dx_.terms.push_back(leaves ? kInfinity : no_gradient ? 0 : static_cast<long double>(terms));
    dx_.quanta.push_back(no_gradient ? 0 : static_cast<double>(quanta));
    dgamma_.terms[i] += static_cast<long double>(growth * of_dy * h[i]);
    dgamma_.quanta[i] += static_cast<double>(1 + of_dy * (scale != 1 ? std::max(Real{1}, scaled_rstd) : Real{1}));
    dbeta_.terms[i] += static_cast<long double>(of_dy);
  }
  sums.add_row(x, dy, m, rstd);
}

double ExpectedGradients::error_of(const Array& values, const Bounded& expected, double limit) const {
  const double u = unit_roundoff(op_.arithmetic());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Within the bound of a result near the end of f64's range, some numbers are past it.
    const long double terms = may_leave_range(expected.terms[i], limit * u) ? kInfinity : expected.terms[i];
    const ResultBound bound{op_.arithmetic(), values.dtype(), terms, expected.quanta[i]};
    worst = worse(worst, error_in_u(bits_at(values, i), expected.exact[i], bound));
  }
  return worst;
}

GradientErrors ExpectedGradients::errors_of(const Array& dx, const Array& dgamma, const Array& dbeta) const {
  const GradientLimits limits = gradient_limits(op_);
  return {error_of(dx, dx_, limits.dx), error_of(dgamma, dgamma_, limits.dgamma),
          error_of(dbeta, dbeta_, limits.dbeta)};
}

}  // namespace evenorm::contracts
