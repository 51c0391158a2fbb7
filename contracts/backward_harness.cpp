// Passes the tensors of a backward pass to the library, and checks where it wrote.
#include "contracts/backward_harness.hpp"

#include <algorithm>
#include <array>

#include "run/schedule.hpp"

namespace evenorm::contracts {
namespace {

Field matrix(DType dtype, std::size_t rows, std::size_t cols, const Place& place, bool odd) {
  return {dtype, rows, cols, place.offset, place.gap, odd, place.order};
}

// A tensor of one axis. Absent if it has no type.
class Line {
 public:
  Line(std::optional<DType> type, std::size_t size, const BackwardLayout& layout)
      : type_(type),
        shape_{static_cast<std::int64_t>(size)},
        strides_{layout.vectors_apart ? 3 : 1},
        field_(type.value_or(DType::f32), type ? size : 0, 1, 1, layout.vectors_apart ? 2 : 0, layout.odd_addresses),
        before_(field_) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void put(const void* values) {
    field_.put(static_cast<const std::byte*>(values));
    before_ = field_;
  }
  void describe(ConstTensor& tensor) {
    if (type_) tensor = {field_.data(), *type_, shape_, strides_};
  }
  void describe(Tensor& tensor) {
    if (type_) tensor = {field_.data(), *type_, shape_, strides_};
  }
  Array values() {
    if (!type_) return {};
    Array array(*type_, static_cast<std::size_t>(shape_[0]));
    field_.get(array.data());
    return array;
  }
  bool is_untouched() const { return field_ == before_; }
  bool surroundings_untouched() const { return field_.surroundings_untouched(); }

 private:
  std::optional<DType> type_;
  std::array<std::int64_t, 1> shape_, strides_;
  Field field_, before_;
};

std::optional<DType> type_of(const std::vector<double>& statistic) {
  return statistic.empty() ? std::nullopt : std::optional(DType::f64);
}

bool same_bytes(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.bytes(), b.bytes());
}

// x, dy and dx. dx may share the memory of x or dy.
class Matrices {
 public:
  Matrices(const BackwardOperation& op, const BackwardInputs& inputs, const BackwardLayout& layout)
      : rows_(inputs.x.size() / op.forward.cols),
        cols_(op.forward.cols),
        layout_(layout),
        x_(matrix(op.forward.x, rows_, cols_, layout.x, layout.odd_addresses)),
        dy_(matrix(op.forward.y, rows_, cols_, layout.dy, layout.odd_addresses)),
        dx_(matrix(op.dx.value_or(DType::f32), op.dx ? rows_ : 0, cols_, layout.dx, layout.odd_addresses)) {
    x_.put(inputs.x.data());
    dy_.put(inputs.dy.data());
    x_before_ = x_;
    dy_before_ = dy_;
  }

  void describe(const BackwardOperation& op, Backward& backward) {
    shape_ = {static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(cols_)};
    x_strides_ = x_.strides();
    dy_strides_ = dy_.strides();
    dx_strides_ = result().strides();
    backward.x = {x_.data(), op.forward.x, shape_, x_strides_};
    backward.dy = {dy_.data(), op.forward.y, shape_, dy_strides_};
    if (op.dx) backward.dx = {result().data(), *op.dx, shape_, dx_strides_};
    backward.normalized_shape = std::span(shape_).last(1);
  }
  Array dx(DType dtype) {
    Array values(dtype, rows_ * cols_);
    result().get(values.data());
    return values;
  }
  bool kept_inside() {
    return result().surroundings_untouched() && (layout_.in_place == InPlace::of_x || x_ == *x_before_) &&
           (layout_.in_place == InPlace::of_dy || dy_ == *dy_before_);
  }

 private:
  Field& result() { return layout_.in_place == InPlace::of_x ? x_ : layout_.in_place == InPlace::of_dy ? dy_ : dx_; }

  std::size_t rows_, cols_;
  BackwardLayout layout_;
  Field x_, dy_, dx_;
  std::optional<Field> x_before_, dy_before_;
  std::array<std::int64_t, 2> shape_{}, x_strides_{}, dy_strides_{}, dx_strides_{};
};

}  // namespace

Operation BackwardOperation::measured() const {
  Operation op = forward;
  if (dx == DType::f64) op.bias = DType::f64;
  return op;
}

std::string BackwardOperation::name() const {
  std::string text = forward.name();
  const auto add = [&](const char* gradient, std::optional<DType> type) {
    if (type) text += std::string(" ") + gradient + "=" + std::string(evenorm::name(*type));
  };
  text += ",";
  add("dx", dx);
  add("dgamma", dgamma);
  add("dbeta", dbeta);
  return accumulate ? text + " accumulated" : text;
}

BackwardOperation same_type_backward(Kind kind, DType dtype, std::size_t cols) {
  BackwardOperation op{same_type(kind, dtype, cols), dtype, dtype, dtype};
  op.forward.bias.reset();
  return op;
}

void add_statistics(internal::Target target, const Operation& op, BackwardInputs& inputs) {
  Operation forward = op;
  forward.y = op.x;
  forward.weight.reset();
  forward.zero_centered = false;
  forward.bias.reset();
  const Outcome outcome = run_operation(on_target(target), forward, inputs.x, {}, {});
  inputs.mean = outcome.mean;
  inputs.rstd = outcome.rstd;
}

bool BackwardOutcome::has_the_bits_of(const BackwardOutcome& other) const {
  return same_bytes(dx, other.dx) && same_bytes(dgamma, other.dgamma) && same_bytes(dbeta, other.dbeta);
}

BackwardRunner gradients_on_target(internal::Target target) {
  return [target](const Backward& backward, const Executor& executor) { internal::run_on(target, backward, executor); };
}

BackwardOutcome run_backward(const BackwardRunner& run, const BackwardOperation& op, const BackwardInputs& inputs,
                             const BackwardLayout& layout, const Executor& executor) {
  const std::size_t cols = op.forward.cols, rows = inputs.x.size() / cols;
  Matrices matrices(op, inputs, layout);
  Line weight(op.forward.weight, cols, layout), dgamma(op.dgamma, cols, layout), dbeta(op.dbeta, cols, layout);
  Line mean(type_of(inputs.mean), rows, layout), rstd(type_of(inputs.rstd), rows, layout);
  weight.put(inputs.weight.data());
  mean.put(inputs.mean.data());
  rstd.put(inputs.rstd.data());
  if (!inputs.dgamma.empty()) dgamma.put(inputs.dgamma.data());
  if (!inputs.dbeta.empty()) dbeta.put(inputs.dbeta.data());

  Backward backward;
  backward.kind = op.forward.kind;
  matrices.describe(op, backward);
  weight.describe(backward.weight);
  mean.describe(backward.mean);
  rstd.describe(backward.rstd);
  dgamma.describe(backward.dweight);
  dbeta.describe(backward.dbias);
  backward.eps = op.forward.eps;
  backward.zero_centered = op.forward.zero_centered;
  backward.accumulate = op.accumulate;
  run(backward, executor);

  BackwardOutcome outcome{op.dx ? matrices.dx(*op.dx) : Array(), dgamma.values(), dbeta.values(), true};
  outcome.kept_inside = matrices.kept_inside() && weight.is_untouched() && mean.is_untouched() && rstd.is_untouched() &&
                        dgamma.surroundings_untouched() && dbeta.surroundings_untouched();
  return outcome;
}

}  // namespace evenorm::contracts
