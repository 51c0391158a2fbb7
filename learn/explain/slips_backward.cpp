// Slips of the backward pass. The right results are evenorm's own; difference quotients confirm them.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "evenorm/evenorm.hpp"
#include "learn/explain/slips.hpp"
#include "learn/explain/slips_numbers.hpp"
#include "learn/explain/wrong_gradients.hpp"

namespace evenorm::cli {
namespace {

using Row = SlipRow;

// The row of the worked example, and a gradient for it.
const Row kX{4, 2, 8}, kGamma{1.5, 1, 0.5}, kDy{1, 0, -1};

struct Gradients {
  Row dx, dgamma, dbeta;
};

Gradients gradients(const Row& x, const Row& dy, const Row& gamma) {
  Gradients result{Row(x.size()), Row(gamma.size()), Row(gamma.size())};
  layer_norm_backward<double>(dy, x, result.dx, gamma.size(),
                              {.weight = gamma, .dweight = result.dgamma, .dbias = result.dbeta, .eps = kSlipEps});
  return result;
}

// dx by difference quotients, without the formula.
Row tried_out() {
  constexpr double kStep = 1e-3;
  const auto loss = [](std::size_t i, double by) {
    Row x = kX;
    x[i] += by;
    const Row y = normed(x, x.size(), kGamma).y;
    return std::inner_product(y.begin(), y.end(), kDy.begin(), 0.0);
  };
  Row dx;
  for (std::size_t i = 0; i < kX.size(); ++i) dx.push_back((loss(i, kStep) - loss(i, -kStep)) / (2 * kStep));
  return dx;
}

// The wrong dx with this name.
WrongGradient wrong_gradient(std::string_view name) {
  GradientParts parts{Kind::layer, {}, normed(kX, kX.size()).y, normed(kX, kX.size()).sigma};
  for (std::size_t i = 0; i < kX.size(); ++i) parts.g.push_back(kDy[i] * kGamma[i]);
  for (WrongGradient& wrong : wrong_gradients(parts)) {
    if (wrong.name == name) return std::move(wrong);
  }
  return {};
}

// The sum of the values, or 0 if it is only rounding.
double sum_of(const Row& values) {
  constexpr double kNothing = 1e-12;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return std::abs(sum) < kNothing ? 0 : sum;
}

// The figures that reveal a slip: the sums, or only dx by difference quotients.
constexpr Telling kSums{1, 1}, kTriedOut{0, 2};

Slip wrong_dx(const char* name, const char* title, Telling telling, const std::string& how) {
  const WrongGradient wrong = wrong_gradient(name);
  const Row right = gradients(kX, kDy, kGamma).dx;
  return {name,
          title,
          fmt::format("{}, with g = dy * gamma; here x = {}, gamma = {}, dy = {}", wrong.formula, slip_list(kX),
                      slip_list(kGamma), slip_list(kDy)),
          {{"dx, as written", "", wrong.dx}, {"sum of that", "", {sum_of(wrong.dx)}}},
          {{"dx", "(g - mean(g) - xhat * mean(g * xhat)) / sigma", right},
           {"sum of that", "", {sum_of(right)}},
           {"dx by difference quotients", "(L with x + 0.001 - L with x - 0.001) / 0.002", tried_out()}},
          how,
          false,
          telling};
}

Slip constants() {
  return wrong_dx("constants", "Mean and sigma treated as constants", kSums,
                  "xhat = (x - mean) / sigma looks linear in x, with slope 1 / sigma. But mean and sigma depend on all "
                  "x, so every xhat depends on every x. The terms that are missing subtract from g the part that all "
                  "its numbers share, and the part along xhat. The sum of dx, which should be 0, reveals the slip.");
}

Slip constant_sigma() {
  return wrong_dx("constant-sigma", "Only sigma treated as a constant", kTriedOut,
                  "The mean was differentiated, sigma was not: mean(g * xhat) is missing. The sum of dx is still 0, so "
                  "that check passes. Difference quotients reveal the slip, and so does the sum of dx * xhat, which "
                  "should be 0 except for eps.");
}

Slip unbiased_backward() {
  return wrong_dx("unbiased-backward", "D - 1 in the backward pass", kTriedOut,
                  "The derivative of a variance that is divided by D - 1, after a forward pass that divides by D: two "
                  "formulas from two sources, or a library's variance in one of them. The sum of dx is 0, and for "
                  "long rows the error is small: 1 / D of one term.");
}

Slip dgamma_along_the_row() {
  const Row x{4, 2, 8, 0.2, 0.1, 0.3}, dy{1, 0, -1, 0, 2, 1}, xhat = normed(x, 3).y;
  Row along(2);
  for (std::size_t i = 0; i < x.size(); ++i) along[i / 3] += dy[i] * xhat[i];
  const Gradients right = gradients(x, dy, {1, 1, 1});
  return {"dgamma-along-the-row",
          "dgamma summed along the rows instead of over them",
          fmt::format("dgamma = sum over columns of dy * xhat; here x = [{}, {}], dy = [{}, {}]", slip_list({4, 2, 8}),
                      slip_list({0.2, 0.1, 0.3}), slip_list({1, 0, -1}), slip_list({0, 2, 1})),
          {{"dgamma, as written", "", along}},
          {{"dgamma", "sum over rows of dy * xhat", right.dgamma}, {"dbeta", "sum over rows of dy", right.dbeta}},
          "Mean and variance are sums along a row, so it seems that every sum is. But gamma has one number for each "
          "column, which all rows use, so its gradient is a sum over rows. dgamma and dbeta have the shape of gamma "
          "and beta. If there are as many rows as columns, only the numbers reveal the slip.",
          false};
}

}  // namespace

std::vector<Slip> find_backward_slips() {
  return {constants(), constant_sigma(), unbiased_backward(), dgamma_along_the_row()};
}

}  // namespace evenorm::cli
