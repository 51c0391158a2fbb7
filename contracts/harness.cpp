// Runs the library over rows in a chosen memory layout, and checks where it wrote.
#include "contracts/harness.hpp"

#include <array>
#include <atomic>
#include <thread>

#include "contracts/field.hpp"
#include "run/schedule.hpp"

namespace evenorm::contracts {
namespace {

// One statistic per row, of the requested type, `step` elements apart.
struct Statistic {
  Statistic(DType dtype, std::size_t rows, std::int64_t step, bool odd)
      : type(dtype),
        field(dtype, rows, 1, 0, static_cast<std::size_t>(step - 1), odd),
        shape{std::int64_t(rows)},
        strides{step} {}
  Tensor view() { return {field.data(), type, shape, strides}; }
  std::vector<double> values() {
    std::vector<double> wide(static_cast<std::size_t>(shape[0]));
    std::vector<float> narrow(wide.size());
    if (type == DType::f64) {
      field.get(reinterpret_cast<std::byte*>(wide.data()));
      return wide;
    }
    field.get(reinterpret_cast<std::byte*>(narrow.data()));
    return std::vector<double>(narrow.begin(), narrow.end());
  }
  DType type;
  Field field;
  std::array<std::int64_t, 1> shape, strides;
};

}  // namespace

DType Operation::arithmetic() const {
  const bool wide = x == DType::f64 || y == DType::f64 || weight == DType::f64 || bias == DType::f64;
  return wide ? DType::f64 : DType::f32;
}

std::string Operation::name() const {
  std::string text = kind == Kind::layer ? "layer " : "rms ";
  text += evenorm::name(x);
  if (y != x) text += "->" + std::string(evenorm::name(y));
  if (weight) text += " weight=" + std::string(evenorm::name(*weight)) + (zero_centered ? "+1" : "");
  if (bias) text += " bias=" + std::string(evenorm::name(*bias));
  return text + " " + std::to_string(cols);
}

Operation same_type(Kind kind, DType dtype, std::size_t cols, bool parameters) {
  Operation op;
  op.kind = kind;
  op.x = op.y = dtype;
  if (parameters) op.weight = op.bias = dtype;
  op.cols = cols;
  return op;
}

Runner on_target(internal::Target target) {
  return [target](const Forward& forward, const Executor& executor) { internal::run_on(target, forward, executor); };
}

Outcome run_operation(const Runner& run, const Operation& op, const Array& x, const Array& weight, const Array& bias,
                      const Layout& layout, const Executor& executor) {
  const std::size_t rows = x.size() / op.cols;
  const std::size_t vector_gap = layout.vectors_apart ? 2 : 0;
  const std::array<std::int64_t, 1> vector_stride{layout.vectors_apart ? 3 : 1};
  const bool odd = layout.odd_addresses;
  Field source(op.x, rows, op.cols, layout.x_offset, layout.x_gap, odd, layout.x_order);
  Field result(op.y, rows, op.cols, layout.y_offset, layout.y_gap, odd, layout.y_order);
  Field gamma(op.weight.value_or(DType::f32), op.weight ? op.cols : 0, 1, layout.weight_offset, vector_gap, odd);
  Field beta(op.bias.value_or(DType::f32), op.bias ? op.cols : 0, 1, layout.bias_offset, vector_gap, odd);
  source.put(x.data());
  gamma.put(weight.data());
  beta.put(bias.data());
  const Field source_before = source;

  Field& y = layout.in_place ? source : result;
  const std::array shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(op.cols)};
  const std::array x_strides = source.strides(), y_strides = y.strides();
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  Statistic mean(layout.statistics, rows, vector_stride[0], odd), rstd(layout.statistics, rows, vector_stride[0], odd);
  Forward forward;
  forward.kind = op.kind;
  forward.x = {source.data(), op.x, shape, x_strides};
  forward.y = {y.data(), op.y, shape, y_strides};
  forward.normalized_shape = normalized;
  if (op.weight) forward.weight = {gamma.data(), *op.weight, normalized, vector_stride};
  if (op.bias) forward.bias = {beta.data(), *op.bias, normalized, vector_stride};
  if (op.kind == Kind::layer) forward.mean = mean.view();
  forward.rstd = rstd.view();
  forward.eps = op.eps;
  forward.zero_centered = op.zero_centered;
  run(forward, executor);

  Outcome outcome{Array(op.y, rows * op.cols), {}, rstd.values(), true};
  if (op.kind == Kind::layer) outcome.mean = mean.values();
  y.get(outcome.y.data());
  outcome.kept_inside = y.surroundings_untouched() && (layout.in_place || source == source_before) &&
                        mean.field.surroundings_untouched() && rstd.field.surroundings_untouched();
  return outcome;
}

std::vector<internal::Target> runnable_targets() {
  std::vector<internal::Target> targets;
  for (const internal::Target target : internal::compiled_targets()) {
    if (internal::is_supported(target)) targets.push_back(target);
  }
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
