// Layer norm and RMS norm calculated by hand: every step is rounded to a number of decimals before the next.
#pragma once

#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

struct HandInput {
  Kind kind = Kind::layer;
  std::vector<double> x, gamma, beta;  // all of x's size; gamma is the factor itself
  double eps = 0;
};

// All results are rounded except y. Squares are not rounded before they are summed.
struct HandSteps {
  double mean = 0, var = 0, std = 0, sigma = 0;
  std::vector<double> deviation, xhat, y;
};

HandSteps calculate_by_hand(const HandInput& input, int decimals);

// Continues from steps.var, which may be wrong.
void continue_from_variance(const HandInput& input, int decimals, HandSteps& steps);

// Continues from steps.sigma.
void continue_from_sigma(const HandInput& input, int decimals, HandSteps& steps);

// The backward pass from rounded steps. g and the means are rounded; dx and dgamma are not.
struct HandGradients {
  double mean_g = 0, mean_g_xhat = 0;  // RMS norm has no mean_g
  std::vector<double> g, dx, dgamma;
};

HandGradients gradients_by_hand(const HandInput& input, const std::vector<double>& dy, const HandSteps& steps,
                                int decimals);

}  // namespace evenorm::cli
