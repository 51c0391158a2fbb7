// The modules: each owns its parameters and gradients, and fills in Forward and Backward. These do all arithmetic and
// all checks.
#include "evenorm/modules.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "problem/printable.hpp"
#include "problem/problem.hpp"
#include "problem/shapes.hpp"

namespace evenorm {
namespace {

using internal::bytes_of;
using internal::fail;
using internal::Shape;
using internal::text_of;

struct Parameter {
  std::string_view name;
  std::vector<std::byte> value{}, grad{};  // empty: absent
};

void fill_with_ones(DType dtype, std::span<std::byte> elements) {
  // The bits of 1 in the order of DType. An element has the low bytes, which come first.
  constexpr std::uint64_t kOnes[] = {0x3FF0000000000000, 0x3F800000, 0x3F80, 0x3C00};
  const std::size_t bytes = bytes_of(dtype);
  for (std::size_t at = 0; at < elements.size(); at += bytes) {
    std::memcpy(&elements[at], &kOnes[internal::index_of(dtype)], bytes);
  }
}

std::size_t count_elements(Shape normalized_shape) {
  if (normalized_shape.empty()) fail("normalized_shape", "is (), but it should have at least one axis");
  if (normalized_shape.size() > internal::kMaxRank) {
    fail("normalized_shape", "has " + std::to_string(normalized_shape.size()) + " axes, but at most " +
                                 std::to_string(internal::kMaxRank) + " are supported");
  }
  return internal::count_cols(normalized_shape, internal::split_axes(normalized_shape, normalized_shape, {}));
}

// Checks a tensor that is to become a parameter, and returns its elements in C order.
std::vector<std::byte> gathered(const NamedConstTensor& given, DType dtype, Shape shape) {
  const auto& [name, tensor] = given;
  internal::check_dtype(name, tensor.dtype);
  internal::Axes axes;
  const internal::AxisSplit split = internal::split_axes(shape, shape, {});
  internal::Layouts{shape, split}.lay_out(name, tensor, split.normalized, "should have", axes, axes);
  if (tensor.dtype != dtype) {
    fail(name, "has dtype " + std::string(evenorm::name(tensor.dtype)) + ", but should have " +
                   std::string(evenorm::name(dtype)));
  }
  if (tensor.data == nullptr) fail(name, "is null");
  const std::size_t size = bytes_of(dtype);
  std::vector<std::byte> elements(count_elements(shape) * size);
  const auto* from = static_cast<const std::byte*>(tensor.data);
  for (std::size_t i = 0; i * size < elements.size(); ++i) {
    std::memcpy(&elements[i * size], from + axes.offset(i), size);
  }
  return elements;
}

[[noreturn]] void refuse_name(std::string_view name, const std::vector<NamedTensor>& parameters) {
  std::string names;
  for (const NamedTensor& parameter : parameters)
    names += (names.empty() ? "" : " and ") + internal::printable(parameter.name);
  fail(name, "is unexpected: the module has " + (names.empty() ? "no parameters" : names));
}

}  // namespace

struct NormModule::State {
  Setting setting;
  std::vector<std::int64_t> shape;
  std::size_t cols;
  std::array<Parameter, 2> parameters{{{"weight"}, {"bias"}}};

  Parameter& weight() { return parameters[0]; }
  Parameter& bias() { return parameters[1]; }

  DType grad_dtype() const { return setting.dtype == DType::f64 ? DType::f64 : DType::f32; }

  void add(Parameter& parameter) const {
    parameter.value.resize(cols * bytes_of(setting.dtype));
    parameter.grad.resize(cols * bytes_of(grad_dtype()));
  }

  Tensor view(std::vector<std::byte>& elements, DType dtype) {
    return {elements.empty() ? nullptr : elements.data(), dtype, shape, {}};
  }
  Tensor value(Parameter& parameter) { return view(parameter.value, setting.dtype); }
  Tensor grad(Parameter& parameter) { return view(parameter.grad, grad_dtype()); }

