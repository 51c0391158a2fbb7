// The numbers of every backward step of a row: exact and evenorm's own; and one gradient by a difference quotient.
#pragma once

#include <optional>
#include <vector>

#include "learn/explain/explain_input.hpp"
#include "learn/explain/real_row.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {

// One row with dy and the results that follow from them, in binary128.
struct RealGradient {
  RealGradient(const ExplainInput& input, const contracts::Array& x, const contracts::Array& dy_values);

  RealRow row;
  std::vector<reference::Real> dy, xhat, dx;
  reference::GradientSums sums;
};

// Exact values, each rounded once to f64.
struct ExactGradients {
  double sigma = 0;
  double sum_g = 0, mean_g = 0;  // RMS norm does not use them
  double sum_g_xhat = 0, mean_g_xhat = 0;
  double along_xhat = 0;  // the sum of dx * xhat
  std::vector<double> xhat, g, g_xhat, dx, dgamma, dbeta;
};

ExactGradients exact_gradients(const RealGradient& real);

struct OwnGradients {
  std::vector<double> dx, dgamma, dbeta;
};

// For consecutive rows in x and dy. dx has x's type; dgamma and dbeta have the types that `evenorm grad` writes.
OwnGradients own_gradients(const ExplainInput& input, const contracts::Array& x, const contracts::Array& dy);

// Tries the element with the largest dx. Returns nothing if a number is not finite or sigma is 0.
std::optional<Trial> try_out(const ExplainInput& input, const contracts::Array& x, const RealGradient& real);

// Sums over all rows that are shown.
GradientSums gradient_sums(const ExplainInput& input);

}  // namespace evenorm::cli
