// evenorm: layer norm and RMS norm on the CPU, and their gradients. The C++ API.
//
//   y = xhat * weight + bias,  xhat = (x - mean) / sqrt(var + eps)     layer norm
//   y = xhat * weight + bias,  xhat = x / sqrt(mean(x^2) + eps)        RMS norm
//
//   dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps),  g = dy * weight     RMS norm: without mean(g)
//   dweight = sum over rows of dy * xhat,  dbias = sum over rows of dy
//
// Shapes are in elements, strides too. Wrong arguments throw evenorm::Error before anything is written.
// What accuracy and which bits are promised: docs/numerics.md.
#pragma once

#include <cstddef>
#include <cstdint>
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

// The one exception type: wrong arguments. what() names the argument, what it has and what it should have.
class EVENORM_API Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Storage of one bfloat16 (8 exponent bits, 7 fraction bits) and one IEEE binary16; bits only, no arithmetic.
struct bfloat16 {
  std::uint16_t bits;
};
struct float16 {
  std::uint16_t bits;
};

enum class DType : std::uint8_t { f64, f32, bf16, f16, i8 };  // i8: of quantised outputs alone

EVENORM_API std::string_view name(DType dtype) noexcept;  // empty for a value that is none of these
EVENORM_API std::size_t size_of(DType dtype) noexcept;    // bytes of one element; 0 for such a value

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

// A tensor in the caller's memory. Shape and strides are borrowed for the time of the call that takes the view.
// data: the element with all indices 0, at any address, a multiple of its size or not; nullptr means "absent" where
// that is allowed. strides: one per axis, in elements; empty means C-contiguous. Strides of axes of size 1, and all
// strides of a tensor without elements, are ignored. Types of parameters and statistics are free of those of x and y
// (statistics: f64 or f32).
struct ConstTensor {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::span<const std::int64_t> shape{};
  std::span<const std::int64_t> strides{};
};

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::span<const std::int64_t> shape{};
  std::span<const std::int64_t> strides{};
};

enum class Kind : std::uint8_t { layer, rms };

// How work is shared out. parallel_for calls task(argument, i) once for each i in [0, tasks), in any order, on any
// threads, and returns when all have returned. task does not throw, and parallel_for must not: what it throws ends the
// program (std::terminate). threads: how many can run at once, at least 1.
struct Executor {
  std::size_t threads = 1;
  void* context = nullptr;
  void (*parallel_for)(void* context, std::size_t tasks, void (*task)(void* argument, std::size_t i) noexcept,
                       void* argument) = nullptr;
};

// The library's own pool, started at the first parallel use; `threads` tasks at most run at once; 0 means one per
// processor of this process. In a child of fork(), and where no threads can be started, the work is done serially; the
// bits are the same by contract. The pool's threads leave the process's signals to the caller's.
EVENORM_API Executor pool_executor(std::size_t threads);

// One forward pass. The normalised axes are told in one of two ways:
//   normalized_shape  the sizes of the trailing axes that are normalised together, or
//   axes              the numbers of any axes of x, in any order; negative ones count from the end
// A row is what lies along the normalised axes, in x's order of axes, at one place of the other axes.
//   x, y          of one shape, any two of the four types; y may be x (same address, type, strides)
//   weight, bias  of the normalised axes' shape; absent: 1 and 0. zero_centered: 1 + weight takes weight's place
//   mean, rstd    of the other axes' shape, f64 or f32; written where present (RMS norm has no mean)
//   eps           finite and >= 0
// Strides are free: zero and negative ones too for inputs; the elements of an output lie apart, and, sorted by stride,
// each axis steps over all that is inside it. Outputs that may overlap anything else are refused; slices interleaved
// with equal strides are decided exactly.
// Arithmetic is f64 where any of x, y, weight, bias is, f32 otherwise; statistics are always accumulated wider.
//
// What may be done in the same pass, each with the bits of the steps one by one:
//   residual      of x's shape, any type: s = fma(residual_scale, residual, x), rounded to x's type (the arithmetic is
//                 f64 where x or residual is), is normalised in x's place; residual_scale is finite in that arithmetic
//   sum           of x's shape and type: s is written to it; may be x or residual (same address, type, strides). y may
//                 then be either too, but not both
//   y2            of y's shape: x normalised with weight2 and bias2 instead, in one look at x; touches nothing else
//   y of type i8  quantised: y, before any rounding, times 127 / m, to the nearest integer (even), with m the largest
//                 magnitude of its row; m / 127 is written to scale, f32, of the other axes' shape. A row of zeros has
//                 scale 0, one that is not finite scale NaN, and both have y = 0. Or, with given_scale > 0, the same
//                 for all rows: y times 1 / given_scale, to the nearest integer, no more than 127 in magnitude, NaN to
//                 0. Not together with y2. All factors and scales are f32; where m < 3.73e-37, 127 / m is not, and y is
//                 multiplied by the largest f32, so y times scale is then too small
// With residual or y of type i8 the elements of each row lie side by side in all tensors of x's shape.
struct Forward {
  Kind kind = Kind::layer;
  ConstTensor x{};
  Tensor y{};
  std::span<const std::int64_t> normalized_shape{};
  std::span<const std::int64_t> axes{};
  ConstTensor weight{};
  ConstTensor bias{};
  Tensor mean{};
  Tensor rstd{};
  double eps = 1e-5;
  bool zero_centered = false;
  ConstTensor residual{};
  double residual_scale = 1;
  Tensor sum{};
  ConstTensor weight2{};
  ConstTensor bias2{};
  Tensor y2{};
  Tensor scale{};
  double given_scale = 0;  // 0: scale is found row by row; else a normal f32
};

