// Views of DLPack and buffer-protocol objects, and the layout code that all lenders share.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "dlpack.hpp"
#include "view.hpp"
#include "words.hpp"

namespace evenorm::python {
namespace {

// Address for an empty tensor whose lender has none: a null pointer would mean an absent argument.
double nothing;

// Asks for a version 1 capsule first, because only that version tells whether memory may be written.
nb::object dlpack_capsule(nb::handle object) {
  const nb::object method = object.attr("__dlpack__");
  try {
    return method(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method();
}

// Materialises lazy negation and conjugation of PyTorch tensors, which DLPack cannot express. An output with a negative
// bit is refused. A conjugated tensor is complex, so its type is refused later.
nb::object resolved(nb::handle object, const char* name, bool as_output) {
  nb::object result = nb::borrow(object);
  if (nb::hasattr(result, "resolve_conj")) result = result.attr("resolve_conj")();
  if (nb::hasattr(result, "resolve_neg") && nb::hasattr(result, "is_neg") && nb::cast<bool>(result.attr("is_neg")())) {
    if (as_output) {
      fail_value(std::string(name) + " has its negative bit set, but it should be written as it is; pass " + name +
                 ".resolve_neg()");
    }
    result = result.attr("resolve_neg")();
  }
  return result;
}

std::string text_of(const dlpack::Tensor& tensor) {
  constexpr std::string_view kKinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string kind(tensor.code < std::size(kKinds) ? kKinds[tensor.code] : "unknown");
  return kind + std::to_string(tensor.bits) + (tensor.lanes == 1 ? "" : "x" + std::to_string(tensor.lanes));
}

bool find_dtype(std::string_view format, DType& dtype) {
  if (!format.empty() && std::string_view("@=<").find(format[0]) != std::string_view::npos) format.remove_prefix(1);
  if (format == "d") {
    dtype = DType::f64;
  } else if (format == "f") {
    dtype = DType::f32;
  } else if (format == "e") {
    dtype = DType::f16;
  } else {
    dtype = DType::i8;
    return format == "b";
  }
  return true;
}

}  // namespace

void View::set_rank(const char* name, std::size_t rank) {
  if (rank > kMaxRank) {
    fail_value(std::string(name) + " has " + std::to_string(rank) + " axes, but at most 64 are supported");
  }
  rank_ = rank;
}

void View::set_layout(const char* name, std::size_t rank, const std::int64_t* shape, const std::int64_t* byte_strides) {
  set_rank(name, rank);
  contiguous_ = false;
  const auto size = static_cast<std::int64_t>(size_of(dtype_));
  for (std::size_t i = 0; i < rank; ++i) {
    shape_[i] = shape[i];
    strides_[i] = byte_strides[i] / size;
    if (byte_strides[i] % size != 0 && shape[i] > 1) {
      fail_value(std::string(name) + " has a stride of " + std::to_string(byte_strides[i]) +
                 " bytes, but strides should be multiples of the " + std::to_string(size) +
                 " bytes of an element; pass a copy");
    }
  }
}

void View::load_dlpack(nb::handle object, const char* name, bool as_output) {
  nb::object capsule = dlpack_capsule(resolved(object, name, as_output));
  const dlpack::Tensor* tensor = nullptr;
  bool read_only = true;  // of version 0, too, which lends immutable memory without saying so, as JAX does
  // The capsule is never marked as used, so it frees the tensor itself when it is destroyed.
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->major != 1) fail_type(std::string(name) + " has DLPack of version " + std::to_string(managed->major));
    read_only = (managed->flags & dlpack::kReadOnly) != 0;
    tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    tensor = &static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor;
  } else {
    fail_kind(name, object);
  }
  if (tensor->device_type != dlpack::kCpu && tensor->device_type != dlpack::kCudaHost) {
    fail_type(std::string(name) + " is on another device (DLPack's type " + std::to_string(tensor->device_type) +
              "), but it should be in the CPU's memory");
  }
  if (!dlpack::find_dtype(*tensor, dtype_) || (dtype_ == DType::i8 && !as_output)) fail_dtype(name, text_of(*tensor));
  if (as_output && read_only) fail_value(std::string(name) + " is read-only");
  set_rank(name, static_cast<std::size_t>(tensor->ndim));
  std::copy_n(tensor->shape, rank_, shape_);
  contiguous_ = tensor->strides == nullptr;
  if (!contiguous_) std::copy_n(tensor->strides, rank_, strides_);
  data_ = static_cast<char*>(tensor->data) + tensor->byte_offset;
  owner_ = std::move(capsule);
}

void View::load_buffer(nb::handle object, const char* name, bool as_output) {
  buffer_ = new Py_buffer;
  if (PyObject_GetBuffer(object.ptr(), buffer_, PyBUF_RECORDS_RO) != 0) {
    delete buffer_;
    buffer_ = nullptr;
    throw nb::python_error();
  }
  const char* format = buffer_->format == nullptr ? "B" : buffer_->format;
  if (!find_dtype(format, dtype_) || (dtype_ == DType::i8 && !as_output)) {
    fail_dtype(name, "'" + std::string(format) + "'");
  }
  if (as_output && buffer_->readonly != 0) fail_value(std::string(name) + " is read-only");
  const auto rank = static_cast<std::size_t>(buffer_->ndim);
  if (buffer_->strides != nullptr) {
    set_layout(name, rank, buffer_->shape, buffer_->strides);
  } else {  // ctypes gives no strides
    set_rank(name, rank);
    std::copy_n(buffer_->shape, rank, shape_);
    contiguous_ = true;
  }
  data_ = buffer_->buf;
}

bool View::load_lent(nb::handle object, const char* name, bool as_output) {
  if (nb::hasattr(object, "__dlpack__")) {
    load_dlpack(object, name, as_output);
  } else if (PyObject_CheckBuffer(object.ptr())) {
    load_buffer(object, name, as_output);
  } else {
    return false;
  }
  if (data_ == nullptr) {
    if (size() != 0) fail_value(std::string(name) + " has no memory");
    data_ = &nothing;
  }
  return true;
}

std::size_t View::size() const {
  std::size_t product = 1;
  for (const std::int64_t n : shape()) product *= static_cast<std::size_t>(n);
  return product;
}

bool View::has_order() const {
  for (std::size_t i = 0; i < strides().size(); ++i) {
    if (strides_[i] == 0 && shape_[i] > 1) return false;
  }
  return !contiguous_;
}

void View::release() {
  if (buffer_ == nullptr) return;
  PyBuffer_Release(buffer_);
  delete buffer_;
}

}  // namespace evenorm::python
