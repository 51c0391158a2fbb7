// See explain_notes.hpp.
#include "learn/explain/explain_notes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/common/text.hpp"
#include "learn/explain/decimal.hpp"

namespace evenorm::cli {
namespace {

constexpr double kEpsMatters = 0.01;  // eps is noted if the result's variance is this much below 1
constexpr double kSmallestNormal = std::numeric_limits<double>::min();

std::string axes_text(const std::vector<std::size_t>& axes) {
  return fmt::format("{} {}", axes.size() == 1 ? "axis" : "axes", fmt::join(axes, ", "));
}

bool mixes_batch(const ExplainInput& input) {
  return input.batch_axis && std::find(input.axes.begin(), input.axes.end(), *input.batch_axis) != input.axes.end();
}

// The axes to suggest: the given ones without the batch or, if none remains, the last other axis.
std::vector<std::size_t> axes_without_batch(const ExplainInput& input) {
  std::vector<std::size_t> axes;
  for (const std::size_t axis : input.axes) {
    if (axis != *input.batch_axis) axes.push_back(axis);
  }
  for (std::size_t axis = input.x_shape.size(); axes.empty() && axis-- > 0;) {
    if (axis != *input.batch_axis) axes.push_back(axis);
  }
  return axes;
}

std::string mixing_warning(const ExplainInput& input) {
  const std::size_t batch = *input.batch_axis;
  const std::int64_t samples = input.x_shape[batch];
  std::string text = fmt::format(
      "Axis {}, the batch, is among the normalised {}: all its samples share one mean and one variance, so the result "
      "for one sample depends on the others. {}",
      batch, axes_text(input.axes),
      samples == 1 ? "(With one sample, as here, nothing is mixed.)"
                   : fmt::format("Here {} samples are mixed.", samples));
  const auto other = axes_without_batch(input);
  if (other.empty()) return text + " x has no other axis: give it one for the features.";
  return text + fmt::format(" Over {} (--axes {}) every sample is normalised by itself.", axes_text(other),
                            fmt::join(other, ","));
}

// Lists the first few numbers that are not finite; empty if all are.
std::string not_finite(const std::vector<double>& values) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> places;
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    if (++count <= kMost) places.push_back(fmt::format("{} (number {})", shortest_text(values[i]), i + 1));
  }
  if (count == 0) return "";
  return fmt::format("{}{}, which {} not finite", fmt::join(places, ", "),
                     count > kMost ? fmt::format(" and {} more", count - kMost) : "", count == 1 ? "is" : "are");
}

std::string not_finite_row(const ExplainedRow& row) {
  const std::string what = not_finite(row.x);
  if (what.empty()) return "";
  return fmt::format(
      "This row holds {}. A mean over it is not a number, so the whole row of the result is NaN; other rows are not "
      "affected.",
      what);
}

// The note on a layer-normalised row of equal numbers.
std::string constant_row(const ExplainInput& input, bool one_column) {
  const std::string outcome = input.bias.empty() ? "exactly 0 (beta is 0)" : "exactly beta";
  const std::string eps = input.eps == 0 ? " Without eps, sigma is 0 too; 0 / 0 is taken as 0 by definition." : "";
  if (one_column) {
    return fmt::format(
        "A row of one number is its own mean: the deviation is 0, and the result is {} for any number.{}", outcome,
        eps);
  }
  return fmt::format(
      "All numbers of this row are equal, so every deviation is 0 and the result is {}, whatever eps and "
      "gamma are.{}",
      outcome, eps);
}

// True if normalising the row leaves only zeros. Compares the numbers, because their squares may be too small for f64.
bool constant(const ExplainInput& input, const ExplainedRow& row) {
  const double same = input.kind == Kind::layer ? row.x.front() : 0;
  return std::isfinite(same) && std::all_of(row.x.begin(), row.x.end(), [same](double v) { return v == same; });
}

std::string degenerate(const ExplainInput& input, const ExplainedRow& row) {
  if (constant(input, row)) {
    if (input.kind == Kind::layer) return constant_row(input, row.x.size() == 1);
    return "All numbers of this row are 0, and so are the normalised values, whatever eps is.";
  }
  if (input.kind == Kind::rms && row.x.size() == 1) {
    return "A row of one number is divided by its own size: the result is +1 or -1 for any number, except for eps.";
  }
  return "";
}

// Three digits, or an upper limit for numbers below f64's normal range.
std::string magnitude(double value) {
  return value < kSmallestNormal ? "less than 2.3e-308" : fmt::format("{:.3g}", value);
}

