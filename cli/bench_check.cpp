#include "cli/bench_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "cli/files/pieces.hpp"
#include "contracts/accuracy.hpp"
#include "contracts/backward_accuracy.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {
namespace {

using reference::Real;

// Limits, because the reference is slow and needs a hundred bytes per element.
constexpr std::size_t kMostElements = std::size_t{1} << 18U;  // of all checked rows, unless the first one is longer
constexpr std::size_t kLongest = std::size_t{1} << 22U;       // of a checked row or column

// Finds rows and their elements in a dense tensor.
class RowPlaces {
 public:
  explicit RowPlaces(const BenchProblem& problem) : shape_(problem.shape), strides_(dense_strides(problem.shape)) {
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      const bool normalised = std::find(problem.axes.begin(), problem.axes.end(), axis) != problem.axes.end();
      (normalised ? of_cols_ : of_rows_).push_back(axis);
    }
  }

  std::size_t row(std::size_t i) const { return offset(of_rows_, i); }  // the row's first element
  std::size_t col(std::size_t i) const { return offset(of_cols_, i); }  // counted from the row's first element

 private:
  std::size_t offset(const std::vector<std::size_t>& axes, std::size_t index) const {
    std::size_t at = 0;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const auto size = static_cast<std::size_t>(shape_[*axis]);
      at += index % size * static_cast<std::size_t>(strides_[*axis]);
      index /= size;
    }
    return at;
  }

  Shape shape_, strides_;
  std::vector<std::size_t> of_rows_, of_cols_;
};

contracts::Array whole(const Array& tensor) {
  if (!tensor.present()) return {};
  contracts::Array array(tensor.dtype(), tensor.elements());
  std::memcpy(array.data(), tensor.bytes().data(), tensor.bytes().size());
  return array;
}

class Checker {
 public:
  Checker(const BenchProblem& problem, const BenchTensors& tensors)
      : problem_(problem),
        tensors_(tensors),
        places_(problem),
        weight_(whole(tensors.weight)),
        bias_(whole(tensors.bias)),
        cols_(problem.cols()),
        op_(contracts::same_type(problem.kind, problem.dtype, cols_)) {
    op_.eps = problem.eps;
    if (problem.kind == Kind::rms) op_.bias.reset();
  }

  BenchVerdict check() {
    const std::size_t rows = problem_.rows(), most = std::clamp<std::size_t>(kMostElements / cols_, 1, 3);
    const std::size_t in_order[] = {0, rows - 1, rows / 2};
    if (cols_ <= kLongest) {
      for (const std::size_t row : std::set<std::size_t>(in_order, in_order + most)) check_row(row);
    }
    if (problem_.form == BenchForm::backward && rows <= kLongest) {
      for (const std::size_t col : std::set<std::size_t>{0, cols_ - 1}) check_sums(col);
    }
    return verdict_;
  }

 private:
  // Keeps the largest share. A NaN counts as the largest.
  void include(double error, double allowed, const char* what, const char* where, std::size_t index) {
    const double share = error <= 0 ? 0 : error / allowed;
    if (share <= verdict_.worst || verdict_.worst != verdict_.worst) return;
    verdict_.worst = share;
    verdict_.of = fmt::format("{}, {} {}", what, where, index);
  }

  contracts::Array row_of(const Array& tensor, std::size_t row) const {
    contracts::Array values(tensor.dtype(), cols_);
    const std::size_t element = size_of(tensor.dtype()), first = places_.row(row);
    for (std::size_t i = 0; i < cols_; ++i) {
      std::memcpy(values.data() + i * element, tensor.bytes().data() + (first + places_.col(i)) * element, element);
    }
    return values;
  }

