// See real_row.hpp.
#include "learn/explain/real_row.hpp"

#include <algorithm>
#include <cmath>

namespace evenorm::cli {

using reference::Real;

std::vector<Real> reals(const contracts::Array& values) {
  return reference::widen(values.dtype(), values.data(), values.size());
}

std::vector<double> doubles(const std::vector<Real>& values) {
  std::vector<double> result;
  result.reserve(values.size());
  for (const Real v : values) result.push_back(static_cast<double>(v));
  return result;
}

RealRow::RealRow(const ExplainInput& input, const contracts::Array& values)
    : x(reals(values)), gamma(reals(input.weight)), beta(reals(input.bias)) {
  moments = reference::moments(input.kind, x);
  rstd = reference::rstd(moments, input.eps);
  parameters = {gamma, beta, input.zero_centered};
}

double inverse(Real rstd) { return rstd == 0 ? 0 : static_cast<double>(1 / rstd); }

double largest_difference(const std::vector<Real>& exact, const std::vector<double>& own) {
  double largest = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (static_cast<Real>(own[i]) == exact[i] || (std::isnan(own[i]) && exact[i] != exact[i])) continue;
    const auto difference = static_cast<double>(static_cast<Real>(own[i]) - exact[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, std::abs(difference));
  }
  return largest;
}

}  // namespace evenorm::cli