// The addresses of one run of a plan; which of them are null must be as in the Forward that the plan was made from.
struct Buffers {
  const void* x = nullptr;
  void* y = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* mean = nullptr;
  void* rstd = nullptr;
  const void* residual = nullptr;
  void* sum = nullptr;
  const void* weight2 = nullptr;
  const void* bias2 = nullptr;
  void* y2 = nullptr;
  void* scale = nullptr;
};

// A validated forward pass: checked once, run as often as wanted, from several threads at once if their outputs differ.
class EVENORM_API Plan {
 public:
  explicit Plan(const Forward& forward);  // throws Error
  Plan(const Plan&);
  Plan& operator=(const Plan&);
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  // All throw Error where the plan was moved from.
  void run() const;  // the addresses given at construction
  void run(const Executor& executor) const;
  void run(const Buffers& buffers) const;  // throws Error where buffers overlap
  void run(const Buffers& buffers, const Executor& executor) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Validate and run once; on the calling thread, or shared out over `executor`. Allocates nothing, unless a tensor has
// more than 4 axes that cannot be merged with a neighbour. Throws Error.
EVENORM_API void run(const Forward& forward);
EVENORM_API void run(const Forward& forward, const Executor& executor);

// One backward pass: from dy, the gradient of y, to the gradients of x, weight and bias, any of them (at least one).
// The normalised axes are told as in Forward.
//   x, dy          of one shape, each of any type
//   dx             of x's shape; may be dy, dsum or x (same address, type, strides)
//   weight         of the normalised axes' shape; absent: 1. zero_centered: 1 + weight takes weight's place
//   mean, rstd     f64, of the other axes' shape: what the forward pass wrote for these x and eps, or absent and found
//                  anew, with the same bits. Both for layer norm, rstd alone for RMS norm. Not looked at in f64
//                  arithmetic
//   dweight, dbias of the normalised axes' shape, each of any type, rounded once from sums that are kept wider.
//                  accumulate: added to what they hold
//   dsum           of x's shape, any type: a gradient that reaches x from elsewhere. It is added to dx before dx is
//                  rounded. If x is Forward's sum, dsum is the gradient of that sum, and dx times residual_scale is
//                  also the gradient of the residual. If Forward has a y2, dsum is the dx of the second norm
// Strides and overlap: as in Forward. Arithmetic is f64 where any of x, dy, dx, weight, dsum is, f32 otherwise.
struct Backward {
  Kind kind = Kind::layer;
  ConstTensor x{};
  ConstTensor dy{};
  std::span<const std::int64_t> normalized_shape{};
  std::span<const std::int64_t> axes{};
  ConstTensor weight{};
  ConstTensor mean{};
  ConstTensor rstd{};
  Tensor dx{};
  Tensor dweight{};
  Tensor dbias{};
  double eps = 1e-5;
  bool zero_centered = false;
  bool accumulate = false;
  ConstTensor dsum{};
};

// The bytes of scratch that run() wants: a function of shapes and types alone, at most max(256 KiB, 1/8 of x's
// elements); 0 where no gradient of a parameter is asked for. At a multiple of 64 bytes it is fastest. Throws Error as
// run() does, but for what concerns buffers.
EVENORM_API std::size_t scratch_bytes(const Backward& backward);

// Validate and run once, on the calling thread or shared out over `executor`. scratch: at least scratch_bytes(), at any
// address, apart from all tensors; its contents are of no use afterwards. Without it, it is allocated
// (std::bad_alloc). Throws Error.
EVENORM_API void run(const Backward& backward);
EVENORM_API void run(const Backward& backward, const Executor& executor);
EVENORM_API void run(const Backward& backward, std::span<std::byte> scratch, const Executor& executor);

// The addresses of one run of a backward plan; which of them are null must be as in the Backward that it was made from.
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

// A validated backward pass: checked once, run as often as wanted, from several threads at once if their outputs and
// scratch differ. Allocates nothing when it runs, but as run(Forward) does.
class EVENORM_API BackwardPlan {
 public:
  explicit BackwardPlan(const Backward& backward);  // throws Error
  BackwardPlan(const BackwardPlan&);
  BackwardPlan& operator=(const BackwardPlan&);
  BackwardPlan(BackwardPlan&&) noexcept;
  BackwardPlan& operator=(BackwardPlan&&) noexcept;
  ~BackwardPlan();