std::string eps_note(const ExplainInput& input, const ExplainedRow& row, const ExactSteps& exact) {
  if (constant(input, row) || !(exact.mean_square <= 1 - kEpsMatters)) return "";
  const char* what = input.kind == Kind::layer ? "variance" : "mean square";
  const std::string numbers =
      fmt::format("eps = {} against a {} of {}", shortest_text(input.eps), what, magnitude(exact.var));
  if (exact.var > input.eps) {
    return fmt::format("eps matters here ({}): the normalised values have {} {:.3g}, not 1.", numbers, what,
                       exact.mean_square);
  }
  return fmt::format(
      "eps dominates here ({}): differences as small as this row's count as noise and are not scaled up to "
      "{} 1; the {} becomes {}.",
      numbers, what, what, magnitude(exact.mean_square));
}

std::string hand_note(const ExplainInput& input, const ExplainedRow& row) {
  if (!input.round) return "";
  const auto sigma = std::find_if(row.steps.begin(), row.steps.end(), [](const Step& s) { return s.name == "sigma"; });
  if (sigma->by_hand[0] != 0 || sigma->exact[0] == 0) return "";
  return fmt::format("Rounded to {} decimals, sigma is 0: a calculation by hand needs more decimals here.",
                     *input.round);
}

// The note on the gradient of a row whose xhat are all 0.
std::string gradient_of_constant(const ExplainInput& input, const ExplainedRow& row) {
  if (!constant(input, row)) return "";
  if (input.eps == 0) return "Without eps there is no derivative here: y jumps. dx is 0 by definition.";
  if (input.kind == Kind::layer && row.x.size() == 1) {
    return "A row of one number gives beta for any number, so dx and dgamma are exactly 0.";
  }
  return fmt::format(
      "Every xhat is 0, so nothing is added to dgamma, and dx is {} divided by sqrt(eps): a smaller eps gives a larger "
      "dx.",
      input.kind == Kind::layer ? "g - mean(g)" : "g");
}

std::string not_finite_gradient(const RowGradient& gradient) {
  const std::string what = not_finite(gradient.dy);
  if (what.empty()) return "";
  return fmt::format("dy holds {}: dx of the whole row is NaN; dgamma and dbeta are NaN only in these places.", what);
}

// The note on a number that leaves the range of the type that shows it.
std::string range_note(const ExplainInput& input, const ExplainedRow& row, const ExactSteps& exact) {
  if (exact.var < kSmallestNormal && !constant(input, row)) {
    return "The squares are below f64's range and shown as 0 or with few digits. They were computed with a wider "
           "range; the other numbers are right.";
  }
  if (std::isinf(exact.var)) {
    return "The squares are beyond f64 and shown as inf. They were computed with a wider range; the other numbers are "
           "right.";
  }
  for (std::size_t i = 0; i < row.y.size(); ++i) {
    if (std::isfinite(exact.y[i]) && std::isinf(row.y[i])) {
      return fmt::format("The exact result {:.4g} is beyond {}, whose largest number is {:.4g}: it becomes infinity.",
                         exact.y[i], name(input.dtype), contracts::largest_finite(input.dtype));
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> warnings(const ExplainInput& input) {
  if (mixes_batch(input)) return {mixing_warning(input)};
  return {};
}

std::vector<std::string> notes(const ExplainInput& input) {
  std::vector<std::string> all;
  if (input.batch_axis && !mixes_batch(input)) {
    all.push_back(
        fmt::format("Axis {}, the batch, is not among the normalised {}: every sample is normalised by itself.",
                    *input.batch_axis, axes_text(input.axes)));
  }
  if (input.inexact) {
    const contracts::Array held(input.dtype, std::span(&*input.inexact, 1));
    all.push_back(fmt::format("{} holds {} as {}, its nearest number. The steps begin with the number that it holds.",
                              name(input.dtype), shortest_text(*input.inexact), shortest_text(widened(held)[0])));
  }
  return all;
}

std::vector<std::string> gradient_notes(const ExplainInput& input, const ExplainedRow& row,
                                        const RowGradient& gradient) {
  std::vector<std::string> all;
  if (!not_finite(row.x).empty()) {
    all.emplace_back("dgamma, a sum over rows, is NaN in every place because of this row; dbeta does not depend on x.");
  }
  for (std::string note : {not_finite_gradient(gradient), gradient_of_constant(input, row)}) {
    if (!note.empty()) all.push_back(std::move(note));
  }
  return all;
}

std::vector<std::string> row_notes(const ExplainInput& input, const ExplainedRow& row, const ExactSteps& exact) {
  std::vector<std::string> all;
  const auto add = [&all](std::string note) {
    if (!note.empty()) all.push_back(std::move(note));
  };
  add(not_finite_row(row));
  add(degenerate(input, row));
  add(eps_note(input, row, exact));
  add(range_note(input, row, exact));
  add(hand_note(input, row));
  return all;
}

}  // namespace evenorm::cli
