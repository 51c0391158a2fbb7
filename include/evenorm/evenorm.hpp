// The C++ API of evenorm: layer norm, RMS norm and their gradients on the CPU.
//
//   y = xhat * weight + bias,  xhat = (x - mean) / sqrt(var + eps)     layer norm
//   y = xhat * weight + bias,  xhat = x / sqrt(mean(x^2) + eps)        RMS norm
//
//   dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps)     layer norm, with g = dy * weight
//   dx = (g - xhat mean(g xhat)) / sqrt(mean(x^2) + eps)         RMS norm
//   dweight = sum over rows of dy * xhat,  dbias = sum over rows of dy
//
// Shapes and strides are in elements. Wrong arguments throw evenorm::Error before anything is written.
// docs/numerics.md states the guarantees of accuracy and of reproducible bits.
#pragma once

#if __cplusplus < 202002L
#error "evenorm.hpp needs C++20: compile with -std=c++20"
#endif

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "evenorm/version.hpp"

#if defined(EVENORM_STATIC)
#define EVENORM_API
#else
#define EVENORM_API __attribute__((visibility("default")))
#endif

namespace evenorm {

// A wrong argument. what() names the argument, its value and what is required.
class EVENORM_API Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Storage of one bfloat16 (8 exponent bits, 7 fraction bits). It has no arithmetic.
struct bfloat16 {
  std::uint16_t bits;
};
// Storage of one IEEE binary16. It has no arithmetic.
struct float16 {
  std::uint16_t bits;
};

enum class DType : std::uint8_t { f64, f32, bf16, f16, i8 };  // i8 is for quantised outputs only

EVENORM_API std::string_view name(DType dtype) noexcept;  // "f64", ...; empty if the value is not a DType
EVENORM_API std::size_t size_of(DType dtype) noexcept;    // bytes of one element; 0 if the value is not a DType

namespace detail {
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<bfloat16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<float16> : std::integral_constant<DType, DType::f16> {};
template <>
struct DTypeOf<std::int8_t> : std::integral_constant<DType, DType::i8> {};
}  // namespace detail

template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<std::remove_cv_t<T>>::value;

// One number per axis: a shape, strides, or indices of axes. A braced list of at most 8 integers, such as {8, 768}, is
// copied. Anything else (an array, a vector, a span, or {pointer, count}) is not copied, and must outlive this object.
class Dims {
  struct Number {
    Number(std::integral auto n) : value(static_cast<std::int64_t>(n)) {}  // NOLINT(google-explicit-constructor)
    std::int64_t value;
  };

 public:
  Dims() {}  // NOLINT(modernize-use-equals-default): a default would clear list_
  Dims(std::initializer_list<Number> list) {
    if (list.size() > std::size(list_)) throw Error("a braced list of numbers has more than 8: use an array");
    for (const Number number : list) list_[size_++] = number.value;
  }
  Dims(const std::int64_t* numbers, std::size_t count) : data_(numbers), size_(count) {}
  template <std::convertible_to<std::span<const std::int64_t>> Range>
  Dims(const Range& range) : data_(std::data(range)), size_(std::size(range)) {}  // NOLINT(google-explicit-constructor)