  std::vector<NamedTensor> named(std::string_view prefix) {
    std::vector<NamedTensor> named;
    for (Parameter& parameter : parameters) {
      if (!parameter.value.empty()) named.push_back({std::string(prefix).append(parameter.name), value(parameter)});
    }
    return named;
  }
};

NormModule::NormModule(std::vector<std::int64_t> normalized_shape, const Setting& setting) {
  const std::size_t cols = count_elements(normalized_shape);
  internal::check_kind(setting.kind);
  internal::check_eps(setting.eps);
  internal::check_dtype("the module", setting.dtype);
  state_ = std::make_unique<State>(State{setting, std::move(normalized_shape), cols});
  if (setting.weight) {
    state_->add(state_->weight());
    if (!setting.zero_centered) fill_with_ones(setting.dtype, state_->weight().value);
  }
  if (setting.bias) state_->add(state_->bias());
}

NormModule::NormModule(const NormModule& other)
    : state_(other.state_ == nullptr ? nullptr : new State(*other.state_)) {}
NormModule& NormModule::operator=(const NormModule& other) {
  if (this != &other) *this = NormModule(other);
  return *this;
}
NormModule::NormModule(NormModule&&) noexcept = default;
NormModule& NormModule::operator=(NormModule&&) noexcept = default;
NormModule::~NormModule() = default;

Kind NormModule::kind() const noexcept { return state_->setting.kind; }
std::span<const std::int64_t> NormModule::normalized_shape() const noexcept { return state_->shape; }
double NormModule::eps() const noexcept { return state_->setting.eps; }
bool NormModule::zero_centered() const noexcept { return state_->setting.zero_centered; }
DType NormModule::dtype() const noexcept { return state_->setting.dtype; }
DType NormModule::grad_dtype() const noexcept { return state_->grad_dtype(); }
std::size_t NormModule::num_parameters() const noexcept {
  return state_->cols * (std::size_t{state_->setting.weight} + std::size_t{state_->setting.bias});
}

Tensor NormModule::weight() noexcept { return state_->value(state_->weight()); }
Tensor NormModule::bias() noexcept { return state_->value(state_->bias()); }
Tensor NormModule::weight_grad() noexcept { return state_->grad(state_->weight()); }
Tensor NormModule::bias_grad() noexcept { return state_->grad(state_->bias()); }
ConstTensor NormModule::weight() const noexcept { return state_->value(state_->weight()); }
ConstTensor NormModule::bias() const noexcept { return state_->value(state_->bias()); }
ConstTensor NormModule::weight_grad() const noexcept { return state_->grad(state_->weight()); }
ConstTensor NormModule::bias_grad() const noexcept { return state_->grad(state_->bias()); }

void NormModule::forward(const ConstTensor& x, const Tensor& y, const Tensor& mean, const Tensor& rstd,
                         const Executor& executor) const {
  run({.kind = kind(),
       .x = x,
       .y = y,
       .normalized_shape = normalized_shape(),
       .weight = weight(),
       .bias = bias(),
       .mean = mean,
       .rstd = rstd,
       .eps = eps(),
       .zero_centered = zero_centered()},
      executor);
}

void NormModule::backward(const ConstTensor& dy, const ConstTensor& x, const Tensor& dx, const ConstTensor& mean,
                          const ConstTensor& rstd, const Executor& executor) {
  run({.kind = kind(),
       .x = x,
       .dy = dy,
       .normalized_shape = normalized_shape(),
       .weight = std::as_const(*this).weight(),
       .mean = mean,
       .rstd = rstd,
       .dx = dx,
       .dweight = weight_grad(),
       .dbias = bias_grad(),
       .eps = eps(),
       .zero_centered = zero_centered(),
       .accumulate = true},
      executor);
}

void NormModule::zero_grad() noexcept {
  for (Parameter& parameter : state_->parameters) std::ranges::fill(parameter.grad, std::byte{0});
}

std::vector<NamedTensor> NormModule::parameters(std::string_view prefix) { return state_->named(prefix); }
std::vector<NamedConstTensor> NormModule::parameters(std::string_view prefix) const {
  std::vector<NamedConstTensor> named;
  for (auto& [name, tensor] : state_->named(prefix)) named.push_back({std::move(name), tensor});
  return named;
}

void NormModule::load(std::span<const NamedConstTensor> tensors, std::string_view prefix) {
  std::array<std::vector<std::byte>, 2> loaded;
  for (const NamedConstTensor& given : tensors) {
    if (!given.name.starts_with(prefix)) continue;
    const auto own = std::ranges::find_if(state_->parameters, [&](const Parameter& parameter) {
      return !parameter.value.empty() && std::string_view(given.name).substr(prefix.size()) == parameter.name;
    });
    if (own == state_->parameters.end()) refuse_name(given.name, state_->named(prefix));
    std::vector<std::byte>& elements = loaded[static_cast<std::size_t>(own - state_->parameters.begin())];
    if (!elements.empty()) fail(given.name, "is given twice");
    elements = gathered(given, dtype(), state_->shape);
  }
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const Parameter& own = state_->parameters[i];
    if (loaded[i].size() == own.value.size()) continue;
    fail(std::string(prefix).append(own.name),
         "is missing, but should have shape " + text_of(state_->shape) + " and dtype " + std::string(name(dtype())));
  }
  // Copies into the existing memory, so that views stay valid.
  for (std::size_t i = 0; i < loaded.size(); ++i) std::ranges::copy(loaded[i], state_->parameters[i].value.begin());
}

LayerNorm::LayerNorm(std::vector<std::int64_t> normalized_shape, const LayerNormOptions& options)
    : NormModule(std::move(normalized_shape),
                 {Kind::layer, options.eps, options.elementwise_affine, options.elementwise_affine && options.bias,
                  options.dtype, options.zero_centered}) {}

RMSNorm::RMSNorm(std::vector<std::int64_t> normalized_shape, const RMSNormOptions& options)
    : NormModule(std::move(normalized_shape),
                 {Kind::rms, options.eps, options.elementwise_affine, false, options.dtype, options.zero_centered}) {}

}  // namespace evenorm
