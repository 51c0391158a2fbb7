// See by_hand.hpp.
#include "learn/explain/by_hand.hpp"

#include <cmath>

#include "learn/explain/decimal.hpp"

namespace evenorm::cli {
namespace {

constexpr int kFarBehind = 12;  // removes binary's errors from decimals, but nothing that a hand would write

}  // namespace

HandSteps calculate_by_hand(const HandInput& input, int decimals) {
  const auto n = static_cast<double>(input.x.size());
  HandSteps steps;
  if (input.kind == Kind::layer) {
    for (const double v : input.x) steps.mean += v;
    steps.mean = round_by_hand(steps.mean / n, decimals);
  }
  double squares = 0;
  for (const double v : input.x) {
    const double deviation = input.kind == Kind::layer ? round_by_hand(v - steps.mean, decimals) : v;
    steps.deviation.push_back(deviation);
    squares += deviation * deviation;
  }
  steps.var = round_by_hand(squares / n, decimals);
  continue_from_variance(input, decimals, steps);
  return steps;
}

void continue_from_variance(const HandInput& input, int decimals, HandSteps& steps) {
  steps.std = round_by_hand(std::sqrt(steps.var), decimals);
  steps.sigma = round_by_hand(std::sqrt(steps.var + input.eps), decimals);
  continue_from_sigma(input, decimals, steps);
}

void continue_from_sigma(const HandInput& input, int decimals, HandSteps& steps) {
  steps.xhat.clear();
  steps.y.clear();
  for (std::size_t i = 0; i < input.x.size(); ++i) {
    steps.xhat.push_back(round_by_hand(steps.deviation[i] / steps.sigma, decimals));
    steps.y.push_back(round_by_hand(input.gamma[i] * steps.xhat[i] + input.beta[i], kFarBehind));
  }
}

HandGradients gradients_by_hand(const HandInput& input, const std::vector<double>& dy, const HandSteps& steps,
                                int decimals) {
  const auto n = static_cast<double>(dy.size());
  HandGradients hand;
  double sum = 0, products = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) {
    hand.g.push_back(round_by_hand(dy[i] * input.gamma[i], decimals));
    sum += hand.g[i];
    products += hand.g[i] * steps.xhat[i];
    hand.dgamma.push_back(round_by_hand(dy[i] * steps.xhat[i], kFarBehind));
  }
  if (input.kind == Kind::layer) hand.mean_g = round_by_hand(sum / n, decimals);
  hand.mean_g_xhat = round_by_hand(products / n, decimals);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const double dx = (hand.g[i] - hand.mean_g - steps.xhat[i] * hand.mean_g_xhat) / steps.sigma;
    hand.dx.push_back(round_by_hand(dx, kFarBehind));
  }
  return hand;
}

}  // namespace evenorm::cli
