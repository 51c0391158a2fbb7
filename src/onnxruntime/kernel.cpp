#include "onnxruntime/kernel.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

namespace evenorm::onnxruntime {
namespace {

using Shape = std::span<const std::int64_t>;
using Sizes = std::vector<std::int64_t>;

[[noreturn]] void refuse(const Api& api, const std::string& text) {
  throw Failure{api.CreateStatus(kInvalidArgument, text.c_str())};
}

void check_evenorm(const Api& api, evenorm_status status) {
  if (status == EVENORM_INVALID_ARGUMENT) refuse(api, evenorm_last_error());
  if (status != EVENORM_OK) throw Failure{api.CreateStatus(kFail, evenorm_last_error())};
}

evenorm_dtype dtype_of(ElementType type) {
  return type == kFloat ? EVENORM_F32 : type == kDouble ? EVENORM_F64 : type == kFloat16 ? EVENORM_F16 : EVENORM_BF16;
}

// Reads an attribute if the node has it.
template <class T>
void read(const Api& api, const OrtKernelInfo& info, const char* name, T& value,
          OrtStatus* (*get)(const OrtKernelInfo*, const char*, T*)) {
  OrtStatus* failed = get(&info, name, &value);
  if (failed == nullptr) return;
  api.ReleaseStatus(failed);
  // The runtime reads an attribute of any type as a list, which may be empty.
  std::size_t size = 0;
  OrtStatus* absent = api.KernelInfoGetAttributeArray_int64(&info, name, nullptr, &size);
  if (absent == nullptr) refuse(api, std::string("the attribute ") + name + " has the wrong type");
  api.ReleaseStatus(absent);
}

Sizes axes_of(const Api& api, const OrtKernelInfo& info) {
  std::size_t count = 0;
  OrtStatus* absent = api.KernelInfoGetAttributeArray_int64(&info, "axes", nullptr, &count);
  if (absent != nullptr) {
    api.ReleaseStatus(absent);
    return {-1};
  }
  Sizes axes(count);
  check(api.KernelInfoGetAttributeArray_int64(&info, "axes", axes.data(), &count));
  return axes;
}

// The strides that broadcast a tensor to a shape as ONNX does. Empty if it does not fit.
Sizes broadcast(Shape given, Shape shape) {
  if (given.size() > shape.size()) return {};
  Sizes strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = 1; i <= given.size(); ++i) {
    const std::int64_t size = given[given.size() - i];
    if (size != 1 && size != shape[shape.size() - i]) return {};
    strides[shape.size() - i] = size == 1 ? 0 : step;
    step *= size;
  }
  return strides;
}

// The shape of x or of a parameter, with as many axes as x. Group norm views (N, C, ...) as (N, groups, C / groups,
// ...), and otherwise evenorm refuses parameters that do not fit.
Sizes view(const Api& api, const char* name, Shape given, Shape x, std::int64_t groups) {
  Sizes shape(x.size() - std::min(x.size(), given.size()), 1);
  shape.insert(shape.end(), given.begin(), given.end());
  if (groups == 0) return shape;
  if (broadcast(given, x).empty()) refuse(api, std::string(name) + " does not broadcast to x's shape");
  const bool is_split = shape[1] == x[1];
  if (is_split) shape[1] /= groups;
  shape.insert(shape.begin() + 1, is_split ? groups : 1);
  return shape;
}

// The address of tensors without elements, since null means that a tensor is absent.
char nowhere;

template <class Data>
auto tensor(Data* data, ElementType type, Shape shape, const std::int64_t* strides = nullptr) {
  using View = std::conditional_t<std::is_const_v<Data>, evenorm_const_tensor, evenorm_tensor>;
  return View{data, dtype_of(type), static_cast<std::int32_t>(shape.size()), shape.data(), strides};
}

std::size_t processors() {
  evenorm_executor pool{sizeof pool, 1, nullptr, nullptr};
  (void)evenorm_pool_executor(0, &pool);  // only asked for its number of threads
  return pool.threads;
}

// output(i) is the address of output i of Y, Sum, Mean and Rstd.
template <class Inputs, class Output>
evenorm_buffers buffers_of(const Inputs& inputs, const Output& output) {
  const auto& [x, residual, weight, bias] = inputs;
  return {.struct_size = sizeof(evenorm_buffers),
          .x = x.data,
          .y = output(0),
          .weight = weight.data,
          .bias = bias.data,
          .mean = output(2),
          .rstd = output(3),
          .residual = residual.data,
          .sum = output(1),
          .scale = nullptr};
}

struct Session {
  const Api& api;
  const OrtKernelContext& context;
};

// Shares tasks among the session's threads.
void run_in_session(void* given, std::size_t tasks, void (*task)(void*, std::size_t), void* argument) {
  const auto& [api, context] = *static_cast<const Session*>(given);
  OrtStatus* failed = api.KernelContext_ParallelFor(&context, task, tasks, 0, argument);
  if (failed == nullptr) return;
  api.ReleaseStatus(failed);  // nothing has run
  for (std::size_t i = 0; i < tasks; ++i) task(argument, i);
}

}  // namespace