  const std::int64_t* data() const noexcept { return data_ != nullptr ? data_ : list_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const std::int64_t* begin() const noexcept { return data(); }
  const std::int64_t* end() const noexcept { return data() + size_; }
  std::int64_t operator[](std::size_t axis) const noexcept { return data()[axis]; }

 private:
  const std::int64_t* data_ = nullptr;  // null: the numbers are in list_
  std::size_t size_ = 0;
  union {  // so that copies do not read what is not set
    std::int64_t list_[8];
  };
};

// An input tensor in the caller's memory. A call that is given this structure reads shape and strides, and keeps
// neither.
struct ConstTensor {
  // The element whose indices are all 0. It needs no alignment. nullptr means that the tensor is absent.
  const void* data = nullptr;
  DType dtype = DType::f32;
  Dims shape{};
  // One stride per axis, in elements. Empty means C-contiguous. Strides of axes of size 1 are ignored, and so are all
  // strides of a tensor without elements.
  Dims strides{};
};

// An output tensor, with the same fields. It converts to an input tensor of the same elements.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Dims shape{};
  Dims strides{};
  operator ConstTensor() const { return {data, dtype, shape, strides}; }  // NOLINT(google-explicit-constructor)
};

enum class Kind : std::uint8_t { layer, rms };

// Runs the tasks of a pass, on the caller's threads for example. The default runs them on the calling thread.
struct Executor {
  std::size_t threads = 1;  // how many tasks can run at once; at least 1
  void* context = nullptr;  // passed to parallel_for
  // Calls task(argument, i) once for each i in [0, tasks), in any order and on any threads. Returns when all calls have
  // returned. task does not throw. If parallel_for throws, the program ends (std::terminate).
  void (*parallel_for)(void* context, std::size_t tasks, void (*task)(void* argument, std::size_t i) noexcept,
                       void* argument) = nullptr;
};

// Returns an executor for the library's own thread pool, which runs at most `threads` tasks at once. 0 means one per
// processor that this process may use. The pool starts at the first parallel use. Its threads block all signals. In a
// child of fork(), or if no thread can be started, the calling thread does the work; the results are bit-identical.
EVENORM_API Executor pool_executor(std::size_t threads);

// One forward pass. A row is a set of elements of x that are normalised together: they differ only in their indices
// along the normalised axes. Give the normalised axes by either normalized_shape or axes.
//
// The arithmetic is f64 if x, y, weight or bias is f64, and f32 otherwise. Statistics are accumulated in a wider type.
//
// Strides may be negative; strides of inputs may also be 0. An output must not overlap itself: with its axes ordered by
// |stride|, each |stride| must exceed the largest offset that the axes with smaller strides can reach. An output must
// not overlap another tensor, except where a field below allows it. "The same tensor" means the same address, type and
// strides. Tensors whose address ranges intersect count as overlapping, unless they have equal strides and share no
// byte.
//
// residual and the fields after it add steps to the pass. The results are bit-identical to running the steps one by
// one. With a residual, or if y is i8, every tensor of x's shape must hold the elements of each row contiguously.
struct Forward {
  Kind kind = Kind::layer;
  ConstTensor x{};  // f64, f32, bf16 or f16
  Tensor y{};       // x's shape; f64, f32, bf16, f16, or i8 (see scale); may be the same tensor as x or residual

  Dims normalized_shape{};  // the sizes of the trailing axes, which are normalised
  Dims axes{};              // or the indices of the normalised axes; negative ones count from the end

  // gamma and beta, each f64, f32, bf16 or f16. Absent: 1 and 0. They have the shape of the normalised axes. Or they
  // have as many axes as x, each as long as x's or 1, and are broadcast to x. For example, for x of shape (N, T, C),
  // normalised over C, with a scale for each sample: (N, 1, C). Group norm of (N, C, H, W) in G groups is the norm of x
  // viewed as (N, G, C / G, H, W) over its last three axes, with a weight and bias viewed as (1, G, C / G, 1, 1).
  ConstTensor weight{};
  ConstTensor bias{};

  // Outputs, if present: each row's mean and 1 / sqrt(var + eps). They have the shape of the other axes and are f64 or
  // f32. RMS norm has no mean; its rstd is 1 / sqrt(mean(x^2) + eps).
  Tensor mean{};
  Tensor rstd{};

  double eps = 1e-5;           // finite and at least 0
  bool zero_centered = false;  // true: gamma is 1 + weight, which must then be present

  // If present, the pass normalises s = fma(residual_scale, residual, x) instead of x. residual has x's shape and is
  // f64, f32, bf16 or f16. s is computed in f64 if x or residual is f64, else in f32, and is rounded to x's type.
  // residual_scale must be finite in that arithmetic.
  ConstTensor residual{};
  double residual_scale = 1;
  // Output, if present: s. It has x's shape and type, and may be the same tensor as x or residual, but not as y.
  Tensor sum{};

