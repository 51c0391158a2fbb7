// Arguments that all norms share (axes, eps, outputs), and how a pass runs.
#include "work.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>

#include "torch/conditions.hpp"

namespace evenorm::python {
namespace {

std::atomic<std::size_t> thread_count{1};

// Up to this many elements, releasing the GIL costs more than other threads gain.
constexpr std::size_t kWithGil = 2048;

constexpr const char* kIntegers = ", but it should be an integer or a sequence of integers";

std::int64_t integer_of(nb::handle object, const char* name, const char* expected) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    fail_type(std::string(name) + " is " + kind_of(object) + expected);
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) {
    fail_value(std::string(name) + " has an integer of more than 64 bits, but it should be within -2**63 .. 2**63 - 1");
  }
  return value;
}

bool is_integer(nb::handle object) {
  if (PyLong_Check(object.ptr())) return true;
  if (!PyIndex_Check(object.ptr())) return false;
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  PyErr_Clear();  // arrays of one axis have __index__ too, but it fails
  return index.is_valid();
}

// True for ordered collections that may hold integers. Bytes would qualify, but passing them is a mistake.
bool is_sequence(nb::handle object) {
  return PySequence_Check(object.ptr()) != 0 && !PyUnicode_Check(object.ptr()) && !PyBytes_Check(object.ptr()) &&
         !PyByteArray_Check(object.ptr()) && !PyMemoryView_Check(object.ptr());
}

Integers integers_of(nb::handle object, const char* name) {
  Integers result;
  if (is_integer(object)) {
    result.add(integer_of(object, name, kIntegers));
    return result;
  }
  const nb::object sequence = nb::steal(is_sequence(object) ? PySequence_Tuple(object.ptr()) : nullptr);
  if (!sequence.is_valid()) {
    PyErr_Clear();
    fail_type(std::string(name) + " is " + kind_of(object) + kIntegers);
  }
  const auto count = static_cast<std::size_t>(PyTuple_Size(sequence.ptr()));
  if (count > kMaxRank) {
    fail_value(std::string(name) + " has " + std::to_string(count) + " numbers, but at most 64 axes are supported");
  }
  for (std::size_t i = 0; i < count; ++i) {
    result.add(integer_of(PyTuple_GetItem(sequence.ptr(), static_cast<Py_ssize_t>(i)), name, kIntegers));
  }
  return result;
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

std::string in_python_words(std::string text, bool one_output) {
  if (one_output && text.starts_with("y ")) text.replace(0, 1, "out");
  if (text.starts_with("axes is")) text.replace(0, 4, "axis");
  if (text.starts_with("given_scale")) text.replace(0, 11, "scale");
  replace(text, "it or axes should", "it or axis should");
  return text;
}

// Calls work(executor).
template <class Work>
void run_work(const Work& work, std::size_t elements, bool one_output) {
  try {
    const std::size_t count = threads();
    const Executor executor = count == 1 ? Executor{} : pool_executor(count);
    std::optional<nb::gil_scoped_release> released;
    if (elements > kWithGil) released.emplace();
    work(executor);
  } catch (const Error& error) {
    fail_value(in_python_words(error.what(), one_output));
  }
}

}  // namespace

Split::Split(nb::handle normalized_shape, nb::handle axis) : by_axis_(!axis.is_none()) {
  if (normalized_shape.is_none() != by_axis_) {
    fail_type(by_axis_ ? "normalized_shape and axis are given, but only one of them should be"
                       : "normalized_shape or axis is missing: one of them should be given");
  }
  given_ = by_axis_ ? integers_of(axis, "axis") : integers_of(normalized_shape, "normalized_shape");
}

Integers Split::sizes(std::span<const std::int64_t> shape, bool normalized) const {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const std::int64_t first = rank - static_cast<std::int64_t>(given_.count);
  Integers result;
  for (std::int64_t i = 0; i < rank; ++i) {
    const auto given = given_.span();
    const bool is_normalized =
        by_axis_ ? std::any_of(given.begin(), given.end(), [&](std::int64_t a) { return a == i || a == i - rank; })
                 : i >= first;
    if (is_normalized == normalized) result.add(shape[static_cast<std::size_t>(i)]);
  }
  return result;
}

double number_of(nb::handle object, const char* name) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    const bool is_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (is_large) fail_value(std::string(name) + " is beyond what float64 holds, but it should be finite");
    fail_type(std::string(name) + " is " + kind_of(object) + ", but it should be a number");
  }
  return value;
}

bool truth_of(nb::handle object) {
  const int truth = PyObject_IsTrue(object.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

double eps_of(nb::handle object, bool rms, DType x) {
  if (!object.is_none() || !rms) return number_of(object, "eps");
  return torch_binding::default_eps(x);
}

void load_required(View& view, nb::handle object, const char* name) {
  if (object.is_none()) fail_kind(name, object);
  view.load(object, name);
}

void load_or_allocate(View& view, nb::handle object, const char* name, std::span<const std::int64_t> shape, DType dtype,
                      const View* like) {
  object.is_none() ? view.allocate(shape, dtype, like) : view.load_output(object, name);
}

void check_floating(const View& view, const char* name) {
  if (view.dtype() == DType::i8) fail_dtype(name, "int8");
}

void unpack(nb::handle object, const char* what, std::span<nb::object> outputs) {
  for (nb::object& output : outputs) output = nb::none();
  if (object.is_none()) return;
  if (!PyTuple_Check(object.ptr()) || PyTuple_Size(object.ptr()) != static_cast<Py_ssize_t>(outputs.size())) {
    fail_type("out is " + kind_of(object) + ", but it should be a tuple " + what);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = nb::borrow(PyTuple_GetItem(object.ptr(), static_cast<Py_ssize_t>(i)));
  }
}

void set_threads(nb::handle count) {
  const std::int64_t value = integer_of(count, "n", ", but it should be an integer");
  if (value < 0) fail_value("n is " + std::to_string(value) + ", but it should be at least 0");
  thread_count.store(pool_executor(static_cast<std::size_t>(value)).threads, std::memory_order_relaxed);
}

std::size_t threads() { return thread_count.load(std::memory_order_relaxed); }

void run(const Forward& forward, std::size_t elements, bool one_output) {
  run_work([&](const Executor& executor) { evenorm::run(forward, executor); }, elements, one_output);
}
void run(const Backward& backward, std::size_t elements) {
  run_work([&](const Executor& executor) { evenorm::run(backward, executor); }, elements, false);
}

void run_steps(const std::function<void(const Executor&)>& work, std::size_t elements) {
  run_work(work, elements, false);
}

}  // namespace evenorm::python
