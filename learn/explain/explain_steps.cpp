// See explain_steps.hpp.
#include "learn/explain/explain_steps.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/common/text.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/explain_notes.hpp"
#include "learn/explain/explain_numbers.hpp"
#include "learn/explain/gradient_numbers.hpp"
#include "learn/explain/pictures_of_input.hpp"
#include "learn/explain/real_row.hpp"
#include "learn/explain/step_list.hpp"

namespace evenorm::cli {
namespace {

// Writes the steps of one row. Every method adds one step or two.
class StepWriter {
 public:
  StepWriter(const ExplainInput& input, const contracts::Array& x, const ExactSteps& exact)
      : input_(input),
        exact_(exact),
        hand_(hand_input(input, x)),
        steps_(input.normalized_shape, hand_.x.size(), input.decimals, input.round.has_value()),
        x_(hand_.x, input.decimals),
        deviation_(exact_.deviation, input.decimals),
        xhat_(exact_.xhat, input.decimals),
        sigma_text_(steps_.brief(exact_.sigma)) {
    if (input.round) by_hand_ = calculate_by_hand(hand_, *input.round);
  }

  std::vector<Step> write() {
    if (layer()) {
      mean();
      deviation();
    }
    variance();
    roots();
    normalised();
    result();
    return steps_.take();
  }

 private:
  bool layer() const { return input_.kind == Kind::layer; }
  std::size_t n() const { return hand_.x.size(); }
  void mean() {
    Step& step = steps_.add("mean", "Mean: the sum of the row's numbers, divided by their count",
                            {"mean", {fmt::format("(sum of x) / {}", n())}}, exact_.mean, by_hand_.mean);
    const auto piece = [this](std::size_t i) { return i == 0 ? x_.brief(hand_.x[i]) : x_.added(hand_.x[i]); };
    step.formulas.push_back(
        {"mean", {fmt::format("({}) / {}", sum_text(n(), piece, kFormulaRoom), n()), steps_.brief(exact_.mean)}});
  }

  void deviation() {
    Step& step = steps_.add("deviation", "Deviation: how far each number is from the mean", {"deviation", {"x - mean"}},
                            exact_.deviation, by_hand_.deviation);
    steps_.elements(step, [this](std::size_t i) -> Formula {
      return {steps_.element("deviation", i),
              {x_.brief(hand_.x[i]) + " - " + steps_.operand(exact_.mean), deviation_.brief(exact_.deviation[i])}};
    });
  }

  void variance() {
    const std::string title = layer() ? fmt::format(
                                            "Variance: the mean of the squared deviations (divided by {0}, not "
                                            "by {0} - 1: the \"biased\" variance)",
                                            n())
                                      : "Mean square: the sum of the numbers' squares, divided by their count";
    Step& step = steps_.add(layer() ? "var" : "mean_square", title,
                            {square_name(), {fmt::format("(sum of {}^2) / {}", layer() ? "deviation" : "x", n())}},
                            exact_.var, by_hand_.var);
    const std::vector<double>& base = layer() ? exact_.deviation : hand_.x;
    const Notation& notation = layer() ? deviation_ : x_;
    const auto squared = [&](std::size_t i) {
      return fmt::format("{}{}^2", i == 0 ? "" : " + ", notation.operand(base[i]));
    };
    std::vector<double> squares;
    for (const double v : exact_.deviation) squares.push_back(v * v);
    const Notation square(squares, input_.decimals);
    const auto summed = [&](std::size_t i) { return (i == 0 ? "" : " + ") + square.brief(squares[i]); };
    step.formulas.push_back({square_name(),
                             {fmt::format("({}) / {}", sum_text(n(), squared, kFormulaRoom), n()),
                              fmt::format("({}) / {}", sum_text(n(), summed, kFormulaRoom), n()),
                              fmt::format("{} / {}", steps_.brief(exact_.squares), n()), steps_.brief(exact_.var)}});
  }

  const char* square_name() const { return layer() ? "var" : "mean_square"; }

  void roots() {
    const std::string square = square_name(), eps = shortest_text(input_.eps);
    const char* what = layer() ? "std" : "rms";
    Step& plain = steps_.add(what,
                             layer() ? "Standard deviation: the square root of the variance"
                                     : "Root mean square: the square root of the mean square",
                             {what, {fmt::format("sqrt({})", square)}}, exact_.std, by_hand_.std);
    plain.formulas.push_back({what, {fmt::format("sqrt({})", steps_.brief(exact_.var)), steps_.brief(exact_.std)}});
    Step& sigma = steps_.add("sigma", "sigma: the same with eps, a small number that prevents division by 0",
                             {"sigma", {fmt::format("sqrt({} + eps)", square)}}, exact_.sigma, by_hand_.sigma);
    sigma.formulas.push_back({"sigma", {fmt::format("sqrt({} + {})", steps_.brief(exact_.var), eps), sigma_text_}});
  }

