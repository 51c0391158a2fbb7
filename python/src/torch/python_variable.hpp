// PyTorch's tensors as Python objects: what libtorch_python exports, as torch/csrc/autograd/python_variable.h and
// torch/csrc/Exceptions.h declare it in PyTorch 2.10 to 2.15.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <exception>

struct THPVariable {
  PyObject_HEAD at::Tensor cdata;
};

extern PyObject* THPVariableClass;  // torch.Tensor
extern PyObject* ParameterClass;    // torch.nn.Parameter

PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace torch {
void translate_exception_to_python(const std::exception_ptr& exception);
}

// True for a tensor or a parameter, and not for an object of a subclass.
inline bool THPVariable_CheckExact(PyObject* object) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return type == THPVariableClass || type == ParameterClass;
}
inline const at::Tensor& THPVariable_Unpack(PyObject* object) { return reinterpret_cast<THPVariable*>(object)->cdata; }
