// The functions of the C++ API for contiguous rows in spans. They check sizes, and pass the rows to run() as tensors.
#include <array>
#include <string>

#include "evenorm/sharded.hpp"
#include "problem/shapes.hpp"

namespace evenorm {
namespace {

void check_rows(std::size_t x_size, std::size_t cols) {
  if (cols == 0) throw Error("cols is 0, but it should be at least 1");
  if (x_size % cols != 0) {
    throw Error("x has " + std::to_string(x_size) + " elements, but cols is " + std::to_string(cols));
  }
}

void check_size_is_of_x(const char* argument, std::size_t size, std::size_t x_size) {
  if (size == x_size) return;
  throw Error(std::string(argument) + " has " + std::to_string(size) + " elements, but x has " +
              std::to_string(x_size));
}

std::array<std::int64_t, 2> shape_of(std::size_t x_size, std::size_t cols) {
  return {static_cast<std::int64_t>(x_size / cols), static_cast<std::int64_t>(cols)};
}

std::array<std::int64_t, 1> shape_of(std::size_t elements) { return {static_cast<std::int64_t>(elements)}; }

// Returns an absent tensor for an empty span. View is Tensor or ConstTensor.
template <class View, class T>
View tensor_of(std::span<T> span, DType dtype, std::span<const std::int64_t> shape) {
  return span.empty() ? View{} : View{span.data(), dtype, shape};
}

Executor executor_of(const Executor* executor) { return executor == nullptr ? Executor{} : *executor; }

void check(const detail::RowSpans& rows) {
  internal::check_dtype("x", rows.dtype);
  check_rows(rows.x_size, rows.cols);
  check_size_is_of_x("y", rows.y_size, rows.x_size);
}
void check(const detail::GradientSpans& rows) {
  internal::check_dtype("x", rows.dtype);
  const std::size_t bytes = size_of(rows.dtype), x_size = rows.x.size() / bytes;
  check_rows(x_size, rows.cols);
  check_size_is_of_x("dy", rows.dy.size() / bytes, x_size);
  if (!rows.dx.empty()) check_size_is_of_x("dx", rows.dx.size() / bytes, x_size);
}
// Checks the rows of one process. If they are wrong, it tells the other processes, which wait for this one.
template <class Spans>
void check_and_tell(const Communicator& communicator, const Spans& rows) {
  try {
    check(rows);
  } catch (const Error& error) {
    ShardedNorm::refuse(communicator, error.what());
    throw;
  }
}

// Calls work(pass, executor) with the rows as tensors.
template <class Work>
void with_tensors(const detail::RowSpans& rows, const Work& work) {
  const auto shape = shape_of(rows.x_size, rows.cols);
  const std::size_t bytes = size_of(rows.dtype);
  const auto weight = shape_of(rows.weight.size() / bytes), bias = shape_of(rows.bias.size() / bytes);
  const auto mean = shape_of(rows.mean.size()), rstd = shape_of(rows.rstd.size());
  work(Forward{.kind = rows.kind,
               .x = {rows.x, rows.dtype, shape},
               .y = {rows.y, rows.dtype, shape},
               .normalized_shape = std::span(shape).last(1),
               .weight = tensor_of<ConstTensor>(rows.weight, rows.dtype, weight),
               .bias = tensor_of<ConstTensor>(rows.bias, rows.dtype, bias),
               .mean = tensor_of<Tensor>(rows.mean, DType::f64, mean),
               .rstd = tensor_of<Tensor>(rows.rstd, DType::f64, rstd),
               .eps = rows.eps,
               .zero_centered = rows.zero_centered},
       executor_of(rows.executor));
}

template <class Work>
void with_tensors(const detail::GradientSpans& rows, const Work& work) {
  const std::size_t bytes = size_of(rows.dtype), x_size = rows.x.size() / bytes;
  const auto shape = shape_of(x_size, rows.cols);
  const auto weight = shape_of(rows.weight.size() / bytes);
  const auto dweight = shape_of(rows.dweight.size() / bytes), dbias = shape_of(rows.dbias.size() / bytes);
  const auto mean = shape_of(rows.mean.size()), rstd = shape_of(rows.rstd.size());
  work(Backward{.kind = rows.kind,
                .x = {rows.x.data(), rows.dtype, shape},
                .dy = {rows.dy.data(), rows.dtype, shape},
                .normalized_shape = std::span(shape).last(1),
                .weight = tensor_of<ConstTensor>(rows.weight, rows.dtype, weight),
                .mean = tensor_of<ConstTensor>(rows.mean, DType::f64, mean),
                .rstd = tensor_of<ConstTensor>(rows.rstd, DType::f64, rstd),
                .dx = tensor_of<Tensor>(rows.dx, rows.dtype, shape),
                .dweight = tensor_of<Tensor>(rows.dweight, rows.dtype, dweight),
                .dbias = tensor_of<Tensor>(rows.dbias, rows.dtype, dbias),
                .eps = rows.eps,
                .zero_centered = rows.zero_centered,
                .accumulate = rows.accumulate},
       executor_of(rows.executor));
}

}  // namespace

void detail::run_rows(const RowSpans& rows) {
  check(rows);
  with_tensors(rows, [](const Forward& forward, const Executor& executor) { run(forward, executor); });
}

void detail::run_gradients(const GradientSpans& rows) {
  check(rows);
  with_tensors(rows, [](const Backward& backward, const Executor& executor) { run(backward, executor); });
}

void detail::run_sharded_rows(const Communicator& communicator, const RowSpans& rows, std::span<Moments> moments) {
  check_and_tell(communicator, rows);
  with_tensors(rows, [&](const Forward& forward, const Executor& executor) {
    ShardedNorm(forward, communicator).run(forward, moments, executor);
  });
}

void detail::run_sharded_gradients(const Communicator& communicator, const GradientSpans& rows,
                                   std::span<const Moments> moments) {
  check_and_tell(communicator, rows);
  with_tensors(rows, [&](const Backward& backward, const Executor& executor) {
    Forward forward;
    forward.kind = rows.kind;
    forward.x = backward.x;
    forward.y = {nullptr, rows.dtype, backward.x.shape};
    forward.normalized_shape = backward.normalized_shape;
    forward.weight = backward.weight;
    forward.eps = rows.eps;
    forward.zero_centered = rows.zero_centered;
    ShardedNorm(forward, communicator).run(backward, moments, executor);
  });
}

}  // namespace evenorm
