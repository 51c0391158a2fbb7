// See backward_pair_accuracy.hpp.
#include "contracts/backward_pair_accuracy.hpp"

#include <algorithm>

namespace evenorm::contracts {
namespace {

using reference::Real;

Real magnitude(Real a) { return a < 0 ? -a : a; }

std::vector<Real> real(const Array& a) { return reference::widen(a.dtype(), a.data(), a.size()); }

// What each of the two sums may lose by its rounding, and what both dx may be off, in u.
Real terms_of(const ExactDx& a, const ExactDx& b, std::size_t i, const Real* dsum, const PairPass& pass) {
  const Real u = unit_roundoff(pass.first.arithmetic());
  const Real both = gradient_limits(pass.first).dx * a.terms[i] + gradient_limits(pass.second).dx * b.terms[i];
  const Real inner = dsum == nullptr ? Real{0} : (1 + u) * magnitude(b.dx[i] + *dsum);
  return both + inner + magnitude(a.dx[i] + b.dx[i] + (dsum == nullptr ? Real{0} : *dsum));
}

}  // namespace

double dx_error_of_pair(const PairPass& pass, const Array& dx) {
  const std::vector<Real> x = real(pass.x), dy = real(pass.dy), dy2 = real(pass.dy2), dsum = real(pass.dsum);
  const std::vector<Real> gamma = real(pass.weight), gamma2 = real(pass.weight2);
  const std::size_t cols = pass.first.cols;
  double worst = 0;
  for (std::size_t first = 0; first < x.size(); first += cols) {
    const auto row = [&](const std::vector<Real>& of) { return std::span(of).subspan(first, cols); };
    const ExactDx a = exact_dx(pass.first, row(x), row(dy), {gamma, {}, pass.first.zero_centered});
    const ExactDx b = exact_dx(pass.second, row(x), row(dy2), {gamma2, {}, pass.second.zero_centered});
    for (std::size_t i = 0; i < cols; ++i) {
      const Real* added = dsum.empty() ? nullptr : &dsum[first + i];
      const Real exact = a.dx[i] + b.dx[i] + (added == nullptr ? Real{0} : *added);
      const ResultBound bound{pass.first.arithmetic(), dx.dtype(),
                              static_cast<long double>(terms_of(a, b, i, added, pass)),
                              static_cast<double>(a.quanta[i] + b.quanta[i])};
      const double error = error_in_u(bits_at(dx, first + i), to_pair(exact), bound);
      if (worst == worst && !(error <= worst)) worst = error;  // a NaN stays
    }
  }
  return worst;
}

}  // namespace evenorm::contracts
