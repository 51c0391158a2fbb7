// Prints the backward pass as a page of text, for readers who know the forward pass.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/common/text.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/explain.hpp"
#include "learn/explain/explain_page.hpp"
#include "learn/explain/step_list.hpp"
#include "learn/explain/wrapped.hpp"

namespace evenorm::cli {
namespace {

const std::string kMargin(kPageIndent, ' ');

std::string gradient_introduction(const Explanation& e) {
  return wrapped(
      fmt::format(
          "The backward pass of {} norm. A network is trained to reduce one number, the loss L. The norm receives dy, "
          "which states how much L grows with each number of the result y. It computes dx, the same for the input x, "
          "and dgamma and dbeta, the same for its parameters. {}",
          e.kind == Kind::layer ? "layer" : "RMS", row_words(e)),
      "");
}

std::string gradient_shapes(const Explanation& e) {
  const bool layer = e.kind == Kind::layer;
  std::string text = input_line(e) + shape_line("dy", e.x_shape, "the gradient of the result y") +
                     shape_line("sigma", e.leading_shape, "one number for each row") +
                     shape_line("means", e.leading_shape,
                                layer ? "mean(g) and mean(g * xhat), one of each for each row"
                                      : "mean(g * xhat), one number for each row");
  text += gamma_lines(e);
  return text + shape_line("xhat, g", e.x_shape, "the normalised values and their gradient") +
         shape_line("dx", e.x_shape, "the gradient of x") +
         shape_line("dgamma", e.normalized_shape, "the gradient of gamma, a sum over all rows") +
         shape_line("dbeta", e.normalized_shape, "the gradient of beta, a sum over all rows") + eps_line(e);
}

// The rules of the forward pass and their results, without formulas.
std::string recap(const Explanation& e, const ExplainedRow& row) {
  std::string text = "\nThe forward pass in short (every step of it is shown without --grad)\n";
  for (const Step& step : row.steps) {
    if (step.name == "y" || step.name == "std" || step.name == "rms") continue;
    if (!step.shape.empty()) {
      text += equation(step.rule.left, step.rule.right, kPageIndent);
      if (step.name == "xhat") text += tensor_lines(e, step.exact, step.shape);
      continue;
    }
    std::vector<std::string> right = step.rule.right;
    right.push_back(brief(step.exact[0], e.decimals));
    text += equation(step.rule.left, right, kPageIndent);
  }
  return text;
}

std::string results(const Explanation& e, const RowGradient& gradient, std::size_t number) {
  const Shape& shape = e.normalized_shape;
  return fmt::format("\n{}. The gradients as evenorm computes them, dx in {}; shape {}\n", number, name(e.dtype),
                     shape_text(shape)) +
         kMargin + "dx\n" + tensor_lines(e, gradient.dx, shape) +
         wrapped(exactness(e, gradient.largest_difference), kMargin) + kMargin + "dgamma\n" +
         tensor_lines(e, gradient.dgamma, shape) + kMargin + "dbeta\n" + tensor_lines(e, gradient.dbeta, shape);
}

std::string check(const Explanation& e, const GradientCheck& check) {
  if (!std::isfinite(check.sum) || !std::isfinite(check.along_xhat)) return "";
  const bool layer = e.kind == Kind::layer;
  std::string text = "\nCheck: evenorm's own dx\n";
  const auto line = [&](const char* what, double value, const std::string& should) {
    text += wrapped("should be " + should, fmt::format("    {:<18}{:<12} ", what, brief(value, e.decimals)));
  };
  if (layer) line("sum of dx", check.sum, fmt::format("0, except for the rounding of {}", name(e.dtype)));
  line("sum of dx * xhat", check.along_xhat,
       fmt::format("eps / sigma^3 * (sum of g * xhat) = {}: 0 except for eps and the rounding of {}",
                   brief(check.expected, e.decimals), name(e.dtype)));
  return text;
}

std::string trial(const Explanation& e, const Trial& trial) {
  const std::string index = fmt::format("[{}]", fmt::join(index_of(trial.element, e.normalized_shape), ", "));
  const std::string x = shortest_text(trial.x), step = shortest_text(trial.step);
  const auto line = [](const std::string& what, double value, int digits) {
    return fmt::format("    {:<36}{:.{}g}\n", what, value, digits);
  };
  constexpr int kLossDigits = 12, kSlopeDigits = 7;
  return "\n" +
         wrapped(
             fmt::format("Numerical check: L = sum of dy * y, once with x{} a little larger and once a little smaller "
                         "(computed with 34 digits)",
                         index),
             "") +
         line(fmt::format("L with {} + {}", x, step), trial.above, kLossDigits) +
         line(fmt::format("L with {} - {}", x, step), trial.below, kLossDigits) +
         line(fmt::format("their difference / {}", shortest_text(2 * trial.step)), trial.quotient, kSlopeDigits) +
         line("dx" + index + ", by the formula", trial.dx, kSlopeDigits);
}

// The sum of dx * factors for a wrong dx. It is 0 if it is only the rounding of its terms.
std::string sum_of(const Explanation& e, const std::vector<double>& dx, const std::vector<double>& factors) {
  constexpr double kNothing = 1e-12;
  double sum = 0, magnitude = 0;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    sum += dx[i] * factors[i];
    magnitude += std::abs(dx[i] * factors[i]);
  }
  return brief(std::abs(sum) <= kNothing * magnitude ? 0 : sum, e.decimals);
}

std::string wrongs(const Explanation& e, const RowGradient& gradient, const std::vector<double>& xhat) {
  if (gradient.wrongs.empty()) return "";
  const std::size_t element = gradient.trial->element;
  std::string text = "\nResults of common slips (evenorm explain --slips describes them)\n";
  for (const WrongGradient& wrong : gradient.wrongs) {
    const std::string sum =
        e.kind == Kind::layer
            ? fmt::format("sum of dx {}, ", sum_of(e, wrong.dx, std::vector<double>(wrong.dx.size(), 1)))
            : "";
    text += wrapped(wrong.formula + ": " + wrong.why, kMargin) + tensor_lines(e, wrong.dx, e.normalized_shape, 6) +
            wrapped(fmt::format("{}sum of dx * xhat {}; dx[{}] off by {}", sum, sum_of(e, wrong.dx, xhat),
                                fmt::join(index_of(element, e.normalized_shape), ", "),
                                brief(wrong.dx[element] - gradient.trial->dx, e.decimals)),
                    std::string(6, ' '));
  }
  return text;
}

const std::vector<double>& exact_of(const std::vector<Step>& steps, std::string_view name) {
  return std::find_if(steps.begin(), steps.end(), [&](const Step& step) { return step.name == name; })->exact;
}

std::string gradient_row_text(const Explanation& e, const ExplainedRow& row) {
  const RowGradient& gradient = *row.gradient;
  std::string text = row_heading(e, row) + input_text(e, "x", row.x) + input_text(e, "dy", gradient.dy) + recap(e, row);
  std::size_t number = 1;
  for (const Step& step : gradient.steps) text += step_text(e, step, number++);
  text += results(e, gradient, number) + check(e, gradient.check);
  if (gradient.trial) text += trial(e, *gradient.trial);
  return text + wrongs(e, gradient, exact_of(row.steps, "xhat")) + notes_text(row.notes) + notes_text(gradient.notes);
}

std::string sums_text(const Explanation& e) {
  const GradientSums& sums = *e.gradient_sums;
  const std::string heading = e.rows.size() == e.rows_total
                                  ? fmt::format("All {} rows together", with_commas(e.rows_total))
                                  : fmt::format("The {} rows that are shown, together", with_commas(e.rows.size()));
  std::string text = "\n" + heading + "\n" + std::string(heading.size(), '=') + "\n";
  const auto part = [&](const char* symbol, const char* what, const std::vector<double>& exact,
                        const std::vector<double>& own) {
    text += fmt::format("\n    {} = sum over rows of {}; shape {}\n", symbol, what, shape_text(e.normalized_shape)) +
            tensor_lines(e, exact, e.normalized_shape) + "    as evenorm computes it\n" +
            tensor_lines(e, own, e.normalized_shape);
  };
  part("dgamma", "dy * xhat", sums.exact_dgamma, sums.dgamma);
  part("dbeta", "dy", sums.exact_dbeta, sums.dbeta);
  return text;
}

}  // namespace

std::string gradient_text(const Explanation& e) {
  std::string text = gradient_introduction(e) + "\n" + gradient_shapes(e) + notices(e);
  for (const ExplainedRow& row : e.rows) text += gradient_row_text(e, row);
  if (e.rows.size() > 1) text += sums_text(e);
  if (e.round) {
    text += notes_text(
        {"Rounding at every step: sigma and xhat are rounded in the forward pass; products are not rounded before "
         "they are summed; dx and dgamma are computed from rounded numbers but not rounded themselves."});
  }
  return text;
}

}  // namespace evenorm::cli
