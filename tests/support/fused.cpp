// Runs fused passes, and composes the same results from single steps.
#include "support/fused.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/reference.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::Field;

template <class T>
std::vector<double> widened(const Array& array) {
  std::vector<T> values(array.size());
  if (!values.empty()) std::memcpy(values.data(), array.data(), array.bytes().size());
  return {values.begin(), values.end()};
}

std::vector<double> values_of(const Array& array) {
  if (array.dtype() == DType::f64) return widened<double>(array);
  if (array.dtype() == DType::f32) return widened<float>(array);
  const std::vector<reference::Real> wide = reference::widen(array.dtype(), array.data(), array.size());
  return {wide.begin(), wide.end()};
}

// Stores a number of the arithmetic's type, rounded once. A NaN becomes canonical.
void store(Array& to, std::size_t i, double value) {
  if (value != value) value = std::numeric_limits<double>::quiet_NaN();
  if (to.dtype() == DType::f64) {
    std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
  } else if (to.dtype() == DType::f32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(to.data() + i * sizeof narrow, &narrow, sizeof narrow);
  } else {
    to.set(i, value);
  }
}

template <class A>
Array quantised_rows(const std::vector<double>& y, std::size_t cols, double given_scale, Array& scale) {
  Array integers(DType::i8, y.size());
  for (std::size_t first = 0; first < y.size(); first += cols) {
    double largest = 0;
    for (std::size_t i = first; i < first + cols; ++i) {
      largest = std::isfinite(y[i]) && !std::isnan(largest) ? std::max(largest, std::fabs(y[i])) : std::nan("");
    }
    const auto m = static_cast<float>(largest);
    const bool finite = std::isfinite(m);
    float factor = finite && m != 0 ? std::min(127.0f / m, std::numeric_limits<float>::max()) : 0;
    if (given_scale != 0) factor = 1.0f / static_cast<float>(given_scale);
    scale.set(first / cols, static_cast<double>(finite ? m / 127.0f : std::numeric_limits<float>::quiet_NaN()));
    for (std::size_t i = first; i < first + cols; ++i) {
      const A product = static_cast<A>(y[i]) * static_cast<A>(factor);
      const A clamped = std::fmax(std::fmin(std::isnan(product) ? A{0} : product, A{127}), A{-127});
      integers.data()[i] = static_cast<std::byte>(static_cast<int>(std::nearbyint(clamped)));
    }
  }
  return integers;
}

class Call {
 public:
  Call(const FusedOperation& op, const FusedInputs& inputs, const FusedLayout& layout)
      : op_(op),
        layout_(layout),
        rows_(inputs.x.size() / op.norm.cols),
        shape_{static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(op.norm.cols)},
        vector_stride_{layout.vectors_apart ? 3 : 1},
        x_(matrix(op.norm.x, true, 0)),
        residual_(matrix(op.residual.value_or(DType::f32), op.residual.has_value(), 0)),
        y_(matrix(op.norm.y, layout.y == Place::own, 1)),
        sum_(matrix(op.norm.x, has_sum() && layout.sum == Place::own, 2)),
        gamma_(parameter(op.norm.weight)),
        beta_(parameter(op.norm.bias)),
        mean_(vector(DType::f64, layout.statistics && op.norm.kind == Kind::layer ? rows_ : 0)),
        rstd_(vector(DType::f64, layout.statistics ? rows_ : 0)),
        scale_(statistic(DType::f32)) {
    x_.put(inputs.x.data());
    residual_.put(inputs.residual.data());
    gamma_.put(inputs.weight.data());
    beta_.put(inputs.bias.data());
  }

