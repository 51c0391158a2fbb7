#include "cli/bench_pass.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cli/gradients.hpp"
#include "contracts/inputs.hpp"
#include "contracts/plan_text.hpp"
#include "problem/validate.hpp"

namespace evenorm::cli {
namespace {

// Counts of distinct numbers, after which they repeat. They are prime, so that rows of common widths differ.
constexpr std::size_t kOfX = 65521, kOfOther = 65519;

Array zeros(DType dtype, const Shape& shape) {
  Array array(dtype, shape);
  std::memset(array.bytes().data(), 0, array.bytes().size());
  return array;
}

// Fills an array with normally distributed numbers, which repeat after `period` of them.
Array normal_numbers(DType dtype, const Shape& shape, std::size_t period, std::uint64_t seed) {
  contracts::Random random(seed);
  std::vector<double> values(std::min(period, product(shape)));
  for (double& value : values) value = random.normal();
  const contracts::Array numbers(dtype, values);
  Array array(dtype, shape);
  const std::span<std::byte> to = array.bytes();
  for (std::size_t at = 0; at < to.size(); at += numbers.bytes().size()) {
    std::memcpy(to.data() + at, numbers.data(), std::min(numbers.bytes().size(), to.size() - at));
  }
  return array;
}

Array in_memory(const contracts::Array& numbers, const Shape& shape) {
  Array array(numbers.dtype(), shape);
  std::memcpy(array.bytes().data(), numbers.data(), numbers.bytes().size());
  return array;
}

}  // namespace

std::string_view name(BenchForm form) {
  switch (form) {
    case BenchForm::backward:
      return "backward";
    case BenchForm::residual:
      return "residual";
    case BenchForm::int8:
      return "int8";
    default:
      return "forward";
  }
}

std::uint64_t BenchProblem::held_bytes() const {
  const std::uint64_t elements = product(shape), element = size_of(dtype);
  switch (form) {
    case BenchForm::backward:
      return 3 * elements * element;
    case BenchForm::residual:
      return 4 * elements * element;
    case BenchForm::int8:
      return elements * (element + 1);
    default:
      return 2 * elements * element;
  }
}

BenchTensors make_tensors(const BenchProblem& problem, BenchTensors given) {
  const Shape normalized = sizes_at(problem.shape, problem.axes), others = sizes_elsewhere(problem.shape, problem.axes);
  const auto large = [&](DType dtype) { return zeros(dtype, problem.shape); };
  const auto numbers = [&](std::size_t period, std::uint64_t seed) {
    return normal_numbers(problem.dtype, problem.shape, period, seed);
  };
  BenchTensors tensors = std::move(given);
  if (!tensors.x.present()) tensors.x = numbers(kOfX, 1);
  if (!tensors.weight.present()) {
    tensors.weight = in_memory(contracts::make_weight(problem.dtype, problem.cols()), normalized);
  }
  if (!tensors.bias.present() && problem.kind == Kind::layer) {
    tensors.bias = in_memory(contracts::make_bias(problem.dtype, problem.cols()), normalized);
  }
  if (problem.form == BenchForm::backward) {
    const DType sums = parameter_gradient_dtype({problem.dtype, tensors.weight.dtype()});
    tensors.dy = numbers(kOfOther, 4);
    if (problem.kind == Kind::layer) tensors.mean = zeros(DType::f64, others);
    tensors.rstd = zeros(DType::f64, others);
    tensors.dx = large(problem.dtype);
    tensors.dweight = zeros(sums, normalized);
    if (problem.kind == Kind::layer) tensors.dbias = zeros(sums, normalized);
    return tensors;
  }
  if (problem.form == BenchForm::residual) {
    tensors.residual = numbers(kOfOther, 4);
    tensors.sum = large(problem.dtype);
  }
  const bool quantised = problem.form == BenchForm::int8;
  tensors.y = large(quantised ? DType::i8 : problem.dtype);
  if (quantised) tensors.scale = zeros(DType::f32, others);
  return tensors;
}

bench::Traffic traffic_of(const BenchProblem& problem, BenchTensors& tensors) {
  const auto from = [](const Array& array) { return array.bytes().data(); };
  const auto to = [](Array& array) { return array.bytes().data(); };
  const std::size_t bytes = tensors.x.bytes().size();
  switch (problem.form) {
    case BenchForm::backward:
      return {{from(tensors.x), from(tensors.dy)}, {to(tensors.dx), nullptr}, bytes};
    case BenchForm::residual:
      return {{from(tensors.x), from(tensors.residual)}, {to(tensors.y), to(tensors.sum)}, bytes};
    case BenchForm::int8:
      return {{from(tensors.x), nullptr}, {to(tensors.y), nullptr}, tensors.x.elements(), size_of(problem.dtype)};
    default:
      return {{from(tensors.x), nullptr}, {to(tensors.y), nullptr}, bytes};
  }
}

BenchPass::BenchPass(const BenchProblem& problem, BenchTensors& tensors, const Executor& executor)
    : axes_(problem.axes.begin(), problem.axes.end()), executor_(executor) {
  if (problem.form != BenchForm::backward) {
    forward_ = forward(problem, tensors);
    plan_.emplace(forward_);
    return;
  }
  // Only the statistics are needed; y goes to dx, which is overwritten later.
  Forward statistics = forward(problem, tensors);
  statistics.y = tensors.dx.view();
  evenorm::run(statistics, executor_);
  backward_ = backward(problem, tensors);
  scratch_ = scratch_for(backward_);
}

Forward BenchPass::forward(const BenchProblem& problem, BenchTensors& tensors) const {
  return {.kind = problem.kind,
          .x = std::as_const(tensors.x).view(),
          .y = tensors.y.view(),
          .axes = axes_,
          .weight = std::as_const(tensors.weight).view(),
          .bias = std::as_const(tensors.bias).view(),
          .mean = tensors.mean.view(),
          .rstd = tensors.rstd.view(),
          .eps = problem.eps,
          .residual = std::as_const(tensors.residual).view(),
          .sum = tensors.sum.view(),
          .scale = tensors.scale.view()};
}

Backward BenchPass::backward(const BenchProblem& problem, BenchTensors& tensors) const {
  return {.kind = problem.kind,
          .x = std::as_const(tensors.x).view(),
          .dy = std::as_const(tensors.dy).view(),
          .axes = axes_,
          .weight = std::as_const(tensors.weight).view(),
          .mean = std::as_const(tensors.mean).view(),
          .rstd = std::as_const(tensors.rstd).view(),
          .dx = tensors.dx.view(),
          .dweight = tensors.dweight.view(),
          .dbias = tensors.dbias.view(),
          .eps = problem.eps};
}

std::string BenchPass::plan() const {
  return plan_ ? contracts::plan_text(internal::ForwardPass(internal::validate(forward_)).plan)
               : contracts::plan_text(internal::GradientPass(internal::validate(backward_)).plan);
}

void BenchPass::run() {
  if (plan_) {
    plan_->run(executor_);
  } else {
    evenorm::run(backward_, scratch_.bytes(), executor_);
  }
}

}  // namespace evenorm::cli
