// The operators on the CPU: they pass PyTorch's tensors to the core and allocate the results. The core validates; its
// errors become PyTorch's. Derivatives are in autograd.cpp.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm.h>
#include <torch/library.h>

#include "arguments.hpp"
#include "kernels.hpp"

namespace evenorm::torch_binding {
namespace {

DType dtype_of_tensor(const char* argument, const Tensor& t) {
  const std::optional<DType> dtype = dtype_of(t.scalar_type());
  TORCH_CHECK_TYPE(dtype.has_value(), argument, " has dtype ", t.scalar_type(),
                   ", but it should be float64, float32, bfloat16 or float16");
  return *dtype;
}

void check_is_dense(const char* argument, const Tensor& t) {
  TORCH_CHECK(t.layout() == at::kStrided, argument, " has layout ", t.layout(), ", but it should be strided");
}

ConstTensor view_of(const char* argument, const Tensor& t) {
  check_is_dense(argument, t);
  // An empty tensor has a null address, which would mean an absent tensor.
  static constexpr char kNothing = 0;
  const void* data = t.numel() == 0 ? &kNothing : t.const_data_ptr();
  TORCH_CHECK(data != nullptr, argument, " has no memory: its storage was freed");
  return {data, dtype_of_tensor(argument, t), t.sizes(), t.strides()};
}
ConstTensor view_of(const char* argument, const OptionalTensor& t) {
  return is_given(t) ? view_of(argument, *t) : ConstTensor{};
}
evenorm::Tensor result_view(const at::Tensor& t) {
  static char nothing = 0;
  return {t.numel() == 0 ? &nothing : t.mutable_data_ptr(), dtype_of_tensor("a result", t), t.sizes(), t.strides()};
}

// Runs tasks on PyTorch's threads.
Executor executor() {
  const auto parallel_for = [](void*, std::size_t tasks, void (*task)(void*, std::size_t) noexcept, void* argument) {
    at::parallel_for(0, static_cast<std::int64_t>(tasks), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) task(argument, static_cast<std::size_t>(i));
    });
  };
  const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return {static_cast<std::size_t>(threads), nullptr, parallel_for};
}

template <class Work>
void run_checked(const Work& work) {
  try {
    run(work, executor());
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what());
  }
}

at::Tensor new_tensor(at::IntArrayRef sizes, at::ScalarType dtype,
                      at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return at::Tensor(at::detail::empty_cpu(sizes, dtype, /*pin_memory=*/false, format));
}

// True if weight has x's axes and may vary from row to row.
bool varies_by_row(const OptionalTensor& weight, std::size_t axes) {
  return is_given(weight) && static_cast<std::size_t>(weight->dim()) != axes;
}

// A result with the layout of PyTorch's: contiguous, except that RMS norm keeps channels-last, and that the layout of x
// is kept if the weight varies from row to row, as in group norm. An empty RMS norm has the strides of PyTorch's
// multiplications, so PyTorch computes it.
at::Tensor result_like(Kind kind, const at::Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight) {
  if (varies_by_row(weight, normalized_shape.size())) return at::empty_like(x);
  if (kind == Kind::rms && x.numel() == 0) {
    return at::rms_norm(x, C10_AS_INTARRAYREF_SLOW(normalized_shape), weight, /*eps=*/0.0);
  }
  const at::MemoryFormat format = kind == Kind::layer ? at::MemoryFormat::Contiguous : x.suggest_memory_format();
  return new_tensor(x.sizes(), x.scalar_type(), format);
}

// The shape of the bias and of the parameters' gradients: the backward operators know no other.
at::IntArrayRef parameter_shape(const OptionalTensor& weight, at::IntArrayRef normalized_shape) {
  return is_given(weight) ? weight->sizes() : normalized_shape;
}

