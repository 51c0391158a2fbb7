// Views of NumPy arrays, and new arrays. Only this file uses NumPy's C API. Other lenders: lenders.cpp.
#include "view.hpp"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <string>
#include <utility>

#include "words.hpp"

namespace evenorm::python {
namespace {

static_assert(sizeof(npy_intp) == sizeof(std::int64_t));

PyArrayObject* as_array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

// NumPy has no bfloat16 of its own: ml_dtypes registers one when it is imported. Its number is fixed from then on.
int bf16_number = -1;

bool is_bf16(PyArray_Descr* descr) {
  if (descr->type_num == bf16_number) return true;
  if (bf16_number >= 0 || descr->type_num < NPY_USERDEF) return false;
  const nb::object name = nb::handle(reinterpret_cast<PyObject*>(descr->typeobj)).attr("__name__");
  if (!nb::isinstance<nb::str>(name) || nb::cast<std::string>(name) != "bfloat16") return false;
  bf16_number = descr->type_num;
  return true;
}

// NumPy's numbers of the other types.
constexpr std::pair<DType, int> kNumbers[] = {
    {DType::f64, NPY_DOUBLE}, {DType::f32, NPY_FLOAT}, {DType::f16, NPY_HALF}, {DType::i8, NPY_BYTE}};

bool find_dtype(PyArray_Descr* descr, DType& dtype) {
  for (const auto& [known, number] : kNumbers) {
    dtype = known;
    if (descr->type_num == number) return true;
  }
  dtype = DType::bf16;
  return is_bf16(descr);
}

std::string text_of(PyArray_Descr* descr) {
  return nb::cast<std::string>(nb::str(nb::handle(reinterpret_cast<PyObject*>(descr))));
}

// Returns a new reference.
PyArray_Descr* descr_of(DType dtype) {
  for (const auto& [known, number] : kNumbers) {
    if (dtype == known) return PyArray_DescrFromType(number);
  }
  if (bf16_number < 0) {
    PyArray_Descr* descr = nullptr;
    nb::object type;
    try {
      type = nb::module_::import_("ml_dtypes").attr("bfloat16");
    } catch (nb::python_error&) {
      fail_type("a result of type bfloat16 needs the package ml_dtypes; or pass out");
    }
    if (PyArray_DescrConverter(type.ptr(), &descr) == 0) throw nb::python_error();
    bf16_number = descr->type_num;
    return descr;
  }
  return PyArray_DescrFromType(bf16_number);
}

bool is_masked(nb::handle array) {
  return !PyArray_CheckExact(array.ptr()) && nb::hasattr(array, "mask") && nb::hasattr(array, "filled");
}

// Throws unless the library supports the type of `array`, which is an argument or an element of a sequence.
DType checked_dtype(nb::handle array, const char* name, bool as_output) {
  PyArray_Descr* descr = PyArray_DESCR(as_array(array));
  DType dtype = DType::f32;
  if (!find_dtype(descr, dtype) || (dtype == DType::i8 && !as_output)) fail_dtype(name, text_of(descr));
  if (PyArray_ISBYTESWAPPED(as_array(array))) {
    fail_type(std::string(name) + " has dtype " + text_of(descr) + ", which is not in native byte order; convert it: " +
              name + ".astype(" + name + ".dtype.newbyteorder('='))");
  }
  if (is_masked(array)) fail_type(std::string(name) + " is a masked array; fill it first: " + name + ".filled(...)");
  return dtype;
}

bool knows_arrays(nb::handle object) {
  return nb::hasattr(object, "__array__") || nb::hasattr(object, "__array_interface__") ||
         nb::hasattr(object, "__array_struct__");
}

nb::object array_of(nb::handle object, const char* name, PyArray_Descr* descr) {
  PyObject* array = PyArray_FromAny(object.ptr(), descr, 0, 0, 0, nullptr);
  if (array != nullptr) return nb::steal(array);
  const nb::python_error error;
  if (!error.matches(PyExc_ValueError) && !error.matches(PyExc_OverflowError)) throw nb::python_error(error);
  fail_value(std::string(name) + " is not an array of numbers: " + nb::cast<std::string>(nb::str(error.value())));
}

// NumPy silently converts digit strings, dates, None, masked arrays and complex arrays to numbers. So the elements of a
// sequence are checked before NumPy converts it.
void check_elements(nb::handle sequence, const char* name, std::size_t axes = 1);

void check_scalar(nb::handle object, const char* name) {
  PyArray_Descr* descr = PyArray_DescrFromScalar(object.ptr());
  const nb::object held = nb::steal(reinterpret_cast<PyObject*>(descr));
  if (!held.is_valid()) throw nb::python_error();
  DType dtype = DType::f32;
  if (!PyTypeNum_ISINTEGER(descr->type_num) && !find_dtype(descr, dtype)) {
    fail_dtype(("a number in " + std::string(name)).c_str(), text_of(descr));
  }
}

void check_element(nb::handle object, const char* name, std::size_t axes) {
  if (PyFloat_CheckExact(object.ptr()) || PyLong_CheckExact(object.ptr())) return;
  const std::string part = "an array in " + std::string(name);
  if (PyArray_IsScalar(object.ptr(), Generic)) {
    check_scalar(object, name);
  } else if (PyArray_Check(object.ptr())) {
    checked_dtype(object, part.c_str(), false);
  } else if (View().load_lent(object, part.c_str(), false)) {
    return;  // load_lent has checked the type
  } else if (knows_arrays(object)) {
    checked_dtype(array_of(object, part.c_str(), nullptr), part.c_str(), false);
  } else if (PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr())) {
    check_elements(object, name, axes + 1);
  } else if (PyNumber_Check(object.ptr()) == 0 || PyComplex_Check(object.ptr())) {
    fail_type(std::string(name) + " holds " + (object.is_none() ? "None" : "an element " + kind_of(object)) +
              ", but it should hold numbers");
  }
}

void check_elements(nb::handle sequence, const char* name, std::size_t axes) {
  if (axes > kMaxRank) fail_value(std::string(name) + " is nested deeper than the 64 axes that are supported");
  const nb::object elements = nb::steal(PySequence_Tuple(sequence.ptr()));
  if (!elements.is_valid()) throw nb::python_error();
  const Py_ssize_t count = PyTuple_Size(elements.ptr());
  for (Py_ssize_t i = 0; i < count; ++i) check_element(PyTuple_GetItem(elements.ptr(), i), name, axes);
}

nb::object convert_sequence(nb::handle object, const char* name, DType weak) {
  const bool weakly = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) || PyLong_Check(object.ptr()) ||
                      PyFloat_Check(object.ptr());
  if (PyUnicode_Check(object.ptr()) || PyDict_Check(object.ptr())) fail_kind(name, object);
  if (PySequence_Check(object.ptr()) && !knows_arrays(object)) check_elements(object, name);
  nb::object result = array_of(object, name, weakly ? descr_of(weak) : nullptr);
  if (PyArray_DESCR(as_array(result))->type_num == NPY_OBJECT) fail_kind(name, object);
  return result;
}

}  // namespace

