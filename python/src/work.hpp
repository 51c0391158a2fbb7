// Arguments that all norms share (axes, eps, outputs), and how a pass runs. Arguments are Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "view.hpp"
#include "words.hpp"

namespace evenorm::python {

// An argument of any type, None included: the operations check it, so that errors name it.
inline auto any(const char* name) { return nb::arg(name).none(); }

// The normalised axes as the caller gave them: by normalized_shape or by axis.
class Split {
 public:
  Split(nb::handle normalized_shape, nb::handle axis);

  std::span<const std::int64_t> normalized_shape() const {
    return by_axis_ ? std::span<const std::int64_t>() : given_.span();
  }
  std::span<const std::int64_t> axes() const { return by_axis_ ? given_.span() : std::span<const std::int64_t>(); }
  // The sizes of x's normalised axes, and of the others. Unspecified for axes that x lacks: the library refuses those.
  Integers inner(std::span<const std::int64_t> shape) const { return sizes(shape, true); }
  Integers outer(std::span<const std::int64_t> shape) const { return sizes(shape, false); }

 private:
  Integers sizes(std::span<const std::int64_t> shape, bool normalized) const;

  Integers given_;
  bool by_axis_;
};

inline Kind kind_of_norm(bool rms) { return rms ? Kind::rms : Kind::layer; }
double number_of(nb::handle object, const char* name);
bool truth_of(nb::handle object);
// None is allowed for RMS norm only: float64's epsilon if x is float64, else float32's, as in PyTorch's rms_norm.
double eps_of(nb::handle object, bool rms, DType x);

// The type for a parameter given as a list of numbers.
inline DType arithmetic_of(const View& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void load_required(View& view, nb::handle object, const char* name);
// Views an optional output; None creates an array of `shape`.
void load_or_allocate(View& view, nb::handle object, const char* name, std::span<const std::int64_t> shape, DType dtype,
                      const View* like = nullptr);
// Throws if the output's type is int8.
void check_floating(const View& view, const char* name);
// Reads a tuple of outputs; all are None if `object` is None. `what` describes the tuple in errors.
void unpack(nb::handle object, const char* what, std::span<nb::object> outputs);

// Results typed as Any in the stub.
inline nb::any as_any(nb::object object) { return nb::steal<nb::any>(object.release()); }
template <class... Objects>
nb::any tuple_of(const Objects&... objects) {
  return as_any(nb::make_tuple(objects...));
}

void set_threads(nb::handle count);
std::size_t threads();

// Run a pass, without the GIL if it is large enough. The library's errors become ValueErrors with Python's argument
// names: `out` for the only output y, `axis` for axes.
void run(const Forward& forward, std::size_t elements, bool one_output);
void run(const Backward& backward, std::size_t elements);
void run_steps(const std::function<void(const Executor&)>& work, std::size_t elements);

}  // namespace evenorm::python