// The settings that all forward passes share. The result borrows the arguments' shapes.
Forward described(Kind kind, const at::Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
  Forward work{.kind = kind};
  work.x = view_of("x", x);
  const at::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(normalized_shape);
  work.normalized_shape = shape;
  work.weight = view_of("weight", weight);
  work.bias = view_of("bias", bias);
  work.eps = eps;
  const at::IntArrayRef expected = parameter_shape(weight, shape);
  TORCH_CHECK(!is_given(bias) || bias->sizes() == expected, "bias has shape ", bias->sizes(), ", but it should have ",
              is_given(weight) ? "weight's shape " : "normalized_shape, without a weight: ", expected);
  return work;
}

// Makes a pass write the statistics of x's rows to the tensor, or read them from it. Pass is Forward or Backward.
template <class Pass>
void use_statistics(const at::Tensor& statistics, at::IntArrayRef rows, Pass& work) {
  auto* numbers = statistics.mutable_data_ptr<double>();
  if (work.kind == Kind::layer) work.mean = {numbers, DType::f64, rows};
  work.rstd = {numbers + statistics.numel() - statistics.size(1), DType::f64, rows};
}

at::IntArrayRef rows_of(const at::Tensor& x, std::size_t axes) {
  return x.sizes().slice(0, static_cast<std::size_t>(x.dim()) - axes);
}

void run_and_keep(Forward& work, const at::Tensor& x, Tensor* statistics) {
  if (statistics == nullptr) return run_checked(work);
  const at::IntArrayRef rows = rows_of(x, work.normalized_shape.size());
  const Tensor made = new_tensor({work.kind == Kind::layer ? 2 : 1, c10::multiply_integers(rows)}, at::kDouble);
  use_statistics(made, rows, work);
  run_checked(work);
  *statistics = made;
}

// Copies t if its rows are not dense. Fused forms require dense rows. Backward passes with a dense dx would gather
// other rows, which takes 2 to 5 times as long as a copy.
at::Tensor with_dense_rows(const at::Tensor& t, std::size_t axes) {
  std::int64_t step = 1;
  for (std::size_t i = 0; i < axes && t.dim() > static_cast<std::int64_t>(i); ++i) {
    const std::int64_t axis = t.dim() - 1 - static_cast<std::int64_t>(i);
    if (t.size(axis) != 1 && t.stride(axis) != step) return t.contiguous();
    step *= t.size(axis);
  }
  return t;
}

// dy or dsum, or a copy in x's layout, which takes less time than gathering rows beside x's.
at::Tensor gradient_beside(const at::Tensor& dy, const at::Tensor& x) {
  if (dy.sizes() != x.sizes()) return dy;  // it will be refused
  for (std::int64_t axis = 0; axis < x.dim(); ++axis) {
    if (x.size(axis) != 1 && dy.stride(axis) != x.stride(axis)) return at::empty_like(x, dy.options()).copy_(dy);
  }
  return dy;
}

}  // namespace

Tensor cpu_norm(Kind kind, const Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                const OptionalTensor& bias, double eps, Tensor* statistics, const Tensor* place) {
  Forward work = described(kind, x, normalized_shape, weight, bias, eps);
  at::Tensor y = place != nullptr ? *place : result_like(kind, x, normalized_shape, weight);
  work.y = result_view(y);
  run_and_keep(work, x, statistics);
  return y;
}

TwoTensors cpu_add_norm(Kind kind, const Tensor& x, const Tensor& residual, SymIntArrayRef normalized_shape,
                        const OptionalTensor& weight, const OptionalTensor& bias, double eps, double residual_scale,
                        Tensor* statistics) {
  const at::Tensor dense_x = with_dense_rows(x, normalized_shape.size());
  const at::Tensor dense_residual = with_dense_rows(residual, normalized_shape.size());
  Forward work = described(kind, dense_x, normalized_shape, weight, bias, eps);
  work.residual = view_of("residual", dense_residual);
  work.residual_scale = residual_scale;
  at::Tensor y = new_tensor(x.sizes(), x.scalar_type());
  at::Tensor sum = new_tensor(x.sizes(), x.scalar_type());
  work.y = result_view(y);
  work.sum = result_view(sum);
  run_and_keep(work, x, statistics);
  return {std::move(y), std::move(sum)};
}