  // If y is i8, it is quantised: each result, in the precision of the arithmetic, is multiplied by a factor and rounded
  // to the nearest integer (ties to even). Factors and scales are f32.
  //
  // If given_scale is 0, each row has its own scale. The factor is 127 / m, where m is the largest magnitude of the
  // row's results. m / 127 is written to scale, which is f32 and has the shape of the other axes. If a row of results
  // is all zeros, its scale and y are 0. If any of its results is not finite, its scale is NaN and its y is 0. If m
  // < 3.73e-37, 127 / m would overflow. The factor is then the largest f32, but scale is still m / 127, so y * scale is
  // smaller in magnitude than the result.
  Tensor scale{};
  // If given_scale is not 0, it must be a positive normal number in f32, and scale must be absent. The factor is then
  // 1 / given_scale for all rows. Results are clamped to [-127, 127], and NaN becomes 0.
  double given_scale = 0;
};

// The addresses of one run of a plan. x and y must not be null. Any other address must be null if and only if it is
// null in the plan's Forward.
struct Buffers {
  const void* x = nullptr;
  void* y = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* mean = nullptr;
  void* rstd = nullptr;
  const void* residual = nullptr;
  void* sum = nullptr;
  void* scale = nullptr;
};

// A forward pass that is validated once and can run many times. Copies share its state. Runs whose outputs do not
// overlap may be concurrent.
class EVENORM_API Plan {
 public:
  // Throws Error. x and y may have null addresses if every run has its own Buffers.
  explicit Plan(const Forward& forward);

  // Both throw Error if the plan was moved from.
  void run(const Executor& executor = {}) const;                          // uses the addresses given to the constructor
  void run(const Buffers& buffers, const Executor& executor = {}) const;  // throws Error if buffers overlap

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// Validates a forward pass and runs it once, on the calling thread or over `executor`. Allocates memory only if a
// tensor has more than 4 axes after neighbouring axes are merged where their strides allow it. Throws Error.
EVENORM_API void run(const Forward& forward, const Executor& executor = {});

// One backward pass: computes the gradients of x, weight and bias from dy, the gradient of y. At least one of dx,
// dweight and dbias must be present. Each tensor may be f64, f32, bf16 or f16, except mean and rstd.
//
// The arithmetic is f64 if x, dy, dx, weight or dsum is f64, and f32 otherwise. The rules for strides and overlap, and
// for the normalised axes, are those of Forward.
struct Backward {
  Kind kind = Kind::layer;
  ConstTensor x{};
  ConstTensor dy{};  // x's shape
  Dims normalized_shape{};
  Dims axes{};
  ConstTensor weight{};  // as in the forward pass; absent: 1

  // The statistics that a forward pass of the same arithmetic, with parameters of the same shapes, wrote for this x and
  // eps: mean and rstd for layer norm, only rstd for RMS norm. They must be f64. If they are absent, and for some rows
  // of f64 arithmetic, they are computed from x, with the same bits.
  ConstTensor mean{};
  ConstTensor rstd{};

  Tensor dx{};  // x's shape; may be the same tensor as dy, dsum or x

  // A shape that weight may have; dweight has weight's. They are summed over the rows, and the columns, that share an
  // element. Sums are kept in a wider type and rounded once. weight, dweight and dbias must vary along the same axes.
  // If they do not, run a pass for each gradient: dweight and dbias need no weight.
  Tensor dweight{};
  Tensor dbias{};

  double eps = 1e-5;           // as in the forward pass
  bool zero_centered = false;  // true: gamma is 1 + weight, which must then be present
  bool accumulate = false;     // true: adds to the contents of dweight and dbias