  FusedOutcome run(const contracts::Runner& runner, const Executor& executor) {
    describe();
    const Field x_before = x_, residual_before = residual_;
    runner(forward_, executor);
    FusedOutcome outcome;
    outcome.y = contents(place_of(layout_.y, y_), op_.norm.y);
    if (has_sum()) outcome.sum = contents(place_of(layout_.sum, sum_), op_.norm.x);
    if (has_scale()) outcome.scale = contents(scale_, DType::f32, 1);
    outcome.mean = statistics(mean_);
    outcome.rstd = statistics(rstd_);
    const bool x_written = layout_.y == Place::of_x || (has_sum() && layout_.sum == Place::of_x);
    const bool residual_written = layout_.y == Place::of_residual || (has_sum() && layout_.sum == Place::of_residual);
    outcome.kept_inside = (x_written || x_ == x_before) && (residual_written || residual_ == residual_before);
    for (const Field* field : {&x_, &residual_, &y_, &sum_, &mean_, &rstd_, &scale_}) {
      outcome.kept_inside = outcome.kept_inside && field->surroundings_untouched();
    }
    return outcome;
  }

 private:
  bool has_sum() const { return op_.residual && op_.sum; }
  bool has_scale() const { return op_.norm.y == DType::i8 && op_.given_scale == 0; }

  Field matrix(DType type, bool present, std::size_t more) const {
    return {type, present ? rows_ : 0, op_.norm.cols, layout_.offset + more, layout_.gap + more, layout_.odd_addresses};
  }
  Field parameter(std::optional<DType> type) const {
    return vector(type.value_or(DType::f32), type ? op_.norm.cols : 0);
  }
  Field statistic(DType type) const { return vector(type, rows_); }
  Field vector(DType type, std::size_t size) const {
    return {type, size, 1, 1, layout_.vectors_apart ? std::size_t{2} : 0, layout_.odd_addresses};
  }

  Field& place_of(Place place, Field& own) {
    return place == Place::of_x ? x_ : place == Place::of_residual ? residual_ : own;
  }

  void describe() {
    const contracts::Operation& norm = op_.norm;
    const std::span<const std::int64_t> outer(shape_.data(), 1), normalized(&shape_[1], 1);
    x_strides_ = x_.strides();
    residual_strides_ = residual_.strides();
    Field& y = place_of(layout_.y, y_);
    Field& sum = place_of(layout_.sum, sum_);
    y_strides_ = y.strides();
    sum_strides_ = sum.strides();
    forward_.kind = norm.kind;
    forward_.x = {x_.data(), norm.x, shape_, x_strides_};
    forward_.y = {y.data(), norm.y, shape_, y_strides_};
    forward_.normalized_shape = normalized;
    if (norm.weight) forward_.weight = {gamma_.data(), *norm.weight, normalized, vector_stride_};
    if (norm.bias) forward_.bias = {beta_.data(), *norm.bias, normalized, vector_stride_};
    if (layout_.statistics) {
      if (norm.kind == Kind::layer) forward_.mean = {mean_.data(), DType::f64, outer, vector_stride_};
      forward_.rstd = {rstd_.data(), DType::f64, outer, vector_stride_};
    }
    forward_.eps = norm.eps;
    forward_.zero_centered = norm.zero_centered;
    if (op_.residual) forward_.residual = {residual_.data(), *op_.residual, shape_, residual_strides_};
    if (op_.residual) forward_.residual_scale = op_.residual_scale;
    if (has_sum()) forward_.sum = {sum.data(), norm.x, shape_, sum_strides_};
    if (has_scale()) forward_.scale = {scale_.data(), DType::f32, outer, vector_stride_};
    forward_.given_scale = op_.given_scale;
  }

  Array contents(Field& field, DType type) const { return contents(field, type, op_.norm.cols); }
  Array contents(Field& field, DType type, std::size_t cols) const {
    Array array(type, rows_ * cols);
    field.get(array.data());
    return array;
  }
  std::vector<double> statistics(Field& field) const {
    if (!layout_.statistics || (&field == &mean_ && op_.norm.kind == Kind::rms)) return {};
    return values_of(contents(field, DType::f64, 1));
  }

