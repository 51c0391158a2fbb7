// See torch_tensors.hpp.
#include "torch_tensors.hpp"

#include <dlfcn.h>
#include <nanobind/stl/string.h>

#include <string>

#include "dlpack.hpp"
#include "torch/conditions.hpp"
#include "words.hpp"
#include "work.hpp"

namespace evenorm::python {
namespace {

using namespace torch_binding;
using nb::literals::operator""_a;

// What PyTorch provides: see use_torch(). Nothing is released, because the process may end in any order.
struct Torch {
  const dlpack::ExchangeApi* api;
  nb::handle tensor, parameter, empty_like, is_grad_enabled, is_inference, is_neg, modes, forward_ad, differentiate;
  nb::handle requires_grad, current_level;  // names of attributes
  int (*parallel_for)(std::int64_t, std::int64_t, std::int64_t, void (*)(std::int64_t, std::int64_t, void*), void*);
  int (*thread_count)(std::uint32_t*);
} torch;

nb::object valid(PyObject* result) {
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}
bool is_true(nb::handle function) { return PyObject_IsTrue(valid(PyObject_CallNoArgs(function.ptr())).ptr()) == 1; }

bool is_exact(nb::handle object) {
  const nb::handle type = object.type();
  return type.is(torch.tensor) || type.is(torch.parameter);
}

// Views a strided CPU tensor of the four types, whose memory it does not keep alive. False for any other object.
bool lend(nb::handle object, ConstTensor& view) {
  dlpack::Tensor tensor;
  if (torch.api->tensor_from_object(object.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  static constexpr char kNothing = 0;
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  DType dtype;
  if (tensor.device_type != dlpack::kCpu || !dlpack::find_dtype(tensor, dtype) || dtype == DType::i8) return false;
  view = {
      static_cast<const char*>(tensor.data) + tensor.byte_offset, dtype, {tensor.shape, rank}, {tensor.strides, rank}};
  if (tensor.data != nullptr) return true;
  view.data = &kNothing;  // a null pointer would mean an absent tensor
  return size_of(view.shape) == 0;
}

void lend_to_kernel(nb::handle object, const char* name, ConstTensor& view) {
  if (object.is_none() || lend(object, view)) return;
  fail_type(std::string(name) +
            " should be a strided tensor in the CPU's memory, of float64, float32, bfloat16 or float16");
}
Tensor writable(const ConstTensor& view) {
  return {const_cast<void*>(view.data), view.dtype, view.shape, view.strides};
}

// Subclasses cannot change what is read.
bool read(nb::handle object, Integers& shape) {
  const bool is_tuple = nb::isinstance<nb::tuple>(object);
  if (!is_tuple && !nb::isinstance<nb::list>(object)) return false;
  const Py_ssize_t count = is_tuple ? PyTuple_Size(object.ptr()) : PyList_Size(object.ptr());
  if (count > static_cast<Py_ssize_t>(kMaxRank)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = is_tuple ? PyTuple_GetItem(object.ptr(), i) : PyList_GetItem(object.ptr(), i);
    int overflow = 1;
    if (PyLong_CheckExact(item)) shape.add(PyLong_AsLongLongAndOverflow(item, &overflow));
    if (overflow != 0) return false;
  }
  return true;
}

Integers shape_for_kernel(nb::handle object) {
  Integers shape;
  if (!read(object, shape)) fail_type("normalized_shape should be a list of at most 64 integers");
  return shape;
}

double number(nb::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}
bool is_number(nb::handle object) { return PyFloat_CheckExact(object.ptr()) || PyLong_CheckExact(object.ptr()); }

// Runs a pass on PyTorch's threads, or on this thread alone if PyTorch does not export them.
template <class Work>
void run_on_torch(const Work& work) {
  struct Task {
    void (*function)(void*, std::size_t) noexcept;
    void* argument;
  };
  const auto parallel_for = [](void*, std::size_t tasks, void (*function)(void*, std::size_t) noexcept,
                               void* argument) {
    Task task{function, argument};
    const auto run_some = [](std::int64_t begin, std::int64_t end, void* given) {
      const Task& of = *static_cast<Task*>(given);
      for (; begin < end; ++begin) of.function(of.argument, static_cast<std::size_t>(begin));
    };
    torch.parallel_for(0, static_cast<std::int64_t>(tasks), 1, run_some, &task);
  };
  std::uint32_t threads = 1;
  const bool has_threads = torch.parallel_for != nullptr && torch.thread_count(&threads) == 0;
  try {
    const nb::gil_scoped_release released;
    evenorm::run(work, has_threads ? Executor{threads, nullptr, parallel_for} : Executor{});
  } catch (const Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    throw nb::python_error();
  }
}

// --- eager calls -----------------------------------------------------------------------------------------------------

// Absent arguments are None.
struct NormArguments {
  Kind kind;
  nb::handle x, residual, shape, weight, bias, eps, scale;
};

// True if the dispatcher would only call the CPU's kernel.
bool reaches_kernel() {
  for (Py_ssize_t i = 0, n = PyTuple_Size(torch.modes.ptr()); i < n; ++i) {
    if (is_true(PyTuple_GetItem(torch.modes.ptr(), i))) return false;
  }
  return PyLong_AsLong(valid(PyObject_GetAttr(torch.forward_ad.ptr(), torch.current_level.ptr())).ptr()) < 0;
}

bool needs_gradient(nb::handle tensor) {
  return !tensor.is_none() && valid(PyObject_GetAttr(tensor.ptr(), torch.requires_grad.ptr())).ptr() == Py_True;
}

bool is_negative(nb::handle tensor) {
  return valid(PyObject_CallFunctionObjArgs(torch.is_neg.ptr(), tensor.ptr(), nullptr)).ptr() == Py_True;
}
bool is_plain(nb::handle object, ConstTensor& view) {
  return object.is_none() || (is_exact(object) && lend(object, view) && !is_negative(object));
}

// True if it has elements, and the strides of a new tensor, so that empty_like() makes one as the dispatcher would.
bool is_contiguous(const ConstTensor& view) {
  std::int64_t step = 1;
  for (std::size_t i = view.shape.size(); i-- > 0; step *= view.shape[i]) {
    if (view.strides[i] != step) return false;
  }
  return step != 0;
}

// Reads what the eager functions take. False for anything else.
bool read_plain(const NormArguments& given, Integers& shape, Forward& work) {
  if (given.x.is_none() || !is_plain(given.x, work.x) || !is_plain(given.residual, work.residual) ||
      !is_plain(given.weight, work.weight) || !is_plain(given.bias, work.bias) || !read(given.shape, shape)) {
    return false;
  }
  const bool is_layer = given.kind == Kind::layer;
  if (!given.scale.is_none() && !is_number(given.scale)) return false;
  if (!is_number(given.eps) && (is_layer || !given.eps.is_none())) return false;
  work.normalized_shape = shape.span();
  work.eps = given.eps.is_none() ? default_eps(work.x.dtype) : number(given.eps);
  if (!given.scale.is_none()) work.residual_scale = number(given.scale);
  return is_norm(work.x, shape.span(), work.weight, work.bias, work.eps) && is_contiguous(work.x) &&
         (!is_layer || has_parameter_types(work.x.dtype, work.weight, work.bias)) &&
         (given.residual.is_none() ||
          (can_add(work.x, work.residual, work.residual_scale) && is_contiguous(work.residual)));
}

nb::object empty_like(nb::handle tensor, Tensor& view) {
  nb::object made = valid(PyObject_CallFunctionObjArgs(torch.empty_like.ptr(), tensor.ptr(), nullptr));
  ConstTensor found;
  if (!lend(made.ptr(), found)) fail_type("torch.empty_like made no plain tensor");
  view = writable(found);
  return made;
}

nb::object tensor_norm(const NormArguments& given) {
  Forward work{.kind = given.kind};
  Integers shape;
  if (!reaches_kernel() || !read_plain(given, shape, work)) return nb::borrow(nb::handle(Py_NotImplemented));
  const bool adds = !given.residual.is_none();
  nb::object y = empty_like(given.x, work.y), sum;
  if (adds) sum = empty_like(given.x, work.sum);
  run_on_torch(work);
  const bool differentiates = (needs_gradient(given.x) || needs_gradient(given.residual) ||
                               needs_gradient(given.weight) || needs_gradient(given.bias)) &&
                              is_true(torch.is_grad_enabled) && !is_true(torch.is_inference);
  if (!adds && !differentiates) return y;
  nb::object results = adds ? nb::make_tuple(y, sum) : nb::make_tuple(y);
  if (!differentiates) return results;
  y.reset(), sum.reset();
  nb::list axes;  // new, because the caller's list may change before the backward pass
  for (const std::int64_t size : shape.span()) axes.append(size);
  const nb::object norm = nb::make_tuple(given.kind == Kind::rms, axes, work.eps, work.residual_scale);
  return torch.differentiate(given.x, given.residual, given.weight, given.bias, norm, results);
}

// --- the operators' kernels ------------------------------------------------------------------------------------------

void write_norm(const NormArguments& given, nb::handle y, nb::handle sum) {
  Forward work{.kind = given.kind};
  ConstTensor to_y, to_sum;
  lend_to_kernel(given.x, "x", work.x);
  lend_to_kernel(given.residual, "residual", work.residual);
  lend_to_kernel(given.weight, "weight", work.weight);
  lend_to_kernel(given.bias, "bias", work.bias);
  lend_to_kernel(y, "y", to_y);
  lend_to_kernel(sum, "sum", to_sum);
  const Integers shape = shape_for_kernel(given.shape);
  work.normalized_shape = shape.span();
  work.eps = number(given.eps);
  work.residual_scale = number(given.scale);
  work.y = writable(to_y);
  work.sum = writable(to_sum);
  run_on_torch(work);
}

// A gradient to write: a tensor, or a new one like `like` for True.
nb::object gradient(nb::handle given, nb::handle like, const char* name, Tensor& view) {
  if (given.ptr() == Py_True) return empty_like(like, view);
  ConstTensor found;
  lend_to_kernel(given, name, found);
  view = writable(found);
  return nb::borrow(given);
}

nb::any write_backward(bool rms, nb::handle dy, nb::handle x, nb::handle axes, nb::handle weight, nb::handle eps,
                       nb::handle dsum, nb::handle to_dx, nb::handle to_dweight, nb::handle to_dbias) {
  Backward work{.kind = kind_of_norm(rms)};
  lend_to_kernel(dy, "dy", work.dy);
  lend_to_kernel(x, "x", work.x);
  lend_to_kernel(weight, "weight", work.weight);
  const Integers shape = shape_for_kernel(axes);
  work.normalized_shape = shape.span();
  work.eps = number(eps);
  const nb::object dx = gradient(to_dx, x, "dx", work.dx);
  const nb::object dweight = gradient(to_dweight, weight, "dweight", work.dweight);
  const nb::object dbias = gradient(to_dbias, weight, "dbias", work.dbias);
  if (work.dx.data != nullptr) lend_to_kernel(dsum, "dsum", work.dsum);  // only dx uses it
  if (work.dx.data != nullptr || work.dweight.data != nullptr || work.dbias.data != nullptr) run_on_torch(work);
  return tuple_of(dx, dweight, dbias);
}

bool are_plain(nb::handle dy, nb::handle dsum) {
  ConstTensor view;
  return reaches_kernel() && is_plain(dy, view) && is_plain(dsum, view);
}

void use_torch(nb::handle exchange_api, nb::object tensor, nb::object parameter, nb::object empty_like,
               nb::object is_grad_enabled, nb::object is_inference, nb::object is_neg, nb::object modes,
               nb::object forward_ad, nb::object differentiate, const std::string& library) {
  const auto* api =
      static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(exchange_api.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) throw nb::python_error();
  while (api != nullptr && api->major != 1) api = api->previous;
  if (api == nullptr || api->tensor_from_object == nullptr) fail_value("exchange_api lacks DLPack's version 1");
  torch = {.api = api,
           .tensor = tensor.release(),
           .parameter = parameter.release(),
           .empty_like = empty_like.release(),
           .is_grad_enabled = is_grad_enabled.release(),
           .is_inference = is_inference.release(),
           .is_neg = is_neg.release(),
           .modes = modes.release(),
           .forward_ad = forward_ad.release(),
           .differentiate = differentiate.release(),
           .requires_grad = valid(PyUnicode_InternFromString("requires_grad")).release(),
           .current_level = valid(PyUnicode_InternFromString("_current_level")).release()};
  if (void* loaded = dlopen(library.c_str(), RTLD_NOLOAD | RTLD_LAZY)) {
    torch.parallel_for = reinterpret_cast<decltype(torch.parallel_for)>(dlsym(loaded, "torch_parallel_for"));
    torch.thread_count = reinterpret_cast<decltype(torch.thread_count)>(dlsym(loaded, "torch_get_num_threads"));
    if (torch.thread_count == nullptr) torch.parallel_for = nullptr;
  }
}

const nb::handle kNone = nb::none().release();

}  // namespace

void add_tensor_functions(nb::module_& m) {
  using H = nb::handle;
  const auto x = any("x"), residual = any("residual"), shape = any("normalized_shape"), weight = any("weight"),
             bias = any("bias"), eps = any("eps"), scale = any("residual_scale"), dsum = any("dsum"), dy = any("dy");
  for (const Kind kind : {Kind::layer, Kind::rms}) {
    m.def(
        kind == Kind::layer ? "tensor_layer_norm" : "tensor_rms_norm",
        [kind](H x, H shape, H weight, H bias, H eps) {
          return as_any(tensor_norm({kind, x, kNone, shape, weight, bias, eps, kNone}));
        },
        x, shape, weight, bias, eps);
    m.def(
        kind == Kind::layer ? "tensor_add_layer_norm" : "tensor_add_rms_norm",
        [kind](H x, H residual, H shape, H weight, H bias, H eps, H scale) {
          return as_any(tensor_norm({kind, x, residual, shape, weight, bias, eps, scale}));
        },
        x, residual, shape, weight, bias, eps, scale);
  }
  m.def(
      "write_norm",
      [](bool rms, H x, H residual, H shape, H weight, H bias, H eps, H scale, H y, H sum) {
        write_norm({kind_of_norm(rms), x, residual, shape, weight, bias, eps, scale}, y, sum);
      },
      "rms"_a, x, residual, shape, weight, bias, eps, scale, any("y"), any("sum"));
  m.def("write_backward", &write_backward, "rms"_a, dy, x, shape, weight, eps, dsum, any("dx"), any("dweight"),
        any("dbias"));
  m.def("are_plain", &are_plain, dy, dsum);
  m.def("use_torch", &use_torch, "exchange_api"_a, "tensor"_a, "parameter"_a, "empty_like"_a, "is_grad_enabled"_a,
        "is_inference"_a, "is_neg"_a, "modes"_a, "forward_ad"_a, "differentiate"_a, "library"_a);
}

}  // namespace evenorm::python
