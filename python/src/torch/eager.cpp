// The Python module evenorm.torch._ops_MAJOR_MINOR: the eager entry points to the operators, for plain tensors.
// Importing it registers the operators. A function returns NotImplemented for arguments that it does not accept
// (subclasses, torch function modes, other devices and types, wrong shapes); evenorm.torch handles those calls.
//
// It uses the stable ABI, so that one binary serves all versions of CPython. PyTorch's header of Python's tensors,
// torch/csrc/autograd/python_variable.h, does not compile with that; python_variable.hpp has what is needed of it.
#define Py_LIMITED_API 0x030B0000
#include <ATen/PythonTorchFunctionTLS.h>
#include <Python.h>

#include "arguments.hpp"
#include "kernels.hpp"
#include "operators.hpp"
#include "python_variable.hpp"
#include "routes.hpp"

namespace evenorm::torch_binding {
namespace {

using Shape = c10::SmallVector<std::int64_t, 4>;

// Thrown where Python's error is set.
struct PythonError {};

// Each `read` returns false if the object is not of the expected plain type. A Python int too large for a double is an
// OverflowError.
bool read(PyObject* object, Tensor& out) {
  if (!THPVariable_CheckExact(object)) return false;
  out = THPVariable_Unpack(object);
  return true;
}
bool read(PyObject* object, OptionalTensor& out) { return object == Py_None || read(object, out.emplace()); }
bool read(PyObject* object, double& out) {
  if (PyFloat_CheckExact(object)) {
    out = PyFloat_AsDouble(object);
    return true;
  }
  if (!PyLong_CheckExact(object)) return false;
  out = PyLong_AsDouble(object);
  if (out == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return true;
}
bool read(PyObject* object, std::optional<double>& out) { return object == Py_None || read(object, out.emplace()); }
bool read(PyObject* object, std::int64_t& out) {
  int overflow = 1;
  if (PyLong_CheckExact(object)) out = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}
bool read(PyObject* object, Shape& out) {
  const unsigned long kinds = PyType_GetFlags(Py_TYPE(object));
  const bool is_tuple = (kinds & Py_TPFLAGS_TUPLE_SUBCLASS) != 0;
  if (!is_tuple && (kinds & Py_TPFLAGS_LIST_SUBCLASS) == 0) return false;
  const Py_ssize_t size = is_tuple ? PyTuple_Size(object) : PyList_Size(object);
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!read(is_tuple ? PyTuple_GetItem(object, i) : PyList_GetItem(object, i), out.emplace_back(0))) return false;
  }
  return true;
}

// Reads the arguments in order.
struct Reader {
  PyObject* const* next;
  PyObject* const* end;

  template <class Out>
  bool operator()(Out& out) {
    return next != end && read(*next++, out);
  }
};

PyObject* wrap(TwoTensors&& tensors) {
  PyObject* result = PyTuple_New(2);
  if (result == nullptr) throw PythonError();
  PyTuple_SetItem(result, 0, THPVariable_Wrap(std::get<0>(tensors)));
  PyTuple_SetItem(result, 1, THPVariable_Wrap(std::get<1>(tensors)));
  return result;
}
PyObject* wrap(Tensor&& tensor) { return THPVariable_Wrap(std::move(tensor)); }

struct WithoutGil {
  WithoutGil() = default;
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() { PyEval_RestoreThread(state); }

  PyThreadState* state = PyEval_SaveThread();
};

template <class Signature, class... Arguments>
PyObject* call(const Operator<Signature>& op, const Arguments&... arguments) {
  return wrap([&] {
    const WithoutGil without_gil;
    return op.call(arguments...);
  }());
}

// What a norm reads, and where it writes: x, x plus a residual, or x over itself.
enum class Form { plain, adds, in_place };

// A norm. Only layer norm requires eps, and restricts the types of weight and bias.
template <Kind kind, Form form>
PyObject* checked_norm(PyObject* const* arguments, Py_ssize_t count) {
  constexpr bool kIsLayer = kind == Kind::layer, kAdds = form == Form::adds, kIsInPlace = form == Form::in_place;
  Tensor x, residual;
  Shape shape;
  OptionalTensor weight, bias;
  double eps = 0, scale = 1;
  std::optional<double> given;
  Reader read{arguments, arguments + count};
  const bool is_read = !at::impl::torch_function_mode_enabled() && read(x) && (!kAdds || read(residual)) &&
                       read(shape) && read(weight) && read(bias) && (kIsLayer ? read(eps) : read(given)) &&
                       (!kAdds || read(scale)) && read.next == read.end;
  if (is_read && !kIsLayer) eps = eps_or_default(given, x);
  if (!is_read || !is_norm(x, shape, weight, bias, eps) || (kAdds && !can_add(x, residual, scale)) ||
      (kIsLayer && !has_parameter_types(x, weight, bias)) || (kIsInPlace && !goes_to_cpu_alone(x, weight, bias))) {
    Py_IncRef(Py_NotImplemented);
    return Py_NotImplemented;
  }
  const SymIntArrayRef sizes = c10::fromIntArrayRefSlow(shape);
  if constexpr (kIsInPlace) {
    const WithoutGil without_gil;
    cpu_norm(kind, x, sizes, weight, bias, eps, /*statistics=*/nullptr, /*place=*/&x);
  } else if constexpr (kAdds) {
    return call(add_norm_operator(kind), x, residual, sizes, weight, bias, eps, scale);
  } else {
    return call(norm_operator(kind), x, sizes, weight, bias, eps);
  }
  Py_IncRef(arguments[0]);
  return arguments[0];
}

PyObject* checked_group_norm(PyObject* const* arguments, Py_ssize_t count) {
  Tensor x;
  std::int64_t groups = 0;
  OptionalTensor weight, bias;
  double eps = 0;
  Reader read{arguments, arguments + count};
  if (at::impl::torch_function_mode_enabled() || !read(x) || !read(groups) || !read(weight) || !read(bias) ||
      !read(eps) || read.next != read.end || !is_group_norm(x, groups, weight, bias, eps)) {
    Py_IncRef(Py_NotImplemented);
    return Py_NotImplemented;
  }
  return call(group_norm_operator(), x, SymInt(groups), weight, bias, eps);
}

template <PyObject* (*checked)(PyObject* const*, Py_ssize_t)>
PyObject* entry(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  try {
    return checked(arguments, count);
  } catch (const PythonError&) {
    return nullptr;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"layer_norm", fast(entry<checked_norm<Kind::layer, Form::plain>>), METH_FASTCALL, nullptr},
    {"rms_norm", fast(entry<checked_norm<Kind::rms, Form::plain>>), METH_FASTCALL, nullptr},
    {"add_layer_norm", fast(entry<checked_norm<Kind::layer, Form::adds>>), METH_FASTCALL, nullptr},
    {"add_rms_norm", fast(entry<checked_norm<Kind::rms, Form::adds>>), METH_FASTCALL, nullptr},
    {"layer_norm_", fast(entry<checked_norm<Kind::layer, Form::in_place>>), METH_FASTCALL, nullptr},
    {"rms_norm_", fast(entry<checked_norm<Kind::rms, Form::in_place>>), METH_FASTCALL, nullptr},
    {"group_norm", fast(entry<checked_group_norm>), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, EVENORM_OPS, nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace evenorm::torch_binding

PyMODINIT_FUNC EVENORM_OPS_INIT() { return PyModule_Create(&evenorm::torch_binding::module); }
