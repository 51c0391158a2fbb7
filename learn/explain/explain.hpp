// The results of `evenorm explain` as a plain structure, from which both text and JSON are printed. explain_steps.cpp
// and explain_gradient.cpp compute it. explain_text.cpp, gradient_text.cpp and explain_json.cpp print it. pictures.hpp
// has what a page draws in addition.
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

// left = right[0] = right[1] = ..., with the numbers inserted.
struct Formula {
  std::string left;
  std::vector<std::string> right;
};

// One quantity of one row. Steps are in the order of the computation.
struct Step {
  std::string name;   // mean, deviation, var, std, sigma, xhat, y
  std::string title;  // a description
  Shape shape;        // within one row: () or the normalised shape
  Formula rule;       // with names instead of numbers
  std::vector<Formula> formulas;
  std::vector<double> exact;    // in real arithmetic on the stored inputs, rounded to f64
  std::vector<double> by_hand;  // with every step rounded; empty without --round
};

// Moments of evenorm's own normalised row, before scale and shift.
struct Check {
  double mean = 0;      // should be 0; unused by RMS norm
  double var = 0;       // for RMS norm, the mean square
  double expected = 0;  // the exact var / (var + eps)
};

// A wrong formula for dx, and its result.
struct WrongGradient {
  std::string name;  // short, for JSON
  std::string formula;
  std::string why;  // what it overlooks
  std::vector<double> dx;
};

// dx by a difference quotient: L = sum of dy * y, with one x increased and decreased.
struct Trial {
  std::size_t element = 0;
  double x = 0, step = 0;
  double above = 0, below = 0;  // L at x + step and x - step
  double quotient = 0;          // (above - below) / (2 step)
  double dx = 0;                // the exact dx, by the formula
};

// Sums over evenorm's own dx.
struct GradientCheck {
  double sum = 0;         // the sum of dx; should be 0 in layer norm
  double along_xhat = 0;  // the sum of dx * xhat
  double expected = 0;    // the exact sum of dx * xhat: 0 except for eps
};

// The backward pass of one row.
struct RowGradient {
  std::vector<double> dy;
  std::vector<Step> steps;                // g, mean_g, mean_g_xhat, dx, dgamma, dbeta
  std::vector<double> dx, dgamma, dbeta;  // evenorm's own, for this row only
  double largest_difference = 0;          // of evenorm's dx from the exact one
  GradientCheck check;
  std::optional<Trial> trial;         // absent if there is no derivative
  std::vector<WrongGradient> wrongs;  // those that differ from dx; empty if there is no derivative
  std::vector<std::string> notes;     // on special cases
};

// dgamma and dbeta summed over all rows that are shown.
struct GradientSums {
  std::vector<double> exact_dgamma, exact_dbeta;
  std::vector<double> dgamma, dbeta;  // evenorm's own
};

struct ExplainedRow {
  std::size_t row = 0;  // counted over the leading axes in C order
  Shape index;          // along the leading axes
  std::vector<double> x;
  std::vector<double> gamma, beta;  // only of a Parameter that varies
  std::vector<Step> steps;
  std::vector<double> y;          // evenorm's own
  double largest_difference = 0;  // of evenorm's y from the exact one
  double mean = 0, rstd = 0;      // evenorm's own
  Check check;
  std::vector<std::string> notes;  // on special cases
  std::optional<RowGradient> gradient;
  std::optional<Precision> precision;  // only for a page
};

// gamma or beta. If it was not given, it is 1 or 0 everywhere and `values` is empty.
struct Parameter {
  bool given = false;
  bool varies = false;         // from row to row: each row has its own
  std::vector<double> values;  // else of all rows
};

// The norm, its input's shape, and display options.
struct ExplainedNorm {
  Kind kind = Kind::layer;
  DType dtype = DType::f32;
  double eps = 0;
  bool zero_centered = false;
  int decimals = 4;
  std::optional<int> round;
  std::int64_t groups = 0;  // of channels; if not 0, x's shape is (N, groups, C / groups, ...)
  Shape x_shape, leading_shape, normalized_shape;
  std::vector<std::size_t> axes;  // normalised
  std::size_t rows_total = 0;
};

struct Explanation : ExplainedNorm {
  Parameter gamma, beta;
  std::vector<ExplainedRow> rows;
  std::optional<GradientSums> gradient_sums;  // if dy was given
  std::vector<std::string> warnings;          // on probable mistakes
  std::vector<std::string> notes;             // on all rows
  std::optional<Pictures> pictures;           // only for a page
};

std::string explanation_text(const Explanation& explanation);
std::string gradient_text(const Explanation& explanation);     // the backward pass; needs dy
std::string explanation_json(const Explanation& explanation);  // one line

}  // namespace evenorm::cli
