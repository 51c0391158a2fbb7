// Layer norm and RMS norm as calculated by hand: every step rounded to a number of decimals before the next.
// Knows nothing of evenorm's types.
#pragma once

#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

struct HandInput {
  Kind kind = Kind::layer;
  std::vector<double> x, gamma, beta;  // gamma and beta of x's size; gamma as it multiplies
  double eps = 0;
};

// All are rounded but y, which is left as it comes out of rounded numbers. Squares are not rounded before their sum.
struct HandSteps {
  double mean = 0, var = 0, std = 0, sigma = 0;
  std::vector<double> deviation, xhat, y;
};

HandSteps calculate_by_hand(const HandInput& input, int decimals);

// The same from a variance on, which may be a wrong one.
void continue_from_variance(const HandInput& input, int decimals, HandSteps& steps);

// The same from a sigma on.
void continue_from_sigma(const HandInput& input, int decimals, HandSteps& steps);

// The backward pass from rounded steps. g and the means are rounded, dx and dgamma are left as they come out of them.
struct HandGradients {
  double mean_g = 0, mean_g_xhat = 0;  // RMS norm does not ask for the first
  std::vector<double> g, dx, dgamma;
};

HandGradients gradients_by_hand(const HandInput& input, const std::vector<double>& dy, const HandSteps& steps,
                                int decimals);

}  // namespace evenorm::cli