  static bool is_finite(const contracts::Array& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(contracts::value_at(values, i))) return false;
    }
    return true;
  }

  void check_row(std::size_t row) {
    contracts::Array x = row_of(tensors_.x, row);
    if (!is_finite(x)) return;
    ++verdict_.rows;
    switch (problem_.form) {
      case BenchForm::backward:
        return check_dx(row, x);
      case BenchForm::int8:
        return check_int8(row, x);
      case BenchForm::residual:
        check_sum(row, x);
        x = row_of(tensors_.sum, row);
        break;
      case BenchForm::forward:
        break;
    }
    const contracts::Expected expected(op_, x, weight_, bias_);
    const double error = expected.errors_of(row_of(tensors_.y, row), 0, 0, 0).output;
    include(error, contracts::output_limit(op_), "y", "row", row);
  }

  // The sum is x + residual, rounded to the arithmetic's type and then to x's type.
  void check_sum(std::size_t row, const contracts::Array& x) {
    const contracts::Array residual = row_of(tensors_.residual, row), sum = row_of(tensors_.sum, row);
    const DType dtype = problem_.dtype, arithmetic = op_.arithmetic();
    const std::vector<Real> xs = reference::widen(dtype, x.data(), cols_);
    const std::vector<Real> residuals = reference::widen(dtype, residual.data(), cols_);
    for (std::size_t i = 0; i < cols_; ++i) {
      const std::uint64_t once = reference::round_to(arithmetic, xs[i] + residuals[i]);
      const std::uint64_t exact = reference::round_to(dtype, reference::widen(arithmetic, &once, 1)[0]);
      if (contracts::bits_at(sum, i) != exact) include(1, 0, "the sum", "row", row);
    }
  }

  // The scale is max|y| / 127, and y / scale is rounded to the nearest integer. The limit adds y's own error bound and
  // three f32 roundings: of 127 / max|y|, of the product, and of the scale.
  void check_int8(std::size_t row, const contracts::Array& x) {
    const std::vector<Real> xs = reference::widen(problem_.dtype, x.data(), cols_);
    const reference::Moments moments = reference::moments(problem_.kind, xs);
    const Real rstd = reference::rstd(moments, problem_.eps);
    const std::vector<Real> gamma = reference::widen(weight_.dtype(), weight_.data(), weight_.size());
    const std::vector<Real> beta = reference::widen(bias_.dtype(), bias_.data(), bias_.size());
    const std::vector<Real> y = reference::apply(xs, moments, rstd, {.gamma = gamma, .beta = beta});
    const auto largest_xhat = static_cast<double>(reference::largest_xhat(xs, moments, rstd));
    const contracts::Array integers = row_of(tensors_.y, row);
    const double scale = static_cast<double>(tensors_.scale.as<float>()[row]);
    const double u = contracts::unit_roundoff(op_.arithmetic()), u_of_f32 = contracts::unit_roundoff(DType::f32);
    double largest = 0, largest_bound = 0;
    for (std::size_t i = 0; i < cols_; ++i) {
      const auto exact = static_cast<double>(y[i]);
      const double shift = beta.empty() ? 0 : std::fabs(static_cast<double>(beta[i]));
      const double bound =
          contracts::output_limit(op_) * u * (std::fabs(static_cast<double>(gamma[i])) * largest_xhat + shift);
      const auto q = static_cast<double>(static_cast<std::int8_t>(integers.data()[i]));
      include(std::fabs(q * scale - exact) - scale / 2, scale * 3 * 127 * u_of_f32 + bound, "y", "row", row);
      largest = std::max(largest, std::fabs(exact));
      largest_bound = std::max(largest_bound, bound);
    }
    include(std::fabs(127 * scale - largest), largest_bound + 2 * u_of_f32 * largest, "scale", "row", row);
  }

  void check_dx(std::size_t row, const contracts::Array& x) {
    const contracts::Array dy = row_of(tensors_.dy, row);
    const contracts::ExpectedGradients expected(op_, x, dy, weight_);
    const double error = expected.errors_of(row_of(tensors_.dx, row), {}, {}).dx;
    include(error, contracts::gradient_limits(op_).dx, "dx", "row", row);
  }

  // One element, exactly.
  Real value_at(const Array& tensor, std::size_t i) const {
    return reference::widen(tensor.dtype(), tensor.bytes().data() + i * size_of(tensor.dtype()), 1)[0];
  }

  // Checks the sums over all rows against sums with the precomputed statistics, which may themselves be off by
  // rstd_limit(). The bound has terms h = |xhat| + e (contracts/backward_accuracy.cpp); in f32 arithmetic e follows
  // from max|xhat| <= sqrt(cols).
  void check_sums(std::size_t col) {
    const double u = contracts::unit_roundoff(op_.arithmetic());
    const bool centred = problem_.kind == Kind::layer, is_f64 = op_.arithmetic() == DType::f64;
    Real dgamma = 0, dbeta = 0;
    double terms = 0, plain_terms = 0;
    for (std::size_t row = 0; row < problem_.rows(); ++row) {
      const std::size_t at = places_.row(row) + places_.col(col);
      const double mean = centred ? tensors_.mean.as<double>()[row] : 0, rstd = tensors_.rstd.as<double>()[row];
      const Real dy = value_at(tensors_.dy, at);
      const Real xhat = (value_at(tensors_.x, at) - static_cast<Real>(mean)) * static_cast<Real>(rstd);
      const double magnitude = std::fabs(static_cast<double>(dy));
      const double places = 2 * u * (std::fabs(mean) * rstd + std::sqrt(static_cast<double>(cols_)));
      const double e = !centred ? 0 : is_f64 ? 1 : places;
      dgamma += dy * xhat;
      dbeta += dy;
      terms += magnitude * (std::fabs(static_cast<double>(xhat)) + e);
      plain_terms += magnitude;
    }
    if (!std::isfinite(terms)) return;  // a row that is not finite
    const contracts::GradientLimits limits = contracts::gradient_limits(op_);
    check_sum_over_rows(tensors_.dweight, "dweight", col, dgamma,
                        (limits.dgamma + contracts::rstd_limit(op_)) * u * terms);
    if (centred) check_sum_over_rows(tensors_.dbias, "dbias", col, dbeta, limits.dbeta * u * plain_terms);
  }

  void check_sum_over_rows(const Array& sums, const char* what, std::size_t col, Real exact, double allowed) {
    const auto apart = std::fabs(static_cast<double>(value_at(sums, col) - exact));
    include(apart, allowed + contracts::smallest_normal(sums.dtype()), what, "column", col);
  }

  const BenchProblem& problem_;
  const BenchTensors& tensors_;
  const RowPlaces places_;
  const contracts::Array weight_, bias_;
  const std::size_t cols_;
  contracts::Operation op_;
  BenchVerdict verdict_;
};

}  // namespace

BenchVerdict check_pass(const BenchProblem& problem, const BenchTensors& tensors) {
  return Checker(problem, tensors).check();
}

}  // namespace evenorm::cli
