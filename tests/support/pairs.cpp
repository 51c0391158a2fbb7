// See pairs.hpp.
#include "support/pairs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace evenorm::testing {
namespace {

using contracts::gradients_on_target;

// Rows of `cols` elements, as they lie where columns come first; and back.
Array transposed(const Array& a, std::size_t rows, std::size_t cols) {
  Array result(a.dtype(), a.size());
  const std::size_t bytes = size_of(a.dtype());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c)
      std::memcpy(result.data() + (c * rows + r) * bytes, a.data() + (r * cols + c) * bytes, bytes);
  }
  return result;
}

// One tensor in memory of its own: whole rows, or a value for each column or row.
class Stored {
 public:
  // in_rows: rows of so many columns that lie columns first; 0: as they are, `step` elements apart.
  Stored(const Array& values, std::size_t in_rows, std::size_t step)
      : present_(!values.empty()), in_rows_(in_rows), step_(step), values_(values) {
    if (!present_) return;
    if (in_rows_ != 0) {
      memory_ = transposed(values, values.size() / in_rows_, in_rows_);
    } else {
      memory_ = Array(values.dtype(), (values.size() - 1) * step_ + 1);
      for (std::size_t i = 0; i < values.size(); ++i) copy(values, i, memory_, i * step_);
    }
  }

  bool present() const { return present_; }
  Array& memory() { return memory_; }
  DType dtype() const { return values_.dtype(); }

  // What is there now.
  Array values() const {
    if (!present_) return {};
    if (in_rows_ != 0) return transposed(memory_, in_rows_, values_.size() / in_rows_);
    Array now = values_;
    for (std::size_t i = 0; i < now.size(); ++i) copy(memory_, i * step_, now, i);
    return now;
  }
  bool is_unchanged() const { return bytes_of(values()) == bytes_of(values_); }

 private:
  static void copy(const Array& from, std::size_t i, Array& to, std::size_t j) {
    const std::size_t bytes = size_of(from.dtype());
    std::memcpy(to.data() + j * bytes, from.data() + i * bytes, bytes);
  }

  bool present_;
  std::size_t in_rows_, step_;
  Array values_, memory_;
};

void add_text(std::string& text, const char* what, const std::optional<DType>& dtype) {
  if (dtype) text += std::string(" ") + what + "=" + std::string(name(*dtype));
}

Array zeros(const std::optional<DType>& dtype, std::size_t size) { return dtype ? Array(*dtype, size) : Array(); }

void set_view(ConstTensor& tensor, Stored& stored, const Shape& shape, const Shape& strides) {
  if (stored.present()) tensor = {stored.memory().data(), stored.dtype(), shape, strides};
}
void set_view(Tensor& tensor, Stored& stored, const Shape& shape, const Shape& strides) {
  if (stored.present()) tensor = {stored.memory().data(), stored.dtype(), shape, strides};
}

}  // namespace

DType PairOperation::arithmetic() const {
  for (const std::optional<DType> type :
       {std::optional(x), std::optional(dy), std::optional(dy2), dx, dsum, weight, weight2}) {
    if (type == DType::f64) return DType::f64;
  }
  return DType::f32;
}

std::string PairOperation::name() const {
  std::string text = (kind == Kind::layer ? "layer" : "rms");
  add_text(text, "x", x);
  add_text(text, "dy", dy);
  add_text(text, "dy2", dy2);
  add_text(text, "dx", dx);
  add_text(text, "dsum", dsum);
  add_text(text, "weight", weight);
  add_text(text, "weight2", weight2);
  add_text(text, "dgamma", dgamma);
  add_text(text, "dbeta", dbeta);
  add_text(text, "dgamma2", dgamma2);
  add_text(text, "dbeta2", dbeta2);
  return text + (zero_centered ? " zero-centred" : "") + (accumulate ? " accumulated" : "") + ", " +
         std::to_string(cols) + " columns";
}

PairOperation pair_of_type(Kind kind, DType dtype, std::size_t cols) {
  PairOperation op{kind, dtype, dtype, dtype, dtype, {}, dtype, dtype, dtype, dtype, dtype, dtype, cols};
  return op;
}

PairTensors pair_inputs(const PairOperation& op, std::size_t rows, const Names& x, const Names& dy,
                        std::uint64_t seed) {
  PairTensors t;
  const std::size_t size = rows * op.cols;
  t.x = rows_of(x, op.x, rows, op.cols, seed);
  t.dy = rows_of(dy, op.dy, rows, op.cols, seed + 1000000);
  t.dy2 = normals(op.dy2, size, seed + 1);
  if (op.dsum) t.dsum = normals(*op.dsum, size, seed + 2);
  if (op.weight) t.weight = contracts::make_weight(*op.weight, op.cols, seed);
  if (op.weight2) t.weight2 = contracts::make_weight(*op.weight2, op.cols, seed + 5);
  t.dx = zeros(op.dx, size);
  const auto gradient = [&](const std::optional<DType>& dtype, std::uint64_t from) {
    return dtype ? contracts::make_bias(*dtype, op.cols, from) : Array();
  };
  t.dgamma = gradient(op.dgamma, 11);
  t.dbeta = gradient(op.dbeta, 12);
  t.dgamma2 = gradient(op.dgamma2, 13);
  t.dbeta2 = gradient(op.dbeta2, 14);
  return t;
}

void add_statistics(const PairOperation& op, PairTensors& tensors) {
  contracts::BackwardInputs inputs{tensors.x, tensors.dy};
  const contracts::Operation forward{op.kind, op.x, op.x, {}, {}, false, op.eps, op.cols};
  contracts::add_statistics(contracts::runnable_targets()[0], forward, inputs);
  tensors.mean = inputs.mean;
  tensors.rstd = inputs.rstd;
}

