// An explanation as a page of text, for somebody who meets layer norm for the first time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "decimal.hpp"
#include "explain.hpp"
#include "tensor_text.hpp"
#include "text.hpp"
#include "wrapped.hpp"

namespace evenorm::cli {
namespace {

constexpr std::size_t kIndent = 4;

std::string tensor(const Explanation& e, const std::vector<double>& values, const Shape& shape, std::size_t indent) {
  return tensor_text(values, shape, Notation(values, e.decimals), indent, kPageWidth);
}

std::string counted(std::size_t n, const char* one, const char* many) {
  return fmt::format("{} {}", with_commas(n), n == 1 ? one : many);
}

std::string introduction(const Explanation& e) {
  const bool layer = e.kind == Kind::layer;
  const std::string what =
      layer ? "Layer norm takes each row of numbers by itself, brings it to mean 0 and variance 1, then scales and "
              "shifts it."
            : "RMS norm takes each row of numbers by itself and divides it by its root mean square, then scales it.";
  const std::string rows = fmt::format("Here a row is what x holds along its {} {} (counted from 0): {}.",
                                       e.axes.size() == 1 ? "axis" : "axes", fmt::join(e.axes, " and "),
                                       counted(e.rows.front().x.size(), "number", "numbers"));
  const std::string digits =
      fmt::format(" Numbers are shown to {} decimals or so, but computed with many more.", e.decimals);
  return wrapped(what + " " + rows + digits, "");
}

std::string shape_line(const char* symbol, const Shape& shape, std::string_view meaning) {
  return fmt::format("  {:<12}shape {:<16}{}\n", symbol, shape_text(shape), meaning);
}

std::string parameter_lines(const Explanation& e, const char* symbol, const Parameter& parameter, const char* what,
                            const char* otherwise) {
  if (!parameter.given)
    return shape_line(symbol, e.normalized_shape, fmt::format("{}; not given: {}", what, otherwise));
  return shape_line(symbol, e.normalized_shape, fmt::format("{}, one for each place in a row:", what)) +
         tensor(e, parameter.values, e.normalized_shape, 14);
}

std::string shapes(const Explanation& e) {
  const bool layer = e.kind == Kind::layer;
  const std::string rows =
      e.rows_total == 1 ? "the input: one row" : "the input: " + counted(e.rows_total, "row", "rows");
  std::string text = shape_line("x", e.x_shape, rows + fmt::format(", in {}", name(e.dtype)));
  const std::vector<const char*> statistics =
      layer ? std::vector{"mean", "var", "std", "sigma"} : std::vector{"mean_square", "rms", "sigma"};
  for (const char* symbol : statistics) text += shape_line(symbol, e.leading_shape, "one number for each row");
  text += shape_line("xhat", e.x_shape, "the normalised values");
  text += parameter_lines(e, "gamma", e.gamma, e.zero_centered ? "the scale (weight) less 1" : "the scale (weight)",
                          "1 everywhere, as before training");
  if (layer || e.beta.given) {
    text += parameter_lines(e, "beta", e.beta, "the shift (bias)", "0 everywhere, as before training");
  }
  return text + shape_line("y", e.x_shape, "the result") +
         fmt::format("  {:<12}{}, a small number chosen beforehand\n", "eps", shortest_text(e.eps));
}

// The fewest places that show all of these, but no more than `most`.
int places(const std::vector<double>& values, int most) {
  for (int decimals = 0; decimals < most; ++decimals) {
    const auto shown = [decimals](double v) { return !std::isfinite(v) || round_by_hand(v, decimals) == v; };
    if (std::all_of(values.begin(), values.end(), shown)) return decimals;
  }
  return most;
}

std::string by_hand(const Explanation& e, const Step& step) {
  if (step.by_hand.empty()) return "";
  const std::string label = fmt::format("{:{}}every step rounded to {} decimals:", "", kIndent, *e.round);
  if (step.shape.empty()) return fmt::format("{} {}\n", label, shortest_text(step.by_hand[0]));
  const Notation notation(step.by_hand, places(step.by_hand, std::max(*e.round + 2, e.decimals)));
  return label + "\n" + tensor_text(step.by_hand, step.shape, notation, kIndent, kPageWidth);
}

std::string shape_words(const Shape& shape) {
  return shape.empty() ? "one number, shape ()" : "shape " + shape_text(shape);
}

std::string step_text(const Explanation& e, const Step& step, std::size_t number) {
  const std::string first = fmt::format("{}. ", number), shape = shape_words(step.shape);
  std::string text = "\n" + first + step.title + "; " + shape + "\n";
  if (text.size() > kPageWidth + 2) text = "\n" + wrapped(step.title + ";", first) + "   " + shape + "\n";
  text += equation(step.rule.left, step.rule.right, kIndent);
  std::size_t left = 0;
  for (const Formula& formula : step.formulas) left = std::max(left, formula.left.size());
  for (std::size_t i = 0; i < step.formulas.size(); ++i) {
    const Formula& formula = step.formulas[i];
    if (i + 1 == step.formulas.size() && step.exact.size() > step.formulas.size()) text += "    ...\n";
    text += equation(fmt::format("{:<{}}", formula.left, left), formula.right, kIndent);
  }
  if (!step.shape.empty()) text += tensor(e, step.exact, step.shape, kIndent);
  return text + by_hand(e, step);
}

std::string rounding_text(const Explanation& e, const ExplainedRow& row) {
  if (row.largest_difference == 0) return "the exact result itself, to the last bit";
  if (!std::isfinite(row.largest_difference)) return "not within what the type holds";
  return fmt::format("within {:.1e} of the exact result above; {} cannot hold every number", row.largest_difference,
                     name(e.dtype));
}

std::string result_text(const Explanation& e, const ExplainedRow& row, std::size_t number) {
  return fmt::format("\n{}. The result as evenorm computes it in {}, shape {}\n", number, name(e.dtype),
                     shape_text(e.normalized_shape)) +
         tensor(e, row.y, e.normalized_shape, kIndent) + wrapped(rounding_text(e, row), std::string(kIndent, ' '));
}

// As many decimals as it takes to see how far below 1 it is.
std::string below_one(double value, int decimals) {
  const double missing = std::abs(1 - value);
  const int needed = missing > 0 ? static_cast<int>(std::ceil(-std::log10(missing))) + 1 : 0;
  return fmt::format("{:.{}f}", value, std::clamp(needed, decimals, std::max(decimals, 12)));
}

std::string check_text(const Explanation& e, const ExplainedRow& row) {
  if (!std::isfinite(row.check.var)) return "";
  const bool layer = e.kind == Kind::layer;
  const char* square = layer ? "var" : "mean_square";
  const double mean = row.check.mean;
  std::string text =
      fmt::format("\nCheck: evenorm's normalised values xhat, before scale{}\n", layer ? " and shift" : "");
  if (layer) {
    text += fmt::format("    mean      {:<16} should be 0, but for the rounding of {}\n",
                        Notation({&mean, 1}, e.decimals).brief(mean), name(e.dtype));
  }
  const std::string expected = below_one(row.check.expected, e.decimals);
  text += fmt::format("    {:<10}{:<16} should be {} / ({} + eps) = {}\n", layer ? "variance" : "mean sq.",
                      below_one(row.check.var, e.decimals), square, square, expected);
  if (row.check.expected == 0 || value_of(expected) >= 1) return text;
  return text +
         wrapped(fmt::format("That is {0}under 1 because eps is added before the root is taken: sigma is {0}larger "
                             "than the {1}. What differs from it is the rounding of {2}.",
                             row.check.expected > 0.99 ? "a little " : "",
                             layer ? "standard deviation" : "root mean square", name(e.dtype)),
                 "    ");
}

std::string row_text(const Explanation& e, const ExplainedRow& row) {
  std::string text;
  if (!e.leading_shape.empty()) {
    const std::string heading = fmt::format("row [{}]", fmt::join(row.index, ", "));
    text += fmt::format("\n{}  (row {} of {}, counted from 0)\n{}\n", heading, row.row, with_commas(e.rows_total),
                        std::string(heading.size(), '='));
  }
  text += fmt::format("\nInput x, shape {}\n", shape_text(e.normalized_shape)) +
          tensor(e, row.x, e.normalized_shape, kIndent);
  std::size_t number = 1;
  for (const Step& step : row.steps) text += step_text(e, step, number++);
  text += result_text(e, row, number) + check_text(e, row);
  for (const std::string& note : row.notes) text += "\n" + wrapped(note, "Note: ");
  return text;
}

}  // namespace

std::string explanation_text(const Explanation& e) {
  std::string text = introduction(e) + "\n" + shapes(e);
  for (const std::string& warning : e.warnings) text += "\n" + wrapped(warning, "WARNING: ");
  for (const std::string& note : e.notes) text += "\n" + wrapped(note, "Note: ");
  if (e.rows.size() < e.rows_total) {
    text += "\n" + wrapped(fmt::format("Shown: {} of {} (--rows 0,5 or --rows all chooses others).",
                                       counted(e.rows.size(), "row", "rows"), with_commas(e.rows_total)),
                           "");
  }
  for (const ExplainedRow& row : e.rows) text += row_text(e, row);
  if (e.round) {
    text += "\n" + wrapped(
                       "Rounding at every step: squares are not rounded before they are summed, and y is left as it "
                       "comes out of rounded numbers.",
                       "Note: ");
  }
  return text;
}

}  // namespace evenorm::cli
