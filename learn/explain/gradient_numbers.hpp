// One row's gradients at every step: exactly, from the reference, and evenorm's own; and one of them by trying it out.
// Knows nothing of words and formulas.
#pragma once

#include <optional>
#include <vector>

#include "learn/explain/explain_input.hpp"
#include "learn/explain/real_row.hpp"
#include "reference/reference_backward.hpp"

namespace evenorm::cli {

// One row with dy and what follows from them, in binary128.
struct RealGradient {
  RealGradient(const ExplainInput& input, const contracts::Array& x, const contracts::Array& dy_values);

  RealRow row;
  std::vector<reference::Real> dy, xhat, dx;
  reference::GradientSums sums;
};

// Exact but for one rounding to f64 each.
struct ExactGradients {
  double sigma = 0;
  double sum_g = 0, mean_g = 0;  // RMS norm does not ask for them
  double sum_g_xhat = 0, mean_g_xhat = 0;
  double along_xhat = 0;  // sum of dx xhat
  std::vector<double> xhat, g, g_xhat, dx, dgamma, dbeta;
};

ExactGradients exact_gradients(const RealGradient& real);

struct OwnGradients {
  std::vector<double> dx, dgamma, dbeta;
};

// Of rows one after the other in x and dy; dx in x's type, dgamma and dbeta as `evenorm grad` writes them.
OwnGradients own_gradients(const ExplainInput& input, const contracts::Array& x, const contracts::Array& dy);

// At the element of the largest dx. None where a number is not finite, or sigma is 0.
std::optional<Trial> try_out(const ExplainInput& input, const contracts::Array& x, const RealGradient& real);

// Over all rows of the input that are shown.
GradientSums gradient_sums(const ExplainInput& input);

}  // namespace evenorm::cli
