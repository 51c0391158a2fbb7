// Implements harness.hpp.
#include "contracts/harness.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "run/schedule.hpp"

namespace evenorm::contracts {
namespace {

template <class T>
std::vector<T> elements_of(const Array& values) {
  std::vector<T> elements(values.size());
  std::ranges::copy(values.bytes(), std::as_writable_bytes(std::span(elements)).begin());
  return elements;
}
std::vector<double> doubles(const Array& values) {
  if (values.dtype() == DType::f64) return elements_of<double>(values);
  const std::vector<float> narrow = elements_of<float>(values);
  return {narrow.begin(), narrow.end()};
}

Array array_of(const std::vector<double>& values) {
  Array array(DType::f64, values.size());
  std::ranges::copy(std::as_bytes(std::span(values)), array.data());
  return array;
}

Array part_of(const Array& values, std::size_t first, std::size_t count) {
  return values.empty() ? Array() : values.part(first, count);
}

template <class T>
bool differ(std::span<const T> a, std::span<const T> b) {
  return !std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

Shape shape_of(const Operation& op, const Inputs& in, const Shape& given) {
  if (!given.empty()) return given;
  return {static_cast<std::int64_t>(in.x.size() / op.cols), static_cast<std::int64_t>(op.cols)};
}

void append_to(Array& all, const Array& more) { all.empty() ? void(all = more) : all.append(more); }

}  // namespace

DType Operation::arithmetic() const {
  const bool wide = std::ranges::any_of(std::array<Type, 6>{x, y, weight, is_backward() ? Type() : bias, dx, dsum},
                                        [](const Type& type) { return type == DType::f64; });
  return wide ? DType::f64 : DType::f32;
}

Operation Operation::forward() const {
  Operation op = *this;
  op.dx = op.dgamma = op.dbeta = op.dsum = {};
  return op;
}

Operation same_type(Kind kind, DType dtype, std::size_t cols, bool parameters) {
  const Type parameter = parameters ? Type(dtype) : Type();
  return {.kind = kind, .x = dtype, .y = dtype, .weight = parameter, .bias = parameter, .cols = cols};
}
Operation same_type_backward(Kind kind, DType dtype, std::size_t cols) {
  return {.kind = kind,
          .x = dtype,
          .y = dtype,
          .weight = dtype,
          .cols = cols,
          .dx = dtype,
          .dgamma = dtype,
          .dbeta = dtype};
}

Inputs Inputs::row(const Operation& op, std::size_t i) const {
  const auto part = [&](const Array& rows) { return part_of(rows, i * op.cols, op.cols); };
  return {.x = part(x), .dy = part(dy), .weight = weight, .bias = bias, .residual = part(residual), .dsum = part(dsum)};
}

void add_statistics(internal::Target target, const Operation& op, Inputs& inputs) {
  const Operation norm{.kind = op.kind, .x = op.x, .y = op.x, .eps = op.eps, .cols = op.cols};
  const Outcome outcome = run_operation(on_target(target), norm, {inputs.x});
  inputs.mean = outcome.mean;
  inputs.rstd = outcome.rstd;
}

// --- outcomes

std::string Outcome::difference_to(const Outcome& other) const {
  std::string text;
  const auto add = [&](const char* what, bool differs) {
    if (differs) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  const auto compare = [&](const char* what, const Array& a, const Array& b) {
    add(what, a.dtype() != b.dtype() || differ(a.bytes(), b.bytes()));
  };
  compare("y", y, other.y);
  compare("sum", sum, other.sum);
  compare("scale", scale, other.scale);
  compare("dx", dx, other.dx);
  compare("dgamma", dgamma, other.dgamma);
  compare("dbeta", dbeta, other.dbeta);
  add("mean", differ<double>(mean, other.mean));
  add("rstd", differ<double>(rstd, other.rstd));
  return text;
}

Outcome Outcome::row(const Operation& op, std::size_t i) const {
  Outcome one;
  one.y = part_of(y, i * op.cols, op.cols);
  one.sum = part_of(sum, i * op.cols, op.cols);
  one.scale = part_of(scale, i, 1);
  one.dx = part_of(dx, i * op.cols, op.cols);
  if (!mean.empty()) one.mean = {mean[i]};
  if (!rstd.empty()) one.rstd = {rstd[i]};
  return one;
}

void Outcome::append(const Outcome& rows) {
  append_to(y, rows.y);
  append_to(sum, rows.sum);
  append_to(scale, rows.scale);
  append_to(dx, rows.dx);
  mean.insert(mean.end(), rows.mean.begin(), rows.mean.end());
  rstd.insert(rstd.end(), rows.rstd.begin(), rows.rstd.end());
  kept_inside = kept_inside && rows.kept_inside;
}

// --- calls

Call::Call(const Operation& operation, const Shape& shape, const Shape& normalized)
    : op(operation), axes(axes_of(shape, normalized)) {
  if (!axes.are_the_last()) order_ = places_of_rows(shape, normalized);
}

Call::Call(const Operation& operation, const Inputs& in, const Layout& layout, const Shape& given_shape,
           const Shape& normalized, const Shape& given_parameter)
    : Call(operation, shape_of(operation, in, given_shape), normalized) {
  const Shape shape = shape_of(op, in, given_shape);
  const Shape& parameter = given_parameter.empty() ? axes.normalized : given_parameter;
  y_in = layout.y_in;
  sum_in = layout.sum_in;
  dx_in = layout.dx_in;
  const Order of_vectors = layout.vectors_apart ? Order::columns_apart : Order::rows_first;
  const auto add = [&](Part part, Type type, const Shape& size, const Place& at, const Array* values = nullptr) {
    if (!type) return;
    Array copy = values == nullptr ? Array() : *values;
    place(part, Placed(*type, size, at, layout.odd_addresses, layout.guard), copy.empty() ? nullptr : &copy);
    if (!is_output(part)) (*this)[part].forbid_writing();
  };
  const auto vector = [&](Part part, Type type, const Shape& size, std::size_t more, const Array* values = nullptr) {
    add(part, type, size, {of_vectors, layout.vector_offset + more}, values);
  };
  const auto given = [&](const std::vector<double>& statistic) { return statistic.empty() ? Type() : DType::f64; };
  const Type statistics = layout.statistics;
  const Array mean = array_of(in.mean), rstd = array_of(in.rstd);
  add(Part::x, op.x, shape, layout.x, &in.x);
  vector(Part::weight, op.weight, parameter, 0, &in.weight);
  if (op.is_backward()) {
    add(Part::y, op.y, shape, layout.y, &in.dy);
    add(Part::dsum, op.dsum, shape, layout.dx, &in.dsum);
    if (dx_in == Part::dx) add(Part::dx, op.dx, shape, layout.dx);
    vector(Part::mean, given(in.mean), axes.outer, 0, &mean);
    vector(Part::rstd, given(in.rstd), axes.outer, 0, &rstd);
    vector(Part::dgamma, op.dgamma, parameter, 1, &in.dgamma);
    vector(Part::dbeta, op.dbeta, parameter, 2, &in.dbeta);
    return;
  }
  vector(Part::bias, op.bias, parameter, 1, &in.bias);
  add(Part::residual, op.residual, shape, layout.x, &in.residual);
  if (y_in == Part::y) add(Part::y, op.y, shape, layout.y);
  if (op.has_sum() && sum_in == Part::sum) add(Part::sum, op.x, shape, layout.y);
  if (op.kind == Kind::layer) vector(Part::mean, statistics, axes.outer, 0);
  vector(Part::rstd, statistics, axes.outer, 0);
  if (op.has_scale()) vector(Part::scale, DType::f32, axes.outer, 0);
}

void Call::place(Part part, Placed tensor, Array* values) {
  if (values != nullptr) {
    const bool by_rows = !order_.empty() && values->size() == order_.size() && part != Part::weight &&
                         part != Part::bias && part != Part::dgamma && part != Part::dbeta;
    tensor.put((by_rows ? permuted(*values, order_, true) : *values).data());
    *values = by_rows ? permuted(tensor.get(), order_, false) : tensor.get();
  }
  parts_[static_cast<std::size_t>(part)].emplace(std::move(tensor));
}

template <class Pass>
void Call::describe(Pass& pass) const {
  pass.kind = op.kind;
  pass.x = at(Part::x).const_view();
  if (axes.are_the_last()) {
    pass.normalized_shape = axes.normalized;
  } else {
    pass.axes = axes.axes;
  }
  if (op.weight) pass.weight = at(Part::weight).const_view();
  pass.eps = op.eps;
  pass.zero_centered = op.zero_centered;
}

Forward Call::forward() const {
  Forward f;
  describe(f);
  f.y = at(y_in).view();
  if (op.bias) f.bias = at(Part::bias).const_view();
  if (has(Part::mean)) f.mean = at(Part::mean).view();
  if (has(Part::rstd)) f.rstd = at(Part::rstd).view();
  if (op.residual) f.residual = at(Part::residual).const_view();
  if (op.residual) f.residual_scale = op.residual_scale;
  if (op.has_sum()) f.sum = at(sum_in).view();
  if (op.has_scale()) f.scale = at(Part::scale).view();
  f.given_scale = op.given_scale;
  return f;
}

Backward Call::backward() const {
  Backward b;
  describe(b);
  b.dy = at(Part::y).const_view();
  if (has(Part::mean)) b.mean = at(Part::mean).const_view();
  if (has(Part::rstd)) b.rstd = at(Part::rstd).const_view();
  if (op.dx) b.dx = at(dx_in).view();
  if (op.dgamma) b.dweight = at(Part::dgamma).view();
  if (op.dbeta) b.dbias = at(Part::dbeta).view();
  b.accumulate = op.accumulate;
  if (op.dsum) b.dsum = at(Part::dsum).const_view();
  return b;
}

void Call::run(const Runner& run, const Executor& executor) const {
  op.is_backward() ? run.backward(backward(), executor) : run.forward(forward(), executor);
}

bool Call::is_output(Part part) const {
  if (op.is_backward()) {
    return (op.dx && part == dx_in) || (op.dgamma && part == Part::dgamma) || (op.dbeta && part == Part::dbeta);
  }
  return part == y_in || (op.has_sum() && part == sum_in) || part == Part::mean || part == Part::rstd ||
         part == Part::scale;
}

bool Call::kept_inside() const {
  for (std::size_t i = 0; i < kParts; ++i) {
    if (!parts_[i]) continue;
    const bool kept = is_output(Part(i)) ? parts_[i]->only_elements_were_written() : parts_[i]->is_unchanged();
    if (!kept) return false;
  }
  return true;
}

Array Call::rows_of(Part part) const {
  return order_.empty() ? at(part).get() : permuted(at(part).get(), order_, false);
}

Outcome Call::outcome() const {
  Outcome outcome;
  if (op.is_backward()) {
    if (op.dx) outcome.dx = rows_of(dx_in);
    if (op.dgamma) outcome.dgamma = at(Part::dgamma).get();
    if (op.dbeta) outcome.dbeta = at(Part::dbeta).get();
  } else {
    outcome.y = rows_of(y_in);
    if (op.has_sum()) outcome.sum = rows_of(sum_in);
    if (op.has_scale()) outcome.scale = at(Part::scale).get();
    if (has(Part::mean)) outcome.mean = doubles(at(Part::mean).get());
    if (has(Part::rstd)) outcome.rstd = doubles(at(Part::rstd).get());
  }
  outcome.kept_inside = kept_inside();
  return outcome;
}

void Call::reset() {
  for (std::optional<Placed>& part : parts_) {
    if (part) part->reset();
  }
}

// --- running

Runner on_target(internal::Target target) {
  return [target](const auto& pass, const Executor& executor) -> decltype(internal::run_on(target, pass, executor)) {
    internal::run_on(target, pass, executor);
  };
}
Runner through_run() {
  return [](const auto& pass, const Executor& executor) -> decltype(evenorm::run(pass, executor)) {
    evenorm::run(pass, executor);
  };
}

Outcome run_operation(const Runner& run, const Operation& op, const Inputs& inputs, const Layout& layout,
                      const Executor& executor) {
  const Call call(op, inputs, layout);
  call.run(run, executor);
  return call.outcome();
}

std::vector<internal::Target> runnable_targets() {
  std::vector<internal::Target> targets;
  std::ranges::copy_if(internal::compiled_targets(), std::back_inserter(targets), internal::is_supported);
  return targets;
}

void for_each_index(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(take);
  take();
  for (std::thread& helper : helpers) helper.join();
}

Executor reversed_executor(std::size_t threads) {
  return {threads, nullptr, [](void*, std::size_t tasks, void (*task)(void*, std::size_t) noexcept, void* argument) {
            for (std::size_t i = tasks; i-- > 0;) task(argument, i);
          }};
}

}  // namespace evenorm::contracts