  void normalised() {
    const Formula rule{"xhat", layer() ? std::vector<std::string>{"(x - mean) / sqrt(var + eps)", "deviation / sigma"}
                                       : std::vector<std::string>{"x / sqrt(mean_square + eps)", "x / sigma"}};
    Step& step = steps_.add("xhat",
                            layer() ? "Normalised values: each deviation divided by sigma"
                                    : "Normalised values: each number divided by sigma",
                            rule, exact_.xhat, by_hand_.xhat);
    steps_.elements(step, [this](std::size_t i) -> Formula {
      const std::string above = layer() ? deviation_.operand(exact_.deviation[i]) : x_.operand(hand_.x[i]);
      return {steps_.element("xhat", i), {above + " / " + sigma_text_, xhat_.brief(exact_.xhat[i])}};
    });
  }

  void result() {
    const bool scaled = !input_.weight.empty(), shifted = !input_.bias.empty();
    const Notation gamma(hand_.gamma, input_.decimals), beta(hand_.beta, input_.decimals), y(exact_.y, input_.decimals);
    const bool beta_shown = shifted || layer();
    const std::string name = scaled && input_.zero_centered ? "(1 + gamma)" : "gamma";
    Step& step = steps_.add("y", beta_shown ? "Scale and shift: times gamma, plus beta" : "Scale: times gamma",
                            {"y", {name + (beta_shown ? " * xhat + beta" : " * xhat")}}, exact_.y, by_hand_.y);
    steps_.elements(step, [&](std::size_t i) -> Formula {
      const std::string sum = factor_text(input_, hand_, gamma, i) + " * " + xhat_.operand(exact_.xhat[i]) +
                              (beta_shown ? beta.added(hand_.beta[i]) : "");
      return {steps_.element("y", i), {sum, y.brief(exact_.y[i])}};
    });
  }

  const ExplainInput& input_;
  const ExactSteps& exact_;
  HandInput hand_;
  HandSteps by_hand_;
  StepList steps_;
  Notation x_, deviation_, xhat_;
  std::string sigma_text_;
};

ExplainedRow explained(const ExplainInput& input, std::size_t i) {
  const contracts::Array& x = input.x[i];
  const RealRow real(input, x);
  const ExactSteps exact = exact_steps(real);
  ExplainedRow row;
  row.row = input.rows[i];
  row.index = index_of(row.row, input.leading_shape);
  row.x = widened(x);
  if (!input.weights.empty()) row.gamma = widened(input.weight);
  if (!input.biases.empty()) row.beta = widened(input.bias);
  row.steps = StepWriter(input, x, exact).write();
  const OwnResults own = own_results(input, x);
  row.y = own.y;
  row.mean = own.mean;
  row.rstd = own.rstd;
  row.largest_difference = largest_difference(real.y(), own.y);
  const auto n = static_cast<double>(x.size());
  for (const double v : own.xhat) row.check.mean += v / n;
  const double about = input.kind == Kind::layer ? row.check.mean : 0;
  for (const double v : own.xhat) row.check.var += (v - about) * (v - about) / n;
  row.check.expected = exact.mean_square;
  row.notes = row_notes(input, row, exact);
  if (!input.dy.empty()) row.gradient = explain_gradient(input, i, row);
  if (input.pictures) row.precision = precision(real.x, input.eps);
  return row;
}

}  // namespace

std::string factor_text(const ExplainInput& input, const HandInput& hand, const Notation& gamma, std::size_t i) {
  if (!input.zero_centered || input.weight.empty()) return gamma.operand(hand.gamma[i]);
  const double given = decimals_of(input.weight)[i];
  return fmt::format("(1{})", Notation({&given, 1}, input.decimals).added(given));
}

Explanation explain(ExplainInput input) {
  Explanation result;
  static_cast<ExplainedNorm&>(result) = input;
  const auto parameter = [](const contracts::Array& one, const std::vector<contracts::Array>& of_each_row) {
    return Parameter{!one.empty() || !of_each_row.empty(), !of_each_row.empty(), widened(one)};
  };
  result.gamma = parameter(input.weight, input.weights);
  result.beta = parameter(input.bias, input.biases);
  result.warnings = warnings(input);
  result.notes = notes(input);
  for (std::size_t i = 0; i < input.rows.size(); ++i) {
    if (!input.weights.empty()) input.weight = input.weights[i];
    if (!input.biases.empty()) input.bias = input.biases[i];
    result.rows.push_back(explained(input, i));
  }
  if (!input.dy.empty()) result.gradient_sums = gradient_sums(input);
  if (input.pictures) result.pictures = pictures(input);
  return result;
}

}  // namespace evenorm::cli