  // All throw Error where the plan was moved from.
  std::size_t scratch_bytes() const;
  // scratch: at least scratch_bytes(), at any address, apart from all tensors; at the addresses given at construction,
  // or at others. Throws Error where scratch is too small, or where buffers overlap.
  void run(std::span<std::byte> scratch, const Executor& executor = {}) const;
  void run(const BackwardBuffers& buffers, std::span<std::byte> scratch, const Executor& executor = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The plain form: x and y hold x.size() / cols contiguous rows of `cols` elements; weight and bias are empty or of
// `cols` elements; mean and rstd are empty or one f64 per row. y may be x itself.
template <class T>
struct RowOptions {
  std::span<const T> weight{};
  std::span<const T> bias{};
  double eps = 1e-5;
  bool zero_centered = false;
  std::span<double> mean{};
  std::span<double> rstd{};
  const Executor* executor = nullptr;
};

namespace detail {

struct RowSpans {
  Kind kind;
  DType dtype;
  const void* x;
  std::size_t x_size;
  void* y;
  std::size_t y_size;
  std::size_t cols;
  std::span<const std::byte> weight, bias;  // in bytes
  double eps;
  bool zero_centered;
  std::span<double> mean, rstd;
  const Executor* executor;
};
EVENORM_API void run_rows(const RowSpans& rows);

template <class T>
RowSpans row_spans(Kind kind, std::span<const T> x, std::span<T> y, std::size_t cols, const RowOptions<T>& options) {
  return {kind,
          dtype_of<T>,
          x.data(),
          x.size(),
          y.data(),
          y.size(),
          cols,
          std::as_bytes(options.weight),
          std::as_bytes(options.bias),
          options.eps,
          options.zero_centered,
          options.mean,
          options.rstd,
          options.executor};
}

}  // namespace detail

// T: double, float, evenorm::bfloat16 or evenorm::float16.
template <class T>
void layer_norm(std::span<const T> x, std::span<T> y, std::size_t cols,
                const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_rows(detail::row_spans<T>(Kind::layer, x, y, cols, options));
}
template <class T>
void rms_norm(std::span<const T> x, std::span<T> y, std::size_t cols,
              const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_rows(detail::row_spans<T>(Kind::rms, x, y, cols, options));
}

// The plain form of the backward pass: dy, x and dx hold x.size() / cols contiguous rows of `cols` elements; dx,
// dweight and dbias may be empty, but not all; weight, dweight and dbias are empty or of `cols` elements; mean and rstd
// are empty or one f64 per row, as the forward pass wrote them. dx may be dy or x itself.
template <class T>
struct GradientOptions {
  std::span<const T> weight{};
  std::span<T> dweight{};
  std::span<T> dbias{};
  double eps = 1e-5;
  bool zero_centered = false;
  bool accumulate = false;
  std::span<const double> mean{};
  std::span<const double> rstd{};
  const Executor* executor = nullptr;
};

namespace detail {

struct GradientSpans {
  Kind kind;
  DType dtype;
  std::span<const std::byte> dy, x;
  std::span<std::byte> dx;
  std::size_t cols;
  std::span<const std::byte> weight;
  std::span<std::byte> dweight, dbias;
  double eps;
  bool zero_centered, accumulate;
  std::span<const double> mean, rstd;
  const Executor* executor;
};
EVENORM_API void run_gradients(const GradientSpans& rows);

template <class T>
GradientSpans gradient_spans(Kind kind, std::span<const T> dy, std::span<const T> x, std::span<T> dx, std::size_t cols,
                             const GradientOptions<T>& options) {
  return {kind,
          dtype_of<T>,
          std::as_bytes(dy),
          std::as_bytes(x),
          std::as_writable_bytes(dx),
          cols,
          std::as_bytes(options.weight),
          std::as_writable_bytes(options.dweight),
          std::as_writable_bytes(options.dbias),
          options.eps,
          options.zero_centered,
          options.accumulate,
          options.mean,
          options.rstd,
          options.executor};
}

}  // namespace detail

template <class T>
void layer_norm_backward(std::span<const T> dy, std::span<const T> x, std::span<T> dx, std::size_t cols,
                         const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_gradients(detail::gradient_spans<T>(Kind::layer, dy, x, dx, cols, options));
}
template <class T>
void rms_norm_backward(std::span<const T> dy, std::span<const T> x, std::span<T> dx, std::size_t cols,
                       const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_gradients(detail::gradient_spans<T>(Kind::rms, dy, x, dx, cols, options));
}

// SIMD targets by name, best first: "avx3" (AVX-512), "avx2", "neon", "portable".
// The environment variable EVENORM_TARGET forces one; an unknown or unsupported name is an Error at first use.
EVENORM_API std::vector<std::string> compiled_targets();
EVENORM_API std::vector<std::string> supported_targets();  // those that this CPU can run
EVENORM_API std::string target();                          // the one in use
EVENORM_API std::string_view version() noexcept;           // "major.minor.patch"
EVENORM_API int numerics_revision() noexcept;              // versions of one revision give the same bits

}  // namespace evenorm
