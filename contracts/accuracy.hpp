// The accuracy contract of docs/numerics.md: how errors are measured, what is allowed, and the table of what a machine
// reaches on adversarial rows, for tests and for `evenorm check`.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "contracts/harness.hpp"
#include "reference/reference.hpp"

namespace evenorm::contracts {

// What is proved of a result beside its roundings: the errors of the statistics, in u of its own bound.
inline constexpr double kOfStatistics = 0x1p-5;

// Of y, in u (|gamma_i| max_j |xhat_j| + |beta_i|): one for each rounding. Besides, mean_share() is allowed.
double output_limit(const Operation& op);

// What the last places of the wide mean are worth in y, by way of rstd too: this times |mean| rstd |gamma_i|, in rows
// that are not constant.
double mean_share(const Operation& op, double largest_xhat);

inline constexpr double kRstdLimit = 2;  // u rstd

// u: half the distance from 1 to the next number of the arithmetic's type, f64 or f32.
double unit_roundoff(DType arithmetic);

// Of the tree that joins the blocks of a row.
std::size_t levels_of_tree(std::size_t cols);

// How far the mean that is handed out may be off, in 2^-53 max|x|: in f32 arithmetic one unit for each f64 addition
// that an element can go through, in f64 arithmetic the last rounding.
double mean_limit(DType arithmetic, std::size_t cols);

// A real number as the sum of two f64, to about 2^-106 of it: past the end of f64's range, too, up to twice as far.
struct Pair {
  double hi, lo;
};
Pair to_pair(reference::Real value);

// What bounds the error of one output: u, what it multiplies, and the quantum that is allowed among subnormals.
struct OutputBound {
  DType arithmetic, output;
  double scale;         // |gamma_i|, |1 + gamma_i| where zero-centred
  double largest_xhat;  // max_j |xhat_j|
  double shift;         // |beta_i|
  double besides = 0;   // an absolute error that is allowed on top
};

// THE definition of an output's error, in u (|gamma_i| max_j |xhat_j| + |beta_i|): the least distance between y* and a
// number that rounds to y in the output's type. Where that is the arithmetic's type there is no rounding after it, and
// it is |y - y*|; the numbers that round to infinity begin half a step past the largest one. Among subnormals
// (|gamma_i| + 1) times the arithmetic's smallest number is taken off, and what is allowed besides. y: the bits of the
// output. Not finite where y is a NaN.
double error_in_u(std::uint64_t y_bits, Pair exact, const OutputBound& bound);

// The same for any result: in u `terms`, after `quanta` of the arithmetic's smallest numbers and `besides` are taken
// off. 0 where the terms are infinite.
struct ResultBound {
  DType arithmetic, output;
  long double terms;  // which may be out of f64's range where results are not
  double quanta;
  double besides = 0;
};
double error_in_u(std::uint64_t bits, Pair exact, const ResultBound& bound);

std::uint64_t bits_at(const Array& values, std::size_t i);
double value_at(const Array& values, std::size_t i);

// |value - exact| / |exact| in u of `u`; an infinity is right where `exact` is out of f64's range.
double relative_error_in_u(double value, reference::Real exact, double u);

struct Errors {
  double output = 0;  // in u (...), to be at most output_limit()
  double rstd = 0;    // in u, to be at most kRstdLimit
  double mean = 0;    // as a share of mean_limit(), to be at most 1

  void include(const Errors& other);
  bool within_limits(const Operation& op) const;  // false for a NaN
};

// One row in the reference's eyes; made once, compared with every target.
class Expected {
 public:
  Expected(const Operation& op, const Array& x, const Array& weight, const Array& bias);

  // `y`: op.cols elements from `first` on, of op.y's type or of f32 where that is smaller and is to be rounded from it;
  // mean is ignored for RMS norm.
  Errors errors_of(const Array& y, std::size_t first, double mean, double rstd) const;

 private:
  Operation op_;
  std::vector<Pair> y_;
  std::vector<double> scale_, shift_;          // magnitudes; empty: 1 and 0
  double largest_xhat_, largest_x_, besides_;  // the last: for gamma = 1
  reference::Real mean_, rstd_;
};

struct ReportRow {
  DType type;
  std::size_t cols;
  std::string input;
  Kind kind;
  Errors worst;        // with and without parameters, over all targets; for bf16 and f16 also with f32 output, which
                       // shows the error before the one rounding in full
  double limit;        // of worst.output
  std::string target;  // the one with the worst output
  bool pass;
};

struct Report {
  std::vector<ReportRow> rows;
  bool pass = true;
};

struct AccuracyOptions {
  bool quick = false;               // fewer inputs on long rows
  std::vector<std::size_t> cols{};  // empty: 1, 2, 31, 768, 4096, 65536, 2^20
  std::vector<DType> types{};       // empty: all
  std::size_t threads = 1;
  std::function<void(const ReportRow&)> progress{};  // called as rows are done, one at a time, in no fixed order
};

// Every input of every type and length by both kinds; rows in the order type, cols, input, kind.
Report run_accuracy(const AccuracyOptions& options);

}  // namespace evenorm::contracts
