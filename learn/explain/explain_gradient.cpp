// The steps of the backward pass; see explain_steps.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "learn/explain/decimal.hpp"
#include "learn/explain/explain_notes.hpp"
#include "learn/explain/explain_numbers.hpp"
#include "learn/explain/explain_steps.hpp"
#include "learn/explain/gradient_numbers.hpp"
#include "learn/explain/step_list.hpp"
#include "learn/explain/wrong_gradients.hpp"

namespace evenorm::cli {
namespace {

// Writes the steps of one row. Every method adds one step.
class GradientWriter {
 public:
  GradientWriter(const ExplainInput& input, const contracts::Array& x, const contracts::Array& dy,
                 const ExactGradients& exact)
      : input_(input),
        exact_(exact),
        hand_(hand_input(input, x)),
        dy_(decimals_of(dy)),
        steps_(input.normalized_shape, x.size(), input.decimals, input.round.has_value()),
        dy_notation_(dy_, input.decimals),
        xhat_(exact.xhat, input.decimals),
        g_(exact.g, input.decimals) {
    if (input.round) by_hand_ = gradients_by_hand(hand_, dy_, calculate_by_hand(hand_, *input.round), *input.round);
  }

  std::vector<Step> write() {
    gradient_of_xhat();
    if (layer()) mean_of_g();
    mean_of_products();
    gradient_of_x();
    gradient_of_gamma();
    gradient_of_beta();
    return steps_.take();
  }

 private:
  bool layer() const { return input_.kind == Kind::layer; }
  std::size_t n() const { return dy_.size(); }

  void gradient_of_xhat() {
    const bool centred = !input_.weight.empty() && input_.zero_centered;
    Step& step = steps_.add("g", "The gradient of xhat: y is gamma * xhat + beta, so each dy is multiplied by gamma",
                            {"g", {centred ? "dy * (1 + gamma)" : "dy * gamma"}}, exact_.g, by_hand_.g);
    const Notation gamma(hand_.gamma, input_.decimals);
    steps_.elements(step, [&](std::size_t i) -> Formula {
      return {steps_.element("g", i),
              {dy_notation_.brief(dy_[i]) + " * " + factor_text(input_, hand_, gamma, i), g_.brief(exact_.g[i])}};
    });
  }

  void mean_of_g() {
    Step& step = steps_.add("mean_g",
                            "Mean of g: the part that all its numbers share. It is subtracted below, because adding "
                            "one number to all x changes no y",
                            {"mean(g)", {fmt::format("(sum of g) / {}", n())}}, exact_.mean_g, by_hand_.mean_g);
    const auto piece = [this](std::size_t i) { return i == 0 ? g_.brief(exact_.g[i]) : g_.added(exact_.g[i]); };
    step.formulas.push_back(
        {"mean(g)", {fmt::format("({}) / {}", sum_text(n(), piece, kFormulaRoom), n()), steps_.brief(exact_.mean_g)}});
  }

  void mean_of_products() {
    constexpr std::size_t kRoom = kFormulaRoom - 10;  // because the left side is long
    Step& step = steps_.add(
        "mean_g_xhat",
        fmt::format(
            "Mean of g * xhat: the part of g along xhat. It is subtracted too, because {} by one factor changes "
            "no y (except for eps)",
            layer() ? "spreading all x" : "multiplying all x"),
        {"mean(g * xhat)", {fmt::format("(sum of g * xhat) / {}", n())}}, exact_.mean_g_xhat, by_hand_.mean_g_xhat);
    const auto factors = [this](std::size_t i) {
      return fmt::format("{}{} * {}", i == 0 ? "" : " + ", g_.operand(exact_.g[i]), xhat_.operand(exact_.xhat[i]));
    };
    const Notation products(exact_.g_xhat, input_.decimals);
    const auto summed = [&](std::size_t i) {
      return i == 0 ? products.brief(exact_.g_xhat[i]) : products.added(exact_.g_xhat[i]);
    };
    step.formulas.push_back(
        {"mean(g * xhat)",
         {fmt::format("({}) / {}", sum_text(n(), factors, kRoom), n()),
          fmt::format("({}) / {}", sum_text(n(), summed, kRoom), n()),
          fmt::format("{} / {}", steps_.brief(exact_.sum_g_xhat), n()), steps_.brief(exact_.mean_g_xhat)}});
  }

