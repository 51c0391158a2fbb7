// What all norms have in common: which axes, which eps, how work is run. Arguments come as Python's objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "view.hpp"
#include "words.hpp"

namespace evenorm::python {

// The normalised axes as the caller told them: by normalized_shape or by axis.
class Split {
 public:
  Split(nb::handle normalized_shape, nb::handle axis);

  std::span<const std::int64_t> normalized_shape() const {
    return by_axis_ ? std::span<const std::int64_t>() : told_.span();
  }
  std::span<const std::int64_t> axes() const { return by_axis_ ? told_.span() : std::span<const std::int64_t>(); }
  // The sizes of x's normalised axes, and of the others. Of what names no axes of x, anything: the library refuses it.
  Integers inner(std::span<const std::int64_t> shape) const { return sizes(shape, true); }
  Integers outer(std::span<const std::int64_t> shape) const { return sizes(shape, false); }

 private:
  Integers sizes(std::span<const std::int64_t> shape, bool normalized) const;

  Integers told_;
  bool by_axis_;
};

inline Kind kind_of_norm(bool rms) { return rms ? Kind::rms : Kind::layer; }
double number_of(nb::handle object, const char* name);
bool truth_of(nb::handle object);
// None is RMS norm's alone: float32's epsilon, float64's for x of float64, as PyTorch's rms_norm has it.
double eps_of(nb::handle object, bool rms, DType x);

// A parameter that is a list of numbers has the type of the arithmetic.
inline DType arithmetic_of(const View& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void load_required(View& view, nb::handle object, const char* name);
// Of an optional output: None is a new array of `shape`.
void load_or_allocate(View& view, nb::handle object, const char* name, std::span<const std::int64_t> shape, DType dtype,
                      const View* like = nullptr);
// A floating-point output: those of the library's types that are quantised are refused.
void check_floating(const View& view, const char* name);
// The entries of a tuple of `count` outputs; all None where it is None.
void unpack(nb::handle object, const char* what, std::span<nb::object> outputs);

// Results, to type checkers of whatever type it takes.
inline nb::any as_any(nb::object object) { return nb::steal<nb::any>(object.release()); }
template <class... Objects>
nb::any tuple_of(const Objects&... objects) {
  return as_any(nb::make_tuple(objects...));
}

void set_threads(nb::handle count);
std::size_t threads();

// Runs without the GIL where that is worth it, and says what is wrong in Python's words: the plain output is `out`,
// not y, and axes are told by `axis`.
void run(const Forward& forward, std::size_t elements, bool one_output);
void run(const Backward& backward, std::size_t elements);
void run_steps(const std::function<void(const Executor&)>& work, std::size_t elements);

}  // namespace evenorm::python
