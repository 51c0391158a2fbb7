// View: a tensor that Python lent, as the library wants it: NumPy's arrays, whatever has DLPack or the buffer protocol,
// sequences of numbers. Owns what keeps the memory alive. Knows nothing of norms.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "evenorm/evenorm.hpp"

namespace evenorm::python {

namespace nb = nanobind;

constexpr std::size_t kMaxRank = 64;  // NumPy's and the library's

// A few integers, without allocating.
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

  // An input; None leaves the view absent. A sequence of numbers has no type of its own and takes `weak`.
  void load(nb::handle object, const char* name, DType weak = DType::f64);
  // An output of the caller's.
  void load_output(nb::handle object, const char* name);
  // An output of our own: a new NumPy array, its axes in memory in the order of `like`'s where that is one of NumPy's.
  void allocate(std::span<const std::int64_t> shape, DType dtype, const View* like = nullptr);
  // What has DLPack or the buffer protocol; of anything else false.
  bool load_lent(nb::handle object, const char* name, bool as_output);

  bool present() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  std::size_t size() const;
  std::span<const std::int64_t> shape() const { return {shape_, rank_}; }
  ConstTensor input() const { return {data_, dtype_, shape(), strides()}; }
  Tensor output() const { return {data_, dtype_, shape(), strides()}; }
  // What to hand to the caller: the object that was given, or the new array (of no axes: a scalar).
  nb::object result() const;

 private:
  std::span<const std::int64_t> strides() const { return {strides_, contiguous_ ? 0 : rank_}; }
  void load_numpy(nb::object array, const char* name, bool as_output);
  void load_dlpack(nb::handle object, const char* name, bool as_output);
  void load_buffer(nb::handle object, const char* name, bool as_output);
  bool has_order() const;  // one of its own: neither C's, nor repeated elements', which say nothing
  // Shape and strides in bytes as the lender has them.
  void set_layout(const char* name, std::size_t rank, const std::int64_t* shape, const std::int64_t* byte_strides);
  void set_rank(const char* name, std::size_t rank);
  void release();

  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  bool contiguous_ = false;
  std::size_t rank_ = 0;
  nb::object owner_;  // what was given, the new array, or DLPack's capsule
  nb::handle given_;  // an output's object
  Py_buffer* buffer_ = nullptr;
  bool is_numpy_ = false;
  std::int64_t shape_[kMaxRank];
  std::int64_t strides_[kMaxRank];
};

// The type that an object names as NumPy's functions take it ("float32", np.float64, a dtype); which argument it is of.
DType dtype_named_by(nb::handle object, const char* name);

// To be called once, when the module is loaded.
void import_numpy();

}  // namespace evenorm::python
