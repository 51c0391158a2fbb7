// The accuracy contract of docs/numerics.md: the error measure, its limits, and the table of errors that a machine
// reaches on adversarial rows. Tests and `evenorm check` use it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "contracts/harness.hpp"
#include "reference/reference.hpp"

namespace evenorm::contracts {

// The proved share of the statistics' errors in a result, in u of the result's own bound.
inline constexpr double kOfStatistics = 0x1p-5;

// The limit of y's error in u (|gamma_i| max_j |xhat_j| + |beta_i|). In f32 arithmetic: one unit per rounding.
// mean_share() comes on top.
double output_limit(const Operation& op);

// What the last places of the wide mean may change in y, including through rstd: this value times |mean| rstd
// |gamma_i|. It applies to rows that are not constant.
double mean_share(const Operation& op, double largest_xhat);

inline constexpr double kRstdLimit = 2;  // in u rstd, of f32 arithmetic
double rstd_limit(const Operation& op);

// By how much all limits of a row in f64 arithmetic grow with its mean / std: 1 + rho^2.
double growth_by_mean(const Operation& op, const reference::Moments& m);

// u: half the distance from 1 to the next number of the arithmetic's type (f64 or f32).
double unit_roundoff(DType arithmetic);

// The levels of the tree that joins the blocks of a row.
std::size_t levels_of_tree(std::size_t cols);

// The limit of the returned mean's error, in 2^-53 max|x|: one unit for each f64 addition that an element can pass
// through.
double mean_limit(std::size_t cols);

// A real number as the sum of two f64, with a relative error of about 2^-106. It may exceed f64's range, up to twice
// its end.
struct Pair {
  double hi, lo;
};
Pair to_pair(reference::Real value);

struct OutputBound {
  DType arithmetic, output;
  double scale;         // |gamma_i|, |1 + gamma_i| where zero-centred
  double largest_xhat;  // max_j |xhat_j|
  double shift;         // |beta_i|
  double besides = 0;   // an absolute error allowed on top
};

// The definition of an output's error, in u (|gamma_i| max_j |xhat_j| + |beta_i|): the least distance between y* and a
// number that rounds to y in the output's type. If that type is the arithmetic's, no rounding follows, and the error is
// |y - y*|. The numbers that round to infinity begin half a step above the largest finite number. The measure subtracts
// what subnormals cost, (|gamma_i| + 1), in f64 arithmetic (3 |gamma_i| + 1), times the arithmetic's smallest number,
// and bound.besides. y is given by its bits. The result is not finite if y is a NaN.
double error_in_u(std::uint64_t y_bits, Pair exact, const OutputBound& bound);

// The same measure for any result: in u `terms`, less `quanta` of the arithmetic's smallest numbers and `besides`. 0 if
// the terms are infinite.
struct ResultBound {
  DType arithmetic, output;
  long double terms;  // may exceed f64's range even if the results do not
  double quanta;
  double besides = 0;
};
double error_in_u(std::uint64_t bits, Pair exact, const ResultBound& bound);

std::uint64_t bits_at(const Array& values, std::size_t i);
double value_at(const Array& values, std::size_t i);
std::vector<double> values_of(const Array& array);
bool is_finite(const Array& values);  // all of them

// |value - exact| / |exact| in units of `u`. An infinity is correct if `exact` is outside f64's range.
double relative_error_in_u(double value, reference::Real exact, double u);

struct Errors {
  double output = 0;  // in u (...), at most output_limit()
  double rstd = 0;    // in u, at most rstd_limit()
  double mean = 0;    // as a share of mean_limit(), at most 1

  void include(const Errors& other);
  bool within_limits(const Operation& op) const;  // false for a NaN
};

// The reference's results for one row, made once and compared with every target.
class Expected {
 public:
  Expected(const Operation& op, const Array& x, const Array& weight, const Array& bias);

  // `y` holds op.cols elements from `first` on. Its type is op.y's, or f32 if op.y is smaller and is still to be
  // rounded from it. RMS norm ignores mean.
  Errors errors_of(const Array& y, std::size_t first, double mean, double rstd) const;
  // The error of y's element `at`, the row's column i, in u alone: without what errors_of() allows for the mean.
  double output_error(const Array& y, std::size_t at, std::size_t i) const { return error_of(y, at, i, 0); }

  Pair exact(std::size_t i) const { return y_[i]; }
  const reference::Moments& moments() const { return moments_; }
  double largest_xhat() const { return largest_xhat_; }

 private:
  double error_of(const Array& y, std::size_t at, std::size_t i, double besides) const;

  Operation op_;
  std::vector<Pair> y_;
  std::vector<double> scale_, shift_;          // magnitudes; empty: 1 and 0
  double largest_xhat_, largest_x_, besides_;  // the last one for gamma = 1
  double growth_;
  reference::Moments moments_;
  reference::Real rstd_;
};

struct ReportRow {
  DType type;
  std::size_t cols;
  std::string input;
  Kind kind;
  // over all targets, with and without parameters; bf16 and f16 also with f32 output, which shows the full error
  Errors worst;
  double limit;        // the limit of worst.output
  std::string target;  // the target with the worst output
  bool pass;
};

struct Report {
  std::vector<ReportRow> rows;
  bool pass = true;
};

struct AccuracyOptions {
  bool quick = false;               // fewer inputs on long rows
  std::vector<std::size_t> cols{};  // empty: 1, 2, 31, 768, 4096, 65536 and 2^20
  std::vector<DType> types{};       // empty: all types
  std::size_t threads = 1;
  std::function<void(const ReportRow&)> progress{};  // called after each row, one call at a time, in no fixed order
};

// Measures every input, type and length for both kinds. Rows are ordered by type, cols, input and kind.
Report run_accuracy(const AccuracyOptions& options);

}  // namespace evenorm::contracts
