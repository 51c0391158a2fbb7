// What `evenorm explain` shows: a plain structure, so that text and JSON cannot say different things.
// How its numbers are found: explain_steps.cpp, explain_gradient.cpp. How they are printed: explain_text.cpp,
// gradient_text.cpp, explain_json.cpp. What a page draws beside them: pictures.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"
#include "learn/explain/pictures.hpp"

namespace evenorm::cli {

using Shape = std::vector<std::int64_t>;

// left = right[0] = right[1] = ..., with the numbers put in.
struct Formula {
  std::string left;
  std::vector<std::string> right;
};

// One quantity of one row, in the order of the computation.
struct Step {
  std::string name;   // mean, deviation, var, std, sigma, xhat, y
  std::string title;  // what it is, in words
  Shape shape;        // within one row: () or the normalised shape
  Formula rule;       // in names
  std::vector<Formula> formulas;
  std::vector<double> exact;    // in real arithmetic on the stored inputs, rounded to f64 for showing
  std::vector<double> by_hand;  // with every step rounded; empty unless asked for
};

// evenorm's own normalised row, before scale and shift.
struct Check {
  double mean = 0;      // should be 0; RMS norm does not ask for it
  double var = 0;       // RMS norm: the mean square
  double expected = 0;  // var / (var + eps), by exact arithmetic
};

// A formula for dx that is not right, and what it gives.
struct WrongGradient {
  std::string name;  // short, for JSON
  std::string formula;
  std::string why;  // what it overlooks
  std::vector<double> dx;
};

// L = sum of dy y, where one x is a little larger and a little smaller: dx by trying it out.
struct Trial {
  std::size_t element = 0;
  double x = 0, step = 0;
  double above = 0, below = 0;  // L at x + step and x - step
  double quotient = 0;          // (above - below) / (2 step)
  double dx = 0;                // exact, by the formula
};

// evenorm's own dx.
struct GradientCheck {
  double sum = 0;         // of dx; layer norm: should be 0
  double along_xhat = 0;  // sum of dx xhat
  double expected = 0;    // what that should be: 0 but for eps
};

// The backward pass of one row.
struct RowGradient {
  std::vector<double> dy;
  std::vector<Step> steps;                // g, mean_g, mean_g_xhat, dx, dgamma, dbeta
  std::vector<double> dx, dgamma, dbeta;  // evenorm's own, of this row alone
  double largest_difference = 0;          // of dx from the exact one
  GradientCheck check;
  std::optional<Trial> trial;         // none where there is no derivative
  std::vector<WrongGradient> wrongs;  // likewise; those alone that differ
  std::vector<std::string> notes;     // what is special about it
};

// dgamma and dbeta over all rows that are shown.
struct GradientSums {
  std::vector<double> exact_dgamma, exact_dbeta;
  std::vector<double> dgamma, dbeta;  // evenorm's own
};

struct ExplainedRow {
  std::size_t row = 0;  // counted over the leading axes in C order
  Shape index;          // along the leading axes
  std::vector<double> x;
  std::vector<Step> steps;
  std::vector<double> y;          // evenorm's own
  double largest_difference = 0;  // of y from the exact one
  double mean = 0, rstd = 0;      // evenorm's own
  Check check;
  std::vector<std::string> notes;  // what is special about this row
  std::optional<RowGradient> gradient;
  std::optional<Precision> precision;  // for a page alone
};

// gamma or beta; `given` false: 1 or 0 everywhere, and no values.
struct Parameter {
  bool given = false;
  std::vector<double> values;
};

// Which norm of what, and how it is to be shown.
struct ExplainedNorm {
  Kind kind = Kind::layer;
  DType dtype = DType::f32;
  double eps = 0;
  bool zero_centered = false;
  int decimals = 4;
  std::optional<int> round;
  Shape x_shape, leading_shape, normalized_shape;
  std::vector<std::size_t> axes;  // normalised
  std::size_t rows_total = 0;
};

struct Explanation : ExplainedNorm {
  Parameter gamma, beta;
  std::vector<ExplainedRow> rows;
  std::optional<GradientSums> gradient_sums;  // where dy was given
  std::vector<std::string> warnings;          // what is probably not meant
  std::vector<std::string> notes;             // what is good to know of all rows
  std::optional<Pictures> pictures;           // for a page alone
};

std::string explanation_text(const Explanation& explanation);
std::string gradient_text(const Explanation& explanation);     // of the backward pass, where dy was given
std::string explanation_json(const Explanation& explanation);  // one line

}  // namespace evenorm::cli
