// View: a tensor lent by Python, in the library's form. Lenders are NumPy arrays, objects with DLPack or the buffer
// protocol, and sequences of numbers. A view keeps the memory alive. It knows nothing of norms.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "evenorm/evenorm.hpp"

namespace evenorm::python {

namespace nb = nanobind;

constexpr std::size_t kMaxRank = 64;  // the limit of NumPy and of the library

// Up to kMaxRank integers, without allocating.
struct Integers {
  std::int64_t values[kMaxRank];
  std::size_t count = 0;

  void add(std::int64_t value) { values[count++] = value; }
  std::span<const std::int64_t> span() const { return {values, count}; }
};

class View {
 public:
  View() = default;
  ~View() { release(); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  // Views an input. None leaves the view absent. A sequence of numbers has no type of its own and takes `weak`.
  void load(nb::handle object, const char* name, DType weak = DType::f64);
  // Views an output that the caller passed.
  void load_output(nb::handle object, const char* name);
  // Creates a NumPy array as output. Its axes have the memory order of `like` if that is a NumPy array.
  void allocate(std::span<const std::int64_t> shape, DType dtype, const View* like = nullptr);
  // Views an object with DLPack or the buffer protocol. Returns false for any other object.
  bool load_lent(nb::handle object, const char* name, bool as_output);

  bool present() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  std::size_t size() const;
  std::span<const std::int64_t> shape() const { return {shape_, rank_}; }
  ConstTensor input() const { return {data_, dtype_, shape(), strides()}; }
  Tensor output() const { return {data_, dtype_, shape(), strides()}; }
  // The object to return: the caller's output, or the new array (a NumPy scalar if it has no axes).
  nb::object result() const;

 private:
  std::span<const std::int64_t> strides() const { return {strides_, contiguous_ ? 0 : rank_}; }
  void load_numpy(nb::object array, const char* name, bool as_output);
  void load_dlpack(nb::handle object, const char* name, bool as_output);
  void load_buffer(nb::handle object, const char* name, bool as_output);
  bool has_order() const;  // false for C order and for repeated elements
  // Takes the lender's shape and its strides in bytes.
  void set_layout(const char* name, std::size_t rank, const std::int64_t* shape, const std::int64_t* byte_strides);
  void set_rank(const char* name, std::size_t rank);
  void release();

  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  bool contiguous_ = false;
  std::size_t rank_ = 0;
  nb::object owner_;  // the caller's object, the new array, or DLPack's capsule
  nb::handle given_;  // the caller's object, for an output
  Py_buffer* buffer_ = nullptr;
  bool is_numpy_ = false;
  std::int64_t shape_[kMaxRank];
  std::int64_t strides_[kMaxRank];
};

// The type that `object` names, as NumPy's functions accept it ("float32", np.float64, a dtype). `name` is for errors.
DType dtype_named_by(nb::handle object, const char* name);

// Call once, when the module is loaded.
void import_numpy();

}  // namespace evenorm::python
