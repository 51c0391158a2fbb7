// What `evenorm explain` shows: a plain structure, so that text and JSON cannot say different things.
// How its numbers are found: explain_steps.cpp. How they are printed: explain_text.cpp, explain_json.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"

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
};

// gamma or beta; `given` false: 1 or 0 everywhere, and no values.
struct Parameter {
  bool given = false;
  std::vector<double> values;
};

struct Explanation {
  Kind kind = Kind::layer;
  DType dtype = DType::f32;
  double eps = 0;
  bool zero_centered = false;
  int decimals = 4;
  std::optional<int> round;
  Shape x_shape, leading_shape, normalized_shape;
  std::vector<std::size_t> axes;  // normalised
  std::size_t rows_total = 0;
  Parameter gamma, beta;
  std::vector<ExplainedRow> rows;
  std::vector<std::string> warnings;  // what is probably not meant
  std::vector<std::string> notes;     // what is good to know of all rows
};

std::string explanation_text(const Explanation& explanation);
std::string explanation_json(const Explanation& explanation);  // one line

}  // namespace evenorm::cli
