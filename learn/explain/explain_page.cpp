// See explain_page.hpp.
#include "learn/explain/explain_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/common/text.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/tensor_text.hpp"
#include "learn/explain/wrapped.hpp"

namespace evenorm::cli {
namespace {

std::string parameter_lines(const Explanation& e, const char* symbol, const Parameter& parameter, const char* what,
                            const char* otherwise) {
  if (!parameter.given)
    return shape_line(symbol, e.normalized_shape, fmt::format("{}; not given: {}", what, otherwise));
  if (parameter.varies) return shape_line(symbol, e.normalized_shape, fmt::format("{}; each row has its own", what));
  return shape_line(symbol, e.normalized_shape, fmt::format("{}, one for each place in a row:", what)) +
         tensor_lines(e, parameter.values, e.normalized_shape, 14);
}

// The fewest decimals that show all values exactly, but no more than `most`.
int places(const std::vector<double>& values, int most) {
  for (int decimals = 0; decimals < most; ++decimals) {
    const auto shown = [decimals](double v) { return !std::isfinite(v) || round_by_hand(v, decimals) == v; };
    if (std::all_of(values.begin(), values.end(), shown)) return decimals;
  }
  return most;
}

std::string by_hand(const Explanation& e, const Step& step) {
  if (step.by_hand.empty()) return "";
  const std::string label = fmt::format("{:{}}every step rounded to {} decimals:", "", kPageIndent, *e.round);
  if (step.shape.empty()) return fmt::format("{} {}\n", label, shortest_text(step.by_hand[0]));
  const Notation notation(step.by_hand, places(step.by_hand, std::max(*e.round + 2, e.decimals)));
  return label + "\n" + tensor_text(step.by_hand, step.shape, notation, kPageIndent, kPageWidth);
}

std::string shape_words(const Shape& shape) {
  return shape.empty() ? "one number, shape ()" : "shape " + shape_text(shape);
}

}  // namespace

std::string counted(std::size_t n, const char* one, const char* many) {
  return fmt::format("{} {}", with_commas(n), n == 1 ? one : many);
}

std::string row_words(const Explanation& e) {
  const std::string row = e.groups == 0
                              ? fmt::format("what x holds along its {} {} (counted from 0)",
                                            e.axes.size() == 1 ? "axis" : "axes", fmt::join(e.axes, " and "))
                              : fmt::format("one of the {} of each sample, which has {} and all axes after them",
                                            counted(static_cast<std::size_t>(e.groups), "group", "groups"),
                                            counted(static_cast<std::size_t>(e.x_shape[2]), "channel", "channels"));
  return fmt::format("Here a row is {}: {}. Numbers are shown with about {} decimals but computed with many more.", row,
                     counted(e.rows.front().x.size(), "number", "numbers"), e.decimals);
}

std::string shape_line(std::string_view symbol, const Shape& shape, std::string_view meaning) {
  return fmt::format("  {:<12}shape {:<16}{}\n", symbol, shape_text(shape), meaning);
}

std::string input_line(const Explanation& e) {
  const std::string rows = e.rows_total == 1 ? "one row" : counted(e.rows_total, "row", "rows");
  return shape_line("x", e.x_shape, fmt::format("the input: {}, in {}", rows, name(e.dtype)));
}

std::string gamma_lines(const Explanation& e) {
  return parameter_lines(e, "gamma", e.gamma, e.zero_centered ? "the scale (weight) minus 1" : "the scale (weight)",
                         "1 everywhere, as before training");
}

std::string beta_lines(const Explanation& e) {
  return parameter_lines(e, "beta", e.beta, "the shift (bias)", "0 everywhere, as before training");
}

std::string eps_line(const Explanation& e) {
  return fmt::format("  {:<12}{}, a small constant\n", "eps", shortest_text(e.eps));
}

std::string notes_text(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += "\n" + wrapped(note, "Note: ");
  return text;
}

std::string notices(const Explanation& e) {
  std::string text;
  for (const std::string& warning : e.warnings) text += "\n" + wrapped(warning, "WARNING: ");
  text += notes_text(e.notes);
  if (e.rows.size() == e.rows_total) return text;
  return text + "\n" +
         wrapped(fmt::format("Shown: {} of {} (--rows 0,5 or --rows all selects others).",
                             counted(e.rows.size(), "row", "rows"), with_commas(e.rows_total)),
                 "");
}

std::string row_heading(const Explanation& e, const ExplainedRow& row) {
  if (e.leading_shape.empty()) return "";
  const std::string heading = fmt::format("row [{}]", fmt::join(row.index, ", "));
  return fmt::format("\n{}  (row {} of {}, counted from 0)\n{}\n", heading, row.row, with_commas(e.rows_total),
                     std::string(heading.size(), '='));
}

std::string tensor_lines(const Explanation& e, const std::vector<double>& values, const Shape& shape,
                         std::size_t indent) {
  return tensor_text(values, shape, Notation(values, e.decimals), indent, kPageWidth);
}

std::string input_text(const Explanation& e, const char* name, const std::vector<double>& values) {
  return fmt::format("\nInput {}, shape {}\n", name, shape_text(e.normalized_shape)) +
         tensor_lines(e, values, e.normalized_shape);
}

std::string step_text(const Explanation& e, const Step& step, std::size_t number) {
  const std::string first = fmt::format("{}. ", number), shape = shape_words(step.shape);
  std::string text = "\n" + first + step.title + "; " + shape + "\n";
  if (text.size() > kPageWidth + 2) text = "\n" + wrapped(step.title + ";", first) + "   " + shape + "\n";
  text += equation(step.rule.left, step.rule.right, kPageIndent);
  std::size_t left = 0;
  for (const Formula& formula : step.formulas) left = std::max(left, formula.left.size());
  for (std::size_t i = 0; i < step.formulas.size(); ++i) {
    const Formula& formula = step.formulas[i];
    if (i + 1 == step.formulas.size() && step.exact.size() > step.formulas.size()) text += "    ...\n";
    text += equation(fmt::format("{:<{}}", formula.left, left), formula.right, kPageIndent);
  }
  if (!step.shape.empty()) text += tensor_lines(e, step.exact, step.shape);
  return text + by_hand(e, step);
}

std::string exactness(const Explanation& e, double largest_difference) {
  if (largest_difference == 0) return "equal to the exact result, to the last bit";
  if (!std::isfinite(largest_difference)) return "out of the type's range";
  return fmt::format("within {:.1e} of the exact result above; {} cannot hold every number", largest_difference,
                     name(e.dtype));
}

}  // namespace evenorm::cli