  const FusedOperation& op_;
  FusedLayout layout_;
  std::size_t rows_;
  std::array<std::int64_t, 2> shape_, x_strides_{}, residual_strides_{}, y_strides_{}, sum_strides_{};
  std::array<std::int64_t, 1> vector_stride_;
  Field x_, residual_, y_, sum_, gamma_, beta_, mean_, rstd_, scale_;
  Forward forward_;
};

// Compares bits, so that NaNs and signed zeros count.
template <class Vector>
bool differ(const Vector& a, const Vector& b) {
  return a.size() != b.size() || (!a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) != 0);
}

}  // namespace

DType FusedOperation::arithmetic_of_sum() const {
  return norm.x == DType::f64 || residual == DType::f64 ? DType::f64 : DType::f32;
}

std::string FusedOperation::name() const {
  const auto text = [](const char* what, std::optional<DType> type) {
    return type ? std::string(what) + std::string(evenorm::name(*type)) : "";
  };
  std::string all = norm.name() + text(" residual=", residual);
  if (residual) all += "*" + std::to_string(residual_scale) + (sum ? "" : " without sum");
  return given_scale != 0 ? all + " given_scale=" + std::to_string(given_scale) : all;
}

FusedOutcome run_fused(const contracts::Runner& run, const FusedOperation& op, const FusedInputs& inputs,
                       const FusedLayout& layout, const Executor& executor) {
  return Call(op, inputs, layout).run(run, executor);
}

std::string FusedOutcome::difference_to(const FusedOutcome& other) const {
  std::string text;
  const auto add = [&](const char* what, const auto& a, const auto& b) {
    if (differ(a, b)) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add("y", y.bytes(), other.y.bytes());
  add("sum", sum.bytes(), other.sum.bytes());
  add("scale", scale.bytes(), other.scale.bytes());
  add("mean", mean, other.mean);
  add("rstd", rstd, other.rstd);
  return text;
}

FusedOutcome FusedOutcome::without_statistics() const {
  FusedOutcome outcome = *this;
  outcome.mean.clear();
  outcome.rstd.clear();
  return outcome;
}

Array sum_of(const FusedOperation& op, const Array& x, const Array& residual) {
  const std::vector<double> xs = values_of(x), rs = values_of(residual);
  Array sum(x.dtype(), x.size());
  const auto scale = static_cast<float>(op.residual_scale);
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (op.arithmetic_of_sum() == DType::f64) {
      store(sum, i, std::fma(op.residual_scale, rs[i], xs[i]));
    } else {
      store(sum, i, static_cast<double>(std::fma(scale, static_cast<float>(rs[i]), static_cast<float>(xs[i]))));
    }
  }
  return sum;
}

Quantised quantised(const Array& y, std::size_t cols, double given_scale) {
  Quantised result{{}, Array(DType::f32, y.size() / cols)};
  const std::vector<double> values = values_of(y);
  result.y = y.dtype() == DType::f64 ? quantised_rows<double>(values, cols, given_scale, result.scale)
                                     : quantised_rows<float>(values, cols, given_scale, result.scale);
  if (given_scale != 0) result.scale = Array();
  return result;
}

FusedOutcome one_by_one(internal::Target target, const FusedOperation& op, const FusedInputs& inputs) {
  const contracts::Runner run = contracts::on_target(target);
  FusedOutcome outcome;
  const Array x = op.residual ? sum_of(op, inputs.x, inputs.residual) : inputs.x;
  if (op.residual && op.sum) outcome.sum = x;
  contracts::Operation norm = op.norm;
  if (norm.y == DType::i8) {
    norm.y = DType::f32;
    norm.y = norm.arithmetic();
  }
  const contracts::Outcome first = run_operation(run, norm, x, inputs.weight, inputs.bias);
  outcome.y = first.y;
  outcome.mean = first.mean;
  outcome.rstd = first.rstd;
  if (op.norm.y == DType::i8) {
    const Quantised q = quantised(first.y, norm.cols, op.given_scale);
    outcome.y = q.y;
    outcome.scale = q.scale;
  }
  return outcome;
}

}  // namespace evenorm::testing