Gradients cpu_norm_backward(Kind kind, const Tensor& dy, const Tensor& x, SymIntArrayRef normalized_shape,
                            const OptionalTensor& weight, std::optional<at::ScalarType> bias_dtype, double eps,
                            std::array<bool, 3> output_mask, const OptionalTensor& dsum, const Tensor& statistics) {
  const bool keeps_layout = varies_by_row(weight, normalized_shape.size());
  const auto beside_dx = [&](const at::Tensor& t) {
    return keeps_layout ? gradient_beside(t, x) : with_dense_rows(t, normalized_shape.size());
  };
  const at::Tensor x_beside_dx = beside_dx(x), dy_beside_dx = beside_dx(dy);
  OptionalTensor dsum_beside_dx;
  if (output_mask[0] && is_given(dsum)) dsum_beside_dx = beside_dx(*dsum);  // only dx uses it
  Backward work{.kind = kind};
  work.x = view_of("x", x_beside_dx);
  work.dy = view_of("dy", dy_beside_dx);
  work.dsum = view_of("dsum", dsum_beside_dx);
  const at::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(normalized_shape);
  work.normalized_shape = shape;
  work.weight = view_of("weight", weight);
  work.eps = eps;
  if (statistics.defined()) use_statistics(statistics, rows_of(x, shape.size()), work);
  Gradients made;
  if (output_mask[0]) made.dx = keeps_layout ? at::empty_like(x) : new_tensor(x.sizes(), x.scalar_type());
  const at::IntArrayRef of_parameters = parameter_shape(weight, shape);
  if (output_mask[1]) made.dweight = new_tensor(of_parameters, (is_given(weight) ? *weight : x).scalar_type());
  if (output_mask[2]) made.dbias = new_tensor(of_parameters, bias_dtype.value_or(x.scalar_type()));
  if (output_mask[0]) work.dx = result_view(made.dx);
  if (output_mask[1]) work.dweight = result_view(made.dweight);
  if (output_mask[2]) work.dbias = result_view(made.dbias);
  if (output_mask[0] || output_mask[1] || output_mask[2]) run_checked(work);
  return made;
}

// --- the schemas' functions ------------------------------------------------------------------------------------------

namespace {

template <Kind kind>
Tensor norm(const Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight, const OptionalTensor& bias,
            double eps) {
  return cpu_norm(kind, x, normalized_shape, weight, bias, eps);
}
template <Kind kind>
TwoTensors add_norm(const Tensor& x, const Tensor& residual, SymIntArrayRef normalized_shape,
                    const OptionalTensor& weight, const OptionalTensor& bias, double eps, double residual_scale) {
  return cpu_add_norm(kind, x, residual, normalized_shape, weight, bias, eps, residual_scale);
}
// Replaces an undefined gradient by an empty tensor, because operators cannot return undefined tensors.
Tensor or_empty(Tensor&& gradient, const Tensor& x) {
  return gradient.defined() ? std::move(gradient) : new_tensor({0}, x.scalar_type());
}
template <Kind kind>
ThreeTensors norm_backward(const Tensor& dy, const Tensor& x, SymIntArrayRef normalized_shape,
                           const OptionalTensor& weight, std::optional<at::ScalarType> bias_dtype, double eps,
                           std::array<bool, 3> output_mask, const OptionalTensor& dsum) {
  Gradients made = cpu_norm_backward(kind, dy, x, normalized_shape, weight, bias_dtype, eps, output_mask, dsum);
  return {or_empty(std::move(made.dx), x), or_empty(std::move(made.dweight), x), or_empty(std::move(made.dbias), x)};
}

}  // namespace

TORCH_LIBRARY_IMPL(evenorm, CPU, m) {
  if (!registers_operators()) return;
  m.impl("layer_norm", norm<Kind::layer>);
  m.impl("rms_norm", norm<Kind::rms>);
  m.impl("add_layer_norm", add_norm<Kind::layer>);
  m.impl("add_rms_norm", add_norm<Kind::rms>);
  m.impl("layer_norm_backward", norm_backward<Kind::layer>);
  m.impl("rms_norm_backward", norm_backward<Kind::rms>);
}

}  // namespace evenorm::torch_binding
