// See by_hand.hpp.
#include "by_hand.hpp"

#include <cmath>

#include "decimal.hpp"

namespace evenorm::cli {
namespace {

constexpr int kFarBehind = 12;  // takes off what binary adds to decimals, and nothing that a hand would write

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

}  // namespace evenorm::cli