  void gradient_of_x() {
    const std::string rule = layer() ? "(g - mean(g) - xhat * mean(g * xhat)) / sigma"  //
                                     : "(g - xhat * mean(g * xhat)) / sigma";
    Step& step = steps_.add("dx", "The gradient of x: what is left of g, divided by sigma", {"dx", {rule}}, exact_.dx,
                            by_hand_.dx);
    const Notation dx(exact_.dx, input_.decimals);
    const std::string mean = layer() ? " - " + steps_.operand(exact_.mean_g) : "";
    const std::string factor = steps_.operand(exact_.mean_g_xhat), sigma = steps_.brief(exact_.sigma);
    steps_.elements(step, [&](std::size_t i) -> Formula {
      return {steps_.element("dx", i),
              {fmt::format("({}{} - {} * {}) / {}", g_.brief(exact_.g[i]), mean, xhat_.operand(exact_.xhat[i]), factor,
                           sigma),
               dx.brief(exact_.dx[i])}};
    });
  }

  std::string sum_words() const {
    return input_.rows_total == 1 ? "(a sum over all rows; x has only one)"
                                  : "(this row's part of a sum over all rows)";
  }

  void gradient_of_gamma() {
    Step& step = steps_.add("dgamma", "The gradient of gamma " + sum_words(), {"dgamma", {"dy * xhat"}}, exact_.dgamma,
                            by_hand_.dgamma);
    const Notation dgamma(exact_.dgamma, input_.decimals);
    steps_.elements(step, [&](std::size_t i) -> Formula {
      return {steps_.element("dgamma", i),
              {dy_notation_.brief(dy_[i]) + " * " + xhat_.operand(exact_.xhat[i]), dgamma.brief(exact_.dgamma[i])}};
    });
  }

  void gradient_of_beta() {
    steps_.add("dbeta", "The gradient of beta " + sum_words(), {"dbeta", {"dy"}}, exact_.dbeta, dy_);
  }

  const ExplainInput& input_;
  const ExactGradients& exact_;
  HandInput hand_;
  HandGradients by_hand_;
  std::vector<double> dy_;  // as decimals
  StepList steps_;
  Notation dy_notation_, xhat_, g_;
};

// Removes those that agree with dx within the precision of f64.
std::vector<WrongGradient> that_differ(std::vector<WrongGradient> wrongs, const std::vector<double>& dx) {
  constexpr double kNothing = 1e-12;
  std::erase_if(wrongs, [&](const WrongGradient& wrong) {
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (!std::isfinite(wrong.dx[i])) return true;
      difference = std::max(difference, std::abs(wrong.dx[i] - dx[i]));
      largest = std::max(largest, std::abs(wrong.dx[i]));
    }
    return difference <= kNothing * largest;
  });
  return wrongs;
}

GradientCheck check_of(const std::vector<double>& own_dx, const ExactGradients& exact) {
  GradientCheck check;
  for (std::size_t i = 0; i < own_dx.size(); ++i) {
    check.sum += own_dx[i];
    check.along_xhat += own_dx[i] * exact.xhat[i];
  }
  check.expected = exact.along_xhat;
  return check;
}

}  // namespace

RowGradient explain_gradient(const ExplainInput& input, std::size_t i, const ExplainedRow& row) {
  const contracts::Array &x = input.x[i], &dy = input.dy[i];
  const RealGradient real(input, x, dy);
  const ExactGradients exact = exact_gradients(real);
  const OwnGradients own = own_gradients(input, x, dy);
  RowGradient gradient;
  gradient.dy = widened(dy);
  gradient.steps = GradientWriter(input, x, dy, exact).write();
  gradient.dx = own.dx;
  gradient.dgamma = own.dgamma;
  gradient.dbeta = own.dbeta;
  gradient.largest_difference = largest_difference(real.dx, own.dx);
  gradient.check = check_of(own.dx, exact);
  gradient.trial = try_out(input, x, real);
  if (gradient.trial) {
    gradient.wrongs = that_differ(wrong_gradients({input.kind, exact.g, exact.xhat, exact.sigma}), exact.dx);
  }
  gradient.notes = gradient_notes(input, row, gradient);
  return gradient;
}

}  // namespace evenorm::cli