struct Kernel::Prepared {
  std::array<Sizes, 4> shapes;  // of the inputs
  Sizes statistics;             // the shape of Mean and Rstd
  std::unique_ptr<evenorm_plan, void (*)(evenorm_plan*)> plan{nullptr, evenorm_plan_destroy};
};

Kernel::Kernel(const Definition& definition, const Types& types, const Runtime& runtime, const OrtKernelInfo& info)
    : definition_(definition),
      types_(types),
      runtime_(runtime),
      forward_(evenorm_forward_defaults()),
      axes_(definition.form == Form::group ? Sizes{} : axes_of(api(), info)) {
  float eps = 1e-5F;
  std::int64_t zero_centered = 0;
  read(api(), info, "epsilon", eps, api().KernelInfoGetAttribute_float);
  read(api(), info, "zero_centered", zero_centered, api().KernelInfoGetAttribute_int64);
  if (definition.form == Form::group) {
    read(api(), info, "num_groups", groups_, api().KernelInfoGetAttribute_int64);
    if (groups_ < 1) refuse(api(), "num_groups is absent or less than 1");
  }
  forward_.kind = definition.form == Form::rms ? EVENORM_RMS : EVENORM_LAYER;
  forward_.eps = eps;
  forward_.zero_centered = zero_centered != 0;
  std::size_t inputs = 0, outputs = 0;
  check(api().KernelInfo_GetInputCount(&info, &inputs));
  for (std::size_t i = 0; i < std::min(inputs, definition.inputs()); ++i) {
    const std::size_t place = definition.input_place(i);
    int is_constant = 0;
    const OrtValue* value = nullptr;
    check(api().KernelInfoGetConstantInput_tensor(&info, i, &is_constant, &value));
    if (is_constant != 0) {
      constants_[place] = tensor_of(*value, constant_sizes_[place]);
    } else {
      variables_.push_back(i);
    }
  }
  check(api().KernelInfo_GetOutputCount(&info, &outputs));
  for (std::size_t i = 0; i < std::min(outputs, definition.outputs()); ++i) {
    std::size_t name_size = 0;
    check(api().KernelInfo_GetOutputName(&info, i, nullptr, &name_size));
    if (name_size > 1) outputs_[definition.output_place(i)] = i;
  }
}

Kernel::Tensor Kernel::tensor_of(const OrtValue& value, Sizes& sizes) const {
  Tensor tensor;
  check(api().GetTensorMutableData(const_cast<OrtValue*>(&value), &tensor.data));
  if (tensor.data == nullptr) tensor.data = &nowhere;
  std::size_t rank = 0;
  if (runtime_.version >= kShapeReferenceApi) {
    int type = 0;
    const std::int64_t* first = nullptr;
    check(api().GetTensorElementTypeAndShapeDataReference(&value, &type, &first, &rank));
    tensor.shape = {first, rank};
    return tensor;
  }
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api().GetTensorTypeAndShape(&value, &info));
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(api().ReleaseTensorTypeAndShapeInfo)> owner(
      info, api().ReleaseTensorTypeAndShapeInfo);
  check(api().GetDimensionsCount(info, &rank));
  sizes.resize(rank);
  check(api().GetDimensions(info, sizes.data(), rank));
  tensor.shape = sizes;
  return tensor;
}