void View::load_numpy(nb::object array, const char* name, bool as_output) {
  PyArrayObject* a = as_array(array);
  dtype_ = checked_dtype(array, name, as_output);
  if (as_output && !PyArray_ISWRITEABLE(a)) fail_value(std::string(name) + " is read-only");
  const auto rank = static_cast<std::size_t>(PyArray_NDIM(a));
  if (PyArray_IS_C_CONTIGUOUS(a)) {
    set_rank(name, rank);
    std::copy_n(PyArray_DIMS(a), rank, shape_);
    contiguous_ = true;
  } else {
    set_layout(name, rank, PyArray_DIMS(a), PyArray_STRIDES(a));
  }
  data_ = PyArray_DATA(a);
  is_numpy_ = true;
  owner_ = std::move(array);
}

void View::load(nb::handle object, const char* name, DType weak) {
  if (object.is_none()) return;
  if (PyArray_Check(object.ptr())) {
    load_numpy(nb::borrow(object), name, false);
  } else if (!load_lent(object, name, false)) {
    load_numpy(convert_sequence(object, name, weak), name, false);
  }
}

void View::load_output(nb::handle object, const char* name) {
  given_ = object;
  if (PyArray_Check(object.ptr())) {
    load_numpy(nb::borrow(object), name, true);
  } else if (!load_lent(object, name, true)) {
    fail_type(std::string(name) + " is " + kind_of(object) + ", but it should be an array that can be written");
  }
}

void View::allocate(std::span<const std::int64_t> shape, DType dtype, const View* like) {
  PyArray_Descr* descr = descr_of(dtype);
  PyObject* array;
  if (like != nullptr && like->is_numpy_ && like->has_order()) {
    array = PyArray_NewLikeArray(as_array(like->owner_), NPY_KEEPORDER, descr, 0);
  } else {
    npy_intp dims[kMaxRank];
    std::copy(shape.begin(), shape.end(), dims);
    array =
        PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(shape.size()), dims, nullptr, nullptr, 0, nullptr);
  }
  if (array == nullptr) throw nb::python_error();
  load_numpy(nb::steal(array), "out", true);
}

nb::object View::result() const {
  if (given_.is_valid()) return nb::borrow(given_);
  if (rank_ != 0) return owner_;
  nb::object array = owner_;
  return nb::steal(PyArray_Return(as_array(array.release())));
}

DType dtype_named_by(nb::handle object, const char* name) {
  PyArray_Descr* descr = nullptr;
  if (PyArray_DescrConverter(object.ptr(), &descr) == 0) throw nb::python_error();
  const nb::object owner = nb::steal(reinterpret_cast<PyObject*>(descr));
  DType dtype = DType::f32;
  if (!find_dtype(descr, dtype) || dtype == DType::i8) {
    fail_type(std::string(name) + " is " + text_of(descr) + ", but it should be float64, float32, float16 or bfloat16");
  }
  return dtype;
}

void import_numpy() {
  if (_import_array() < 0) throw nb::python_error();
}

}  // namespace evenorm::python