  // A further gradient to add to dx before dx is rounded; dx must be present. It has x's shape.
  //   If x is the output `sum` of a forward pass, and sum is also used elsewhere, pass the gradient from that use here.
  //   The gradient of the residual is then residual_scale * dx.
  //   If two norms have one x, run the backward pass of one first and pass its dx here.
  ConstTensor dsum{};
};

// Returns the bytes of scratch memory that run() needs. The size depends only on shapes and types. It is at most
// 256 KiB or 1/8 of the bytes of x's elements, whichever is more, and 64 bytes, and 0 if neither dweight nor dbias is
// present. If columns share elements of dweight or dbias, it may be 32 bytes for each column and 320 bytes instead.
// Throws Error as run() does, but does not check addresses and overlaps.
EVENORM_API std::size_t scratch_bytes(const Backward& backward);

// Validates a backward pass and runs it once, on the calling thread or over `executor`. scratch has at least
// scratch_bytes() bytes at any address, overlaps no tensor, and holds nothing useful afterwards. 64-byte alignment is
// fastest. Without scratch, run() allocates it and may throw std::bad_alloc. Throws Error.
EVENORM_API void run(const Backward& backward, const Executor& executor = {});
EVENORM_API void run(const Backward& backward, std::span<std::byte> scratch, const Executor& executor);

// The addresses of one run of a backward plan. x and dy must not be null. Any other address must be null if and only if
// it is null, or that of a dweight or dbias without elements, in the plan's Backward.
struct BackwardBuffers {
  const void* x = nullptr;
  const void* dy = nullptr;
  const void* weight = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  void* dx = nullptr;
  void* dweight = nullptr;
  void* dbias = nullptr;
  const void* dsum = nullptr;
};

// A backward pass that is validated once and can run many times. Runs whose outputs and scratch do not overlap may be
// concurrent. Only a run with buffers can allocate memory, and only if a tensor has more than 4 axes, counted as for
// run(Forward).
class EVENORM_API BackwardPlan {
 public:
  // Throws Error. x and dy may have null addresses if every run has its own BackwardBuffers.
  explicit BackwardPlan(const Backward& backward);

  // All throw Error if the plan was moved from.
  std::size_t scratch_bytes() const;
  // Uses the addresses given to the constructor, or `buffers`. scratch has at least scratch_bytes() bytes at any
  // address and overlaps no tensor. Throws Error if scratch is too small, or if buffers overlap.
  void run(std::span<std::byte> scratch, const Executor& executor = {}) const;
  void run(const BackwardBuffers& buffers, std::span<std::byte> scratch, const Executor& executor = {}) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// Options of layer_norm and rms_norm below.
template <class T>
struct RowOptions {
  std::span<const T> weight{};  // weight and bias: each empty or `cols` elements
  std::span<const T> bias{};
  double eps = 1e-5;
  bool zero_centered = false;
  std::span<double> mean{};  // outputs mean and rstd: each empty or one element per row
  std::span<double> rstd{};
  const Executor* executor = nullptr;
};

namespace detail {

// Makes tensors of the spans of one call.
class RowTensors {
 public:
  // Throws Error unless x_size elements are rows of `cols`.
  EVENORM_API RowTensors(std::size_t x_size, std::size_t cols);

  Dims normalized_shape() const { return {shape_[1]}; }
  // A tensor of x's shape. Throws Error if the span has another size.
  template <class T>
  auto matrix(const char* argument, std::span<T> elements) const {
    check_size(argument, elements.size());
    return View<T>{elements.data(), dtype_of<T>, shape_};
  }
  // A tensor of one axis; absent if the span is empty.
  template <class T>
  auto vector(std::span<T> v) const {
    return v.empty() ? View<T>{} : View<T>{v.data(), dtype_of<T>, {v.size()}};
  }

 private:
  template <class T>
  using View = std::conditional_t<std::is_const_v<T>, ConstTensor, Tensor>;

  EVENORM_API void check_size(const char* argument, std::size_t size) const;