PairTensors run_pair(const contracts::BackwardRunner& run, const PairOperation& op, const PairTensors& tensors,
                     const PairLayout& layout, const Executor& executor) {
  const std::size_t rows = tensors.x.size() / op.cols, step = layout.vectors_apart ? 2 : 1;
  const std::size_t in_rows = layout.columns_first ? op.cols : 0;
  const Shape shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(op.cols)}, normalized{shape[1]};
  const Shape outer{shape[0]}, strides{layout.columns_first ? 1 : shape[1], layout.columns_first ? shape[0] : 1};
  const Shape steps{static_cast<std::int64_t>(step)};
  Stored x(tensors.x, in_rows, 1), dy(tensors.dy, in_rows, 1), dy2(tensors.dy2, in_rows, 1);
  Stored dsum(tensors.dsum, in_rows, 1), dx(tensors.dx, in_rows, 1);
  Stored weight(tensors.weight, 0, step), weight2(tensors.weight2, 0, step);
  Stored gradients[] = {
      {tensors.dgamma, 0, step}, {tensors.dbeta, 0, step}, {tensors.dgamma2, 0, step}, {tensors.dbeta2, 0, step}};
  Stored* const places[] = {&dx, &x, &dy, &dy2, &dsum};
  Stored& result = *places[static_cast<int>(layout.dx)];

  Backward b;
  b.kind = op.kind;
  b.eps = op.eps;
  b.zero_centered = op.zero_centered;
  b.accumulate = op.accumulate;
  b.normalized_shape = normalized;
  set_view(b.x, x, shape, strides);
  set_view(b.dy, dy, shape, strides);
  set_view(b.dy2, dy2, shape, strides);
  set_view(b.dsum, dsum, shape, strides);
  if (op.dx) b.dx = {result.memory().data(), *op.dx, shape, strides};
  set_view(b.weight, weight, normalized, steps);
  set_view(b.weight2, weight2, normalized, steps);
  set_view(b.dweight, gradients[0], normalized, steps);
  set_view(b.dbias, gradients[1], normalized, steps);
  set_view(b.dweight2, gradients[2], normalized, steps);
  set_view(b.dbias2, gradients[3], normalized, steps);
  if (!tensors.mean.empty()) b.mean = {tensors.mean.data(), DType::f64, outer, {}};
  if (!tensors.rstd.empty()) b.rstd = {tensors.rstd.data(), DType::f64, outer, {}};
  run(b, executor);

  for (Stored* input : {&x, &dy, &dy2, &dsum, &weight, &weight2}) {
    EXPECT_TRUE(input == &result || input->is_unchanged()) << op.name();
  }
  PairTensors after = tensors;
  if (op.dx) {
    after.dx = result.values();
    if (after.dx.dtype() != *op.dx) {  // another type of as many bytes
      Array typed(*op.dx, after.dx.size());
      std::memcpy(typed.data(), after.dx.data(), typed.bytes().size());
      after.dx = typed;
    }
  }
  Array* const written[] = {&after.dgamma, &after.dbeta, &after.dgamma2, &after.dbeta2};
  for (std::size_t i = 0; i < 4; ++i) *written[i] = gradients[i].values();
  return after;
}

PairTensors one_by_one(internal::Target target, const PairOperation& op, const PairTensors& t) {
  const std::size_t rows = t.x.size() / op.cols;
  const Shape shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(op.cols)}, normalized{shape[1]};
  const Shape outer{shape[0]};
  PairTensors result = t;
  Array between(op.arithmetic(), t.x.size());
  Backward shared;
  shared.kind = op.kind;
  shared.eps = op.eps;
  shared.zero_centered = op.zero_centered;
  shared.accumulate = op.accumulate;
  shared.normalized_shape = normalized;
  shared.x = const_view(t.x, shape);
  if (!t.mean.empty()) shared.mean = {t.mean.data(), DType::f64, outer, {}};
  if (!t.rstd.empty()) shared.rstd = {t.rstd.data(), DType::f64, outer, {}};
  Backward second = shared, first = shared;
  second.dy = const_view(t.dy2, shape);
  first.dy = const_view(t.dy, shape);
  if (op.weight2) second.weight = const_view(t.weight2, normalized);
  if (op.weight) first.weight = const_view(t.weight, normalized);
  if (op.dgamma2) second.dweight = view(result.dgamma2, normalized);
  if (op.dbeta2) second.dbias = view(result.dbeta2, normalized);
  if (op.dgamma) first.dweight = view(result.dgamma, normalized);
  if (op.dbeta) first.dbias = view(result.dbeta, normalized);
  if (op.dx) {
    second.dx = view(between, shape);
    if (op.dsum) second.dsum = const_view(t.dsum, shape);
    first.dx = view(result.dx, shape);
    first.dsum = const_view(between, shape);
  }
  for (const Backward* pass : {&second, &first}) {
    if (pass->dx.data == nullptr && pass->dweight.data == nullptr && pass->dbias.data == nullptr) continue;
    gradients_on_target(target)(*pass, {});
  }
  return result;
}

std::string difference(const PairTensors& a, const PairTensors& b) {
  std::string text;
  const auto compare = [&](const char* what, const Array& left, const Array& right) {
    if (left.dtype() == right.dtype() && bytes_of(left) == bytes_of(right)) return;
    text += std::string(text.empty() ? "" : ", ") + what;
  };
  compare("dx", a.dx, b.dx);
  compare("dgamma", a.dgamma, b.dgamma);
  compare("dbeta", a.dbeta, b.dbeta);
  compare("dgamma2", a.dgamma2, b.dgamma2);
  compare("dbeta2", a.dbeta2, b.dbeta2);
  return text;
}

}  // namespace evenorm::testing