std::shared_ptr<const Kernel::Prepared> Kernel::prepare(const Inputs& inputs) const {
  {
    const std::lock_guard lock(mutex_);
    const auto equal = [](const Sizes& sizes, const Tensor& given) { return std::ranges::equal(sizes, given.shape); };
    if (prepared_ != nullptr && std::ranges::equal(prepared_->shapes, inputs, equal)) return prepared_;
  }
  const auto& [x, residual, weight, bias] = inputs;
  const Shape whole = x.shape;
  const bool is_group = groups_ != 0;
  if (is_group && (whole.size() < 2 || whole[1] % groups_ != 0)) {
    refuse(api(), "num_groups is " + std::to_string(groups_) + ", but x has " +
                      (whole.size() < 2 ? "no axis of channels" : std::to_string(whole[1]) + " channels"));
  }
  auto prepared = std::make_shared<Prepared>();
  const auto seen = [&](const char* name, Shape given) { return view(api(), name, given, whole, groups_); };
  const Sizes shape = seen("x", whole), weight_shape = seen("weight", weight.shape);
  const Sizes bias_shape = seen("bias", bias.shape);
  const auto axes_count = static_cast<std::int64_t>(shape.size());
  Sizes axes = axes_, rows;
  for (std::int64_t axis = 2; is_group && axis < axes_count; ++axis) axes.push_back(axis);
  for (std::int64_t axis = 0; axis < axes_count; ++axis) {
    const bool is_normalised =
        std::ranges::any_of(axes, [&](std::int64_t given) { return given == axis || given == axis - axes_count; });
    const std::int64_t size = shape[static_cast<std::size_t>(axis)];
    if (!is_normalised) rows.push_back(size);
    prepared->statistics.push_back(is_normalised ? 1 : size);
  }
  if (is_group) prepared->statistics = rows;
  const Sizes strides = broadcast(residual.shape, shape);

  // Only whether an address is null counts: every run has its own addresses.
  const evenorm_buffers given =
      buffers_of(inputs, [&](std::size_t i) -> void* { return outputs_[i] ? &nowhere : nullptr; });
  evenorm_forward forward = forward_;
  forward.axes = axes.data();
  forward.axes_count = axes.size();
  forward.x = tensor(given.x, types_.x, shape);
  forward.y = tensor(given.y, types_.x, shape);
  forward.weight = tensor(given.weight, types_.parameters, weight_shape);
  forward.bias = tensor(given.bias, types_.parameters, bias_shape);
  forward.mean = tensor(given.mean, types_.statistics, rows);
  forward.rstd = tensor(given.rstd, types_.statistics, rows);
  forward.residual = strides.empty() ? tensor(given.residual, types_.x, residual.shape)  // evenorm refuses it
                                     : tensor(given.residual, types_.x, shape, strides.data());
  forward.sum = tensor(given.sum, types_.x, shape);
  evenorm_plan* plan = nullptr;
  check_evenorm(api(), evenorm_plan_create(&forward, &plan));
  prepared->plan.reset(plan);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    prepared->shapes[i].assign(inputs[i].shape.begin(), inputs[i].shape.end());
  }
  const std::lock_guard lock(mutex_);
  return prepared_ = prepared;
}

void Kernel::compute(OrtKernelContext& context) const {
  static const std::size_t threads = processors();  // the runtime does not tell how many the session has
  Inputs inputs = constants_;
  std::array<Sizes, 4> sizes;
  for (const std::size_t i : variables_) {
    const OrtValue* value = nullptr;
    check(api().KernelContext_GetInput(&context, i, &value));
    const std::size_t place = definition_.input_place(i);
    if (value != nullptr) inputs[place] = tensor_of(*value, sizes[place]);
  }
  const std::shared_ptr<const Prepared> prepared = prepare(inputs);
  const evenorm_buffers buffers = buffers_of(inputs, [&](std::size_t i) -> void* {
    if (!outputs_[i]) return nullptr;
    const Shape shape = i < 2 ? inputs[0].shape : prepared->statistics;
    OrtValue* value = nullptr;
    void* data = nullptr;
    check(api().KernelContext_GetOutput(&context, *outputs_[i], shape.data(), shape.size(), &value));
    check(api().GetTensorMutableData(value, &data));
    return data == nullptr ? &nowhere : data;
  });
  Session session{api(), context};
  const evenorm_executor executor{sizeof executor, threads, &session, run_in_session};
  check_evenorm(api(), evenorm_plan_run_with(prepared->plan.get(), &buffers, &executor));
}

}  // namespace evenorm::onnxruntime
