// Prints an explanation as a page of text, for readers who are new to layer norm.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/common/text.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/explain.hpp"
#include "learn/explain/explain_page.hpp"
#include "learn/explain/wrapped.hpp"

namespace evenorm::cli {
namespace {

std::string introduction(const Explanation& e) {
  const bool layer = e.kind == Kind::layer;
  const std::string what =
      layer ? "Layer norm takes each row of numbers by itself, shifts and scales it to mean 0 and variance 1, then "
              "multiplies it by gamma and adds beta."
            : "RMS norm takes each row of numbers by itself, divides it by its root mean square, then multiplies it by "
              "gamma.";
  return wrapped(what + " " + row_words(e), "");
}

std::string shapes(const Explanation& e) {
  const bool layer = e.kind == Kind::layer;
  std::string text = input_line(e);
  const std::vector<const char*> statistics =
      layer ? std::vector{"mean", "var", "std", "sigma"} : std::vector{"mean_square", "rms", "sigma"};
  for (const char* symbol : statistics) text += shape_line(symbol, e.leading_shape, "one number for each row");
  text += shape_line("xhat", e.x_shape, "the normalised values");
  text += gamma_lines(e);
  if (layer || e.beta.given) text += beta_lines(e);
  return text + shape_line("y", e.x_shape, "the result") + eps_line(e);
}

std::string result_text(const Explanation& e, const ExplainedRow& row, std::size_t number) {
  return fmt::format("\n{}. The result as evenorm computes it in {}, shape {}\n", number, name(e.dtype),
                     shape_text(e.normalized_shape)) +
         tensor_lines(e, row.y, e.normalized_shape) +
         wrapped(exactness(e, row.largest_difference), std::string(kPageIndent, ' '));
}

// Shows as many decimals as needed to see how far the value is below 1.
std::string below_one(double value, int decimals) {
  const double missing = std::abs(1 - value);
  const int needed = missing > 0 ? static_cast<int>(std::ceil(-std::log10(missing))) + 1 : 0;
  return fmt::format("{:.{}f}", value, std::clamp(needed, decimals, std::max(decimals, 12)));
}

std::string check_text(const Explanation& e, const ExplainedRow& row) {
  if (!std::isfinite(row.check.var)) return "";
  const bool layer = e.kind == Kind::layer;
  const char* square = layer ? "var" : "mean_square";
  std::string text =
      fmt::format("\nCheck: evenorm's normalised values xhat, before scale{}\n", layer ? " and shift" : "");
  if (layer) {
    text += fmt::format("    mean      {:<16} should be 0, except for the rounding of {}\n",
                        brief(row.check.mean, e.decimals), name(e.dtype));
  }
  const std::string expected = below_one(row.check.expected, e.decimals);
  text += fmt::format("    {:<10}{:<16} should be {} / ({} + eps) = {}\n", layer ? "variance" : "mean sq.",
                      below_one(row.check.var, e.decimals), square, square, expected);
  if (row.check.expected == 0 || value_of(expected) >= 1) return text;
  return text +
         wrapped(fmt::format("That is {0}below 1 because eps is added before the root is taken: sigma is {0}larger "
                             "than the {1}. Any other difference is the rounding of {2}.",
                             row.check.expected > 0.99 ? "a little " : "",
                             layer ? "standard deviation" : "root mean square", name(e.dtype)),
                 "    ");
}

std::string row_text(const Explanation& e, const ExplainedRow& row) {
  std::string text = row_heading(e, row) + input_text(e, "x", row.x);
  if (e.gamma.varies) text += input_text(e, "gamma", row.gamma);
  if (e.beta.varies) text += input_text(e, "beta", row.beta);
  std::size_t number = 1;
  for (const Step& step : row.steps) text += step_text(e, step, number++);
  return text + result_text(e, row, number) + check_text(e, row) + notes_text(row.notes);
}

}  // namespace

std::string explanation_text(const Explanation& e) {
  std::string text = introduction(e) + "\n" + shapes(e) + notices(e);
  for (const ExplainedRow& row : e.rows) text += row_text(e, row);
  if (e.round) {
    text += notes_text(
        {"Rounding at every step: squares are not rounded before they are summed, and y is computed from rounded "
         "numbers but not rounded itself."});
  }
  return text;
}

}  // namespace evenorm::cli
