// One row and its parameters in binary128, for the exact numbers of explain.
#pragma once

#include <vector>

#include "learn/explain/explain_input.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {

std::vector<reference::Real> reals(const contracts::Array& values);
std::vector<double> doubles(const std::vector<reference::Real>& values);

struct RealRow {
  RealRow(const ExplainInput& input, const contracts::Array& values);
  RealRow(const RealRow&) = delete;  // parameters refers to its own members
  RealRow& operator=(const RealRow&) = delete;

  std::vector<reference::Real> y() const { return reference::apply(x, moments, rstd, parameters); }

  std::vector<reference::Real> x, gamma, beta;
  reference::Moments moments;
  reference::Real rstd;
  reference::Parameters parameters;
};

// 1 / rstd, or 0 if rstd is 0 by definition.
double inverse(reference::Real rstd);

// The largest difference between `own` and the exact numbers. NaN if only one of a pair is NaN.
double largest_difference(const std::vector<reference::Real>& exact, const std::vector<double>& own);

}  // namespace evenorm::cli
