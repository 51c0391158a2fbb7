// See wrong_gradients.hpp.
#include "learn/explain/wrong_gradients.hpp"

namespace evenorm::cli {
namespace {

// dx = (g - take_off - xhat * factor) / sigma
std::vector<double> dx_of(const GradientParts& parts, double take_off, double factor) {
  std::vector<double> dx;
  for (std::size_t i = 0; i < parts.g.size(); ++i) {
    dx.push_back((parts.g[i] - take_off - parts.xhat[i] * factor) / parts.sigma);
  }
  return dx;
}

}  // namespace

std::vector<WrongGradient> wrong_gradients(const GradientParts& parts) {
  const auto n = static_cast<double>(parts.g.size());
  const bool layer = parts.kind == Kind::layer;
  double sum_g = 0, sum_g_xhat = 0;
  for (std::size_t i = 0; i < parts.g.size(); ++i) {
    sum_g += parts.g[i];
    sum_g_xhat += parts.g[i] * parts.xhat[i];
  }
  std::vector<WrongGradient> all;
  all.push_back({"constants", "dx = g / sigma",
                 layer ? "mean and sigma are treated as constants, but both depend on every x"
                       : "sigma is treated as a constant, but it depends on every x",
                 dx_of(parts, 0, 0)});
  if (layer) {
    all.push_back({"constant-sigma", "dx = (g - mean(g)) / sigma",
                   "the mean depends on x, but sigma is still treated as a constant", dx_of(parts, sum_g / n, 0)});
  } else {
    all.push_back({"mean-taken-off", "dx = (g - mean(g) - xhat * mean(g * xhat)) / sigma",
                   "layer norm's formula: RMS norm subtracts no mean, so its gradient does not either",
                   dx_of(parts, sum_g / n, sum_g_xhat / n)});
  }
  if (parts.g.size() > 1) {
    all.push_back({"unbiased-backward",
                   layer ? "dx = (g - mean(g) - xhat * (sum of g * xhat) / (D - 1)) / sigma"
                         : "dx = (g - xhat * (sum of g * xhat) / (D - 1)) / sigma",
                   "D - 1 belongs to the derivative of the \"unbiased\" variance, which the forward pass does not use",
                   dx_of(parts, layer ? sum_g / n : 0, sum_g_xhat / (n - 1))});
  }
  return all;
}

}  // namespace evenorm::cli