  Dims shape_;
};

inline Executor executor_of(const Executor* executor) { return executor == nullptr ? Executor{} : *executor; }

template <class T>
Forward forward_of(Kind kind, std::span<const T> x, std::span<T> y, const RowOptions<T>& options, RowTensors rows) {
  return {.kind = kind,
          .x = rows.matrix("x", x),
          .y = rows.matrix("y", y),
          .normalized_shape = rows.normalized_shape(),
          .weight = rows.vector(options.weight),
          .bias = rows.vector(options.bias),
          .mean = rows.vector(options.mean),
          .rstd = rows.vector(options.rstd),
          .eps = options.eps,
          .zero_centered = options.zero_centered};
}
template <class T>
void run_rows(Kind kind, std::span<const T> x, std::span<T> y, std::size_t cols, const RowOptions<T>& options) {
  run(forward_of(kind, x, y, options, {x.size(), cols}), executor_of(options.executor));
}

}  // namespace detail

// Normalises x.size() / cols contiguous rows of `cols` elements. y has x's size and may be x itself. T is double,
// float, evenorm::bfloat16 or evenorm::float16. It is not deduced from a vector: write layer_norm<float>(x, y, cols).
// Throws Error.
template <class T>
void layer_norm(std::span<const T> x, std::span<T> y, std::size_t cols,
                const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_rows<T>(Kind::layer, x, y, cols, options);
}
template <class T>
void rms_norm(std::span<const T> x, std::span<T> y, std::size_t cols,
              const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_rows<T>(Kind::rms, x, y, cols, options);
}

// Options of layer_norm_backward and rms_norm_backward below.
template <class T>
struct GradientOptions {
  std::span<const T> weight{};  // weight, dweight and dbias: each empty or `cols` elements
  std::span<T> dweight{};
  std::span<T> dbias{};
  double eps = 1e-5;
  bool zero_centered = false;
  bool accumulate = false;         // true: adds to the contents of dweight and dbias
  std::span<const double> mean{};  // mean and rstd: each empty, or as the forward pass wrote it
  std::span<const double> rstd{};
  const Executor* executor = nullptr;
  std::span<const T> dsum{};  // empty, or a further gradient of x's size, which is added to dx: see Backward
};

namespace detail {

template <class T>
Backward backward_of(Kind kind, std::span<const T> dy, std::span<const T> x, std::span<T> dx,
                     const GradientOptions<T>& options, RowTensors rows) {
  return {.kind = kind,
          .x = rows.matrix("x", x),
          .dy = rows.matrix("dy", dy),
          .normalized_shape = rows.normalized_shape(),
          .weight = rows.vector(options.weight),
          .mean = rows.vector(options.mean),
          .rstd = rows.vector(options.rstd),
          .dx = dx.empty() ? Tensor{} : rows.matrix("dx", dx),
          .dweight = rows.vector(options.dweight),
          .dbias = rows.vector(options.dbias),
          .eps = options.eps,
          .zero_centered = options.zero_centered,
          .accumulate = options.accumulate,
          .dsum = options.dsum.empty() ? ConstTensor{} : rows.matrix("dsum", options.dsum)};
}
template <class T>
void run_gradients(Kind kind, std::span<const T> dy, std::span<const T> x, std::span<T> dx, std::size_t cols,
                   const GradientOptions<T>& options) {
  run(backward_of(kind, dy, x, dx, options, {x.size(), cols}), executor_of(options.executor));
}

}  // namespace detail

// Computes the gradients of x.size() / cols contiguous rows of `cols` elements. dy has x's size. dx has x's size or is
// empty. dx may be dy or x itself. At least one of dx, dweight and dbias must be given. Throws Error.
template <class T>
void layer_norm_backward(std::span<const T> dy, std::span<const T> x, std::span<T> dx, std::size_t cols,
                         const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_gradients<T>(Kind::layer, dy, x, dx, cols, options);
}
template <class T>
void rms_norm_backward(std::span<const T> dy, std::span<const T> x, std::span<T> dx, std::size_t cols,
                       const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_gradients<T>(Kind::rms, dy, x, dx, cols, options);
}

// SIMD targets have the names "avx3" (AVX-512), "avx2", "neon" and "portable". The environment variable EVENORM_TARGET
// selects one. If that is not a supported target, the first use of the library throws Error.
EVENORM_API std::vector<std::string> compiled_targets();   // best first
EVENORM_API std::vector<std::string> supported_targets();  // those that this CPU can run, best first
EVENORM_API std::string target();                          // the one in use

// These describe the library in use, which may be newer than this header.
EVENORM_API std::string_view version() noexcept;  // "major.minor.patch"
EVENORM_API int numerics_revision() noexcept;     // versions with the same revision give the same bits

}  // namespace evenorm
