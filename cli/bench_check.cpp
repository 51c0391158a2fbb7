#include "cli/bench_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "cli/common/row_places.hpp"
#include "contracts/accuracy.hpp"
#include "contracts/backward_accuracy.hpp"
#include "contracts/verify.hpp"
#include "reference/reference.hpp"

namespace evenorm::cli {
namespace {

using reference::Real;

// Limits, because the reference is slow and needs a hundred bytes per element.
constexpr std::size_t kMostElements = std::size_t{1} << 18U;  // of all checked rows, unless the first one is longer
constexpr std::size_t kLongest = std::size_t{1} << 22U;       // of a checked row or column

// The rows of the problem's tensors, which are dense.
RowPlaces places_of(const BenchProblem& problem) {
  std::vector<std::size_t> order;
  for (const bool normalised : {false, true}) {
    for (std::size_t axis = 0; axis < problem.shape.size(); ++axis) {
      if ((std::ranges::find(problem.axes, axis) != problem.axes.end()) == normalised) order.push_back(axis);
    }
  }
  const Shape strides = dense_strides(problem.shape);
  return {sizes_at(problem.shape, order), sizes_at(strides, order), problem.axes.size()};
}

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
        places_(places_of(problem)),
        weight_(whole(tensors.weight)),
        bias_(whole(tensors.bias)),
        cols_(problem.cols()),
        op_(contracts::same_type(problem.kind, problem.dtype, cols_)) {
    op_.eps = problem.eps;
    op_.weight = tensors.weight.dtype();
    op_.bias = tensors.bias.present() ? contracts::Type(tensors.bias.dtype()) : std::nullopt;
  }

  BenchVerdict check() {
    const std::size_t rows = problem_.rows(), most = std::clamp<std::size_t>(kMostElements / cols_, 1, 3);
    const std::size_t in_order[] = {0, rows - 1, rows / 2};
    if (!contracts::is_finite(weight_) || !contracts::is_finite(bias_)) return verdict_;
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
    return places_.values(tensor.bytes().data(), tensor.dtype(), row, cols_);
  }

  void expect_bits(const contracts::Array& is, const contracts::Array& should_be, const char* what, std::size_t row) {
    if (!std::ranges::equal(is.bytes(), should_be.bytes())) include(1, 0, what, "row", row);
  }

  void check_row(std::size_t row) {
    contracts::Array x = row_of(tensors_.x, row);
    if (!contracts::is_finite(x)) return;
    ++verdict_.rows;
    if (problem_.form == BenchForm::backward) return check_dx(row, x);
    if (problem_.form == BenchForm::residual) {
      x = contracts::sum_of(op_, x, row_of(tensors_.residual, row));
      expect_bits(row_of(tensors_.sum, row), x, "the sum", row);
    }
    contracts::Array y = row_of(tensors_.y, row);
    if (problem_.form == BenchForm::int8) {
      contracts::Operation wide = op_;
      wide.y = op_.arithmetic();
      const contracts::Array integers = y;
      y = contracts::plain_outcome(wide, {.x = x, .weight = weight_, .bias = bias_}).y;
      const contracts::Quantised q = contracts::quantised(y, cols_, 0);
      expect_bits(integers, q.y, "y", row);
      expect_bits(contracts::Array(DType::f32, std::vector{static_cast<double>(tensors_.scale.as<float>()[row])}),
                  q.scale, "scale", row);
    }
    const contracts::Expected expected(op_, x, weight_, bias_);
    include(expected.errors_of(y, 0, 0, 0).output, contracts::output_limit(op_), "y", "row", row);
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
