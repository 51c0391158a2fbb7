// The Python module evenorm.torch._extension: the eager way into the operators, for plain tensors. Importing it
// registers the operators. What it cannot take (subclasses, torch function modes, other devices and types, wrong
// shapes) it answers with NotImplemented; evenorm.torch decides what becomes of it.
#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "arguments.hpp"
#include "operators.hpp"

namespace evenorm::torch_binding {
namespace {

using Shape = c10::SmallVector<std::int64_t, 4>;

// Each `read` answers whether the object is of the plain type that is wanted. A Python int that no double holds is an
// OverflowError.
bool read(PyObject* object, Tensor& out) {
  if (!THPVariable_CheckExact(object)) return false;
  out = THPVariable_Unpack(object);
  return true;
}
bool read(PyObject* object, OptionalTensor& out) { return object == Py_None || read(object, out.emplace()); }
bool read(PyObject* object, double& out) {
  if (PyFloat_CheckExact(object)) {
    out = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (!PyLong_CheckExact(object)) return false;
  out = PyLong_AsDouble(object);
  if (out == -1 && PyErr_Occurred() != nullptr) throw python_error();
  return true;
}
bool read(PyObject* object, std::optional<double>& out) { return object == Py_None || read(object, out.emplace()); }
bool read(PyObject* object, Shape& out) {
  const bool is_tuple = PyTuple_Check(object);
  if (!is_tuple && !PyList_Check(object)) return false;
  const Py_ssize_t size = is_tuple ? PyTuple_GET_SIZE(object) : PyList_GET_SIZE(object);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = is_tuple ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
    int overflow = 1;
    if (PyLong_CheckExact(item)) out.push_back(PyLong_AsLongLongAndOverflow(item, &overflow));
    if (overflow != 0) return false;
  }
  return true;
}

template <std::size_t... I, class... Outs>
bool read_all(PyObject* const* arguments, std::index_sequence<I...>, Outs&... outs) {
  return (read(arguments[I], outs) && ...);
}
template <class... Outs>
bool read_all(PyObject* const* arguments, Py_ssize_t count, Outs&... outs) {
  return count == static_cast<Py_ssize_t>(sizeof...(Outs)) && !at::impl::torch_function_mode_enabled() &&
         read_all(arguments, std::index_sequence_for<Outs...>{}, outs...);
}

PyObject* wrap(TwoTensors&& tensors) {
  PyObject* result = PyTuple_New(2);
  if (result == nullptr) throw python_error();
  PyTuple_SET_ITEM(result, 0, THPVariable_Wrap(std::get<0>(tensors)));
  PyTuple_SET_ITEM(result, 1, THPVariable_Wrap(std::get<1>(tensors)));
  return result;
}
PyObject* wrap(Tensor&& tensor) { return THPVariable_Wrap(std::move(tensor)); }

template <class Signature, class... Arguments>
PyObject* call(const Operator<Signature>& op, const Arguments&... arguments) {
  return wrap([&] {
    const pybind11::gil_scoped_release released;
    return op.call(arguments...);
  }());
}

PyObject* not_implemented() { return Py_NewRef(Py_NotImplemented); }

PyObject* layer_norm(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Tensor x;
  Shape shape;
  OptionalTensor weight, bias;
  double eps = 0;
  if (!read_all(arguments, count, x, shape, weight, bias, eps) || !is_norm(x, shape, weight, bias, eps) ||
      !has_parameter_types(x, weight, bias)) {
    return not_implemented();
  }
  return call(layer_norm_operator(), x, c10::fromIntArrayRefSlow(shape), weight, bias, eps);
  END_HANDLE_TH_ERRORS
}

PyObject* rms_norm(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Tensor x;
  Shape shape;
  OptionalTensor weight;
  std::optional<double> given;
  if (!read_all(arguments, count, x, shape, weight, given)) return not_implemented();
  const double eps = eps_or_default(given, x);
  if (!is_norm(x, shape, weight, std::nullopt, eps)) return not_implemented();
  return call(rms_norm_operator(), x, c10::fromIntArrayRefSlow(shape), weight, eps);
  END_HANDLE_TH_ERRORS
}

PyObject* add_layer_norm(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Tensor x, residual;
  Shape shape;
  OptionalTensor weight, bias;
  double eps = 0, scale = 1;
  if (!read_all(arguments, count, x, residual, shape, weight, bias, eps, scale) ||
      !is_norm(x, shape, weight, bias, eps) || !can_add(x, residual, scale) || !has_parameter_types(x, weight, bias)) {
    return not_implemented();
  }
  return call(add_layer_norm_operator(), x, residual, c10::fromIntArrayRefSlow(shape), weight, bias, eps, scale);
  END_HANDLE_TH_ERRORS
}

PyObject* add_rms_norm(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Tensor x, residual;
  Shape shape;
  OptionalTensor weight;
  std::optional<double> given;
  double scale = 1;
  if (!read_all(arguments, count, x, residual, shape, weight, given, scale)) return not_implemented();
  const double eps = eps_or_default(given, x);
  if (!is_norm(x, shape, weight, std::nullopt, eps) || !can_add(x, residual, scale)) return not_implemented();
  return call(add_rms_norm_operator(), x, residual, c10::fromIntArrayRefSlow(shape), weight, eps, scale);
  END_HANDLE_TH_ERRORS
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"layer_norm", fast(layer_norm), METH_FASTCALL, "layer_norm(x, normalized_shape, weight, bias, eps)"},
    {"rms_norm", fast(rms_norm), METH_FASTCALL, "rms_norm(x, normalized_shape, weight, eps)"},
    {"add_layer_norm", fast(add_layer_norm), METH_FASTCALL,
     "add_layer_norm(x, residual, normalized_shape, weight, bias, eps, residual_scale)"},
    {"add_rms_norm", fast(add_rms_norm), METH_FASTCALL,
     "add_rms_norm(x, residual, normalized_shape, weight, eps, residual_scale)"},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "_extension",
                      "The operators' eager entry; see evenorm.torch.",
                      -1,
                      methods,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

}  // namespace
}  // namespace evenorm::torch_binding

PyMODINIT_FUNC PyInit__extension() {
  PyObject* self = PyModule_Create(&evenorm::torch_binding::module);
  // What it was built against: evenorm.torch has read the same from a file before it loaded this.
  if (self != nullptr && PyModule_AddStringConstant(self, "torch_version", TORCH_VERSION) != 0) {
    Py_DECREF(self);
    return nullptr;
  }
  return self;
}
