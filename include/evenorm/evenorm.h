/* The C API of evenorm: layer norm, RMS norm and their gradients on the CPU, in C11.
 *
 *   y = xhat * weight + bias,  xhat = (x - mean) / sqrt(var + eps)     layer norm
 *   y = xhat * weight + bias,  xhat = x / sqrt(mean(x^2) + eps)        RMS norm
 *
 *   dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps)     layer norm, with g = dy * weight
 *   dx = (g - xhat mean(g xhat)) / sqrt(mean(x^2) + eps)         RMS norm
 *   dweight = sum over rows of dy * xhat,  dbias = sum over rows of dy
 *
 * Shapes and strides are in elements. Wrong arguments are refused before anything is written. The results are
 * bit-identical to those of the C++ API. docs/numerics.md states the guarantees of accuracy and of reproducible bits.
 */
#ifndef EVENORM_EVENORM_H_
#define EVENORM_EVENORM_H_

#include <stddef.h>
#include <stdint.h>

#include "evenorm/version.hpp" /* only macros: EVENORM_VERSION_MAJOR, ... */

#if defined(EVENORM_STATIC)
#define EVENORM_API
#else
#define EVENORM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- for all functions -----------------------------------------------------------------------------------------------
 * Threads: every function may be called from any thread at any time. Concurrent runs must not write the same memory.
 * Exceptions: no function throws.
 * Strings: a returned string lives as long as the library, except that of evenorm_last_error(). Do not free it.
 * Memory: creating an object allocates memory. Other functions allocate only where their comments say so.
 */

/* The result of a function that can fail. */
typedef int32_t evenorm_status;
enum {
  EVENORM_OK = 0,
  EVENORM_INVALID_ARGUMENT = 1, /* evenorm_last_error() names the argument, its value and what is required */
  EVENORM_OUT_OF_MEMORY = 2,
  EVENORM_INTERNAL = 3,            /* a bug in evenorm */
  EVENORM_COMMUNICATION_FAILED = 4 /* evenorm_sharded.h only: the caller's all_gather did not return 0 */
};

/* Returns the message of the last failure on the calling thread, or "" if there was none. A success does not change it.
 * The message is one line of at most 1,023 bytes. It is valid until the next failure on this thread, or the thread's
 * end. */
EVENORM_API const char* evenorm_last_error(void);

/* The type of a tensor's elements. bf16 has 8 exponent and 7 fraction bits. f16 is IEEE binary16. */
typedef int32_t evenorm_dtype;
enum {
  EVENORM_F64 = 0,
  EVENORM_F32 = 1,
  EVENORM_BF16 = 2,
  EVENORM_F16 = 3,
  EVENORM_I8 = 4 /* for quantised outputs only */
};

EVENORM_API const char* evenorm_dtype_name(evenorm_dtype dtype); /* "f64", ...; NULL if there is no such type */
EVENORM_API size_t evenorm_dtype_size(evenorm_dtype dtype);      /* bytes of one element; 0 if there is no such type */

typedef int32_t evenorm_kind;
enum { EVENORM_LAYER = 0, EVENORM_RMS = 1 };

/* The largest number of axes of a tensor. */
#define EVENORM_MAX_RANK 64

/* An input tensor in the caller's memory. A call reads shape and strides, and keeps neither. This structure and
 * evenorm_tensor never grow, because other structures contain them. */
typedef struct evenorm_const_tensor {
  /* The element whose indices are all 0. It needs no alignment. NULL means that the tensor is absent. */
  const void* data;
  evenorm_dtype dtype;
  int32_t rank;         /* the number of axes */
  const int64_t* shape; /* `rank` sizes; may be NULL if rank is 0 */
  /* `rank` strides, in elements, not in bytes. NULL means C-contiguous. Strides of axes of size 1 are ignored, and so
   * are all strides of a tensor without elements. */
  const int64_t* strides;
} evenorm_const_tensor;

/* An output tensor, with the same fields. */
typedef struct evenorm_tensor {
  void* data;
  evenorm_dtype dtype;
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides;
} evenorm_tensor;

/* struct_size of the structures below is the caller's sizeof. Any other size than this version's is an invalid
 * argument, so that a later version may add fields at the end. */

/* Runs the tasks of a pass, on the caller's threads for example. */
typedef struct evenorm_executor {
  size_t struct_size;
  size_t threads; /* how many tasks can run at once; 0 or 1: the calling thread runs them */
  void* context;  /* passed to parallel_for */
  /* Calls task(argument, i) once for each i in [0, tasks), in any order and on any threads. Returns when all calls have
   * returned. It must not throw or unwind. NULL: the calling thread runs the tasks. */
  void (*parallel_for)(void* context, size_t tasks, void (*task)(void* argument, size_t i), void* argument);
} evenorm_executor;

/* Sets *out to an executor for the library's own thread pool, which runs at most `threads` tasks at once. 0 means one
 * per processor that this process may use. Set out->struct_size before the call. *out may be copied and needs no
 * release. The pool starts at the first parallel use and lives until the process ends, so the library stays in memory
 * after dlclose(). Its threads block all signals. In a child of fork(), or if no thread can be started, the calling
 * thread does the work; the results are bit-identical. */
EVENORM_API evenorm_status evenorm_pool_executor(size_t threads, evenorm_executor* out);

/* One forward pass. A row is a set of elements of x that are normalised together: they differ only in their indices
 * along the normalised axes. Give the normalised axes by either normalized_shape or axes.
 *
 * The arithmetic is f64 if x, y, weight or bias is f64, and f32 otherwise. Statistics are accumulated in a wider type.
 *
 * Strides may be negative; strides of inputs may also be 0. An output must not overlap itself: with its axes ordered by
 * |stride|, each |stride| must exceed the largest offset that the axes with smaller strides can reach. An output must
 * not overlap another tensor, except where a field below allows it. "The same tensor" means the same address, type and
 * strides. Tensors whose address ranges intersect count as overlapping, unless they have equal strides and share no
 * byte.
 *
 * residual and the fields after it add steps to the pass. The results are bit-identical to running the steps one by
 * one. With a residual, or if y is i8, every tensor of x's shape must hold the elements of each row contiguously. */
typedef struct evenorm_forward {
  size_t struct_size;
  evenorm_kind kind;
  int32_t zero_centered;  /* not 0: gamma is 1 + weight, which must then be present */
  double eps;             /* finite and at least 0 */
  evenorm_const_tensor x; /* f64, f32, bf16 or f16 */
  evenorm_tensor y; /* x's shape; f64, f32, bf16, f16, or i8 (see scale); may be the same tensor as x or residual */

  /* The sizes of the trailing axes, which are normalised. If the count is 0, axes is used instead. */
  const int64_t* normalized_shape;
  size_t normalized_shape_count;
  /* The indices of the normalised axes, in any order; negative ones count from the end. */
  const int64_t* axes;
  size_t axes_count;

  /* gamma and beta, each f64, f32, bf16 or f16. Absent: 1 and 0. They have the shape of the normalised axes. Or they
   * have as many axes as x, each as long as x's or 1, and are broadcast to x. For example, for x of shape (N, T, C),
   * normalised over C, with a scale for each sample: (N, 1, C). Group norm of (N, C, H, W) in G groups is the norm of x
   * viewed as (N, G, C / G, H, W) over its last three axes, with a weight and bias viewed as (1, G, C / G, 1, 1). */
  evenorm_const_tensor weight;
  evenorm_const_tensor bias;

  /* Outputs, if present: each row's mean and 1 / sqrt(var + eps). They have the shape of the other axes and are f64 or
   * f32. RMS norm has no mean; its rstd is 1 / sqrt(mean(x^2) + eps). */
  evenorm_tensor mean;
  evenorm_tensor rstd;

  /* If present, the pass normalises s = fma(residual_scale, residual, x) instead of x. residual has x's shape and is
   * f64, f32, bf16 or f16. s is computed in f64 if x or residual is f64, else in f32, and is rounded to x's type.
   * residual_scale must be finite in that arithmetic. */
  evenorm_const_tensor residual;
  double residual_scale;
  /* Output, if present: s. It has x's shape and type, and may be the same tensor as x or residual, but not as y. */
  evenorm_tensor sum;

  /* If y is i8, it is quantised: each result, in the precision of the arithmetic, is multiplied by a factor and rounded
   * to the nearest integer (ties to even). Factors and scales are f32.
   *
   * If given_scale is 0, each row has its own scale. The factor is 127 / m, where m is the largest magnitude of the
   * row's results. m / 127 is written to scale, which is f32 and has the shape of the other axes. If a row of results
   * is all zeros, its scale and y are 0. If any of its results is not finite, its scale is NaN and its y is 0. If m
   * < 3.73e-37, 127 / m would overflow. The factor is then the largest f32, but scale is still m / 127, so y * scale is
   * smaller in magnitude than the result. */
  evenorm_tensor scale;
  /* If given_scale is not 0, it must be a positive normal number in f32, and scale must be absent. The factor is then
   * 1 / given_scale for all rows. Results are clamped to [-127, 127], and NaN becomes 0. */
  double given_scale;
} evenorm_forward;

/* Sets the first struct_size bytes of *forward to defaults: layer norm, eps 1e-5, residual_scale 1, no tensors. */
EVENORM_API evenorm_status evenorm_forward_init(evenorm_forward* forward, size_t struct_size);

/* evenorm_forward forward = evenorm_forward_defaults(); */
static inline evenorm_forward evenorm_forward_defaults(void) {
  evenorm_forward forward;
  forward.struct_size = sizeof forward; /* if the library does not support this size, later calls fail */
  (void)evenorm_forward_init(&forward, sizeof forward);
  return forward;
}

/* Validates a forward pass and runs it once, over `executor` or, if that is NULL, on the calling thread. Allocates
 * memory only if a tensor has more than 4 axes after neighbouring axes are merged where their strides allow it. */
EVENORM_API evenorm_status evenorm_run(const evenorm_forward* forward, const evenorm_executor* executor);

/* --- a plan: a forward pass that is validated once and can run many times ------------------------------------------*/

typedef struct evenorm_plan evenorm_plan;

/* The addresses of one run of a plan. x and y must not be NULL. Any other address must be NULL if and only if it is
 * NULL in the plan's forward pass. */
typedef struct evenorm_buffers {
  size_t struct_size;
  const void* x;
  void* y;
  const void* weight;
  const void* bias;
  void* mean;
  void* rstd;
  const void* residual;
  void* sum;
  void* scale;
} evenorm_buffers;

/* Sets *out to a new plan, or to NULL on failure. The caller destroys the plan. The plan copies *forward, with shapes,
 * strides and axes; only the tensors' memory must stay valid. x and y may be NULL if every run has buffers of its own.
 */
EVENORM_API evenorm_status evenorm_plan_create(const evenorm_forward* forward, evenorm_plan** out);
/* Run a plan at the addresses given at creation, or at those of *buffers. executor and allocations are as in
 * evenorm_run. Runs whose outputs do not overlap may be concurrent. */
EVENORM_API evenorm_status evenorm_plan_run(const evenorm_plan* plan, const evenorm_executor* executor);
EVENORM_API evenorm_status evenorm_plan_run_with(const evenorm_plan* plan, const evenorm_buffers* buffers,
                                                 const evenorm_executor* executor);
EVENORM_API void evenorm_plan_destroy(evenorm_plan* plan); /* NULL: does nothing */

/* --- gradients -----------------------------------------------------------------------------------------------------*/

/* One backward pass: computes the gradients of x, weight and bias from dy, the gradient of y. At least one of dx,
 * dweight and dbias must be present. Each tensor may be f64, f32, bf16 or f16, except mean and rstd.
 *
 * The arithmetic is f64 if x, dy, dx, weight or dsum is f64, and f32 otherwise. The rules for strides and overlap, and
 * for the normalised axes, are those of evenorm_forward. */
typedef struct evenorm_backward {
  size_t struct_size;
  evenorm_kind kind;
  int32_t zero_centered; /* not 0: gamma is 1 + weight, which must then be present */
  int32_t accumulate;    /* not 0: adds to the contents of dweight and dbias */
  double eps;            /* as in the forward pass */
  evenorm_const_tensor x;
  evenorm_const_tensor dy; /* x's shape */
  const int64_t* normalized_shape;
  size_t normalized_shape_count;
  const int64_t* axes;
  size_t axes_count;
  evenorm_const_tensor weight; /* as in the forward pass; absent: 1 */

  /* The statistics that a forward pass of the same arithmetic, with parameters of the same shapes, wrote for this x and
   * eps: mean and rstd for layer norm, only rstd for RMS norm. They must be f64. If they are absent, and for some rows
   * of f64 arithmetic, they are computed from x, with the same bits. */
  evenorm_const_tensor mean;
  evenorm_const_tensor rstd;

  evenorm_tensor dx; /* x's shape; may be the same tensor as dy, dsum or x */

  /* A shape that weight may have; dweight has weight's. They are summed over the rows, and the columns, that share an
   * element. Sums are kept in a wider type and rounded once. weight, dweight and dbias must vary along the same axes.
   * If they do not, run a pass for each gradient: dweight and dbias need no weight. */
  evenorm_tensor dweight;
  evenorm_tensor dbias;

  /* A further gradient to add to dx before dx is rounded; dx must be present. It has x's shape.
   *   If x is the output `sum` of a forward pass, and sum is also used elsewhere, pass the gradient from that use here.
   *   The gradient of the residual is then residual_scale * dx.
   *   If two norms have one x, run the backward pass of one first and pass its dx here. */
  evenorm_const_tensor dsum;
} evenorm_backward;

/* Sets the first struct_size bytes of *backward to defaults: layer norm, eps 1e-5, no tensors. */
EVENORM_API evenorm_status evenorm_backward_init(evenorm_backward* backward, size_t struct_size);

/* evenorm_backward backward = evenorm_backward_defaults(); */
static inline evenorm_backward evenorm_backward_defaults(void) {
  evenorm_backward backward;
  backward.struct_size = sizeof backward; /* if the library does not support this size, later calls fail */
  (void)evenorm_backward_init(&backward, sizeof backward);
  return backward;
}

/* Sets *out to the bytes of scratch memory that the pass needs, or to 0 on failure. The size depends only on shapes and
 * types. It is at most 256 KiB or 1/8 of the bytes of x's elements, whichever is more, and 64 bytes, and 0 if neither
 * dweight nor dbias is present. If columns share elements of dweight or dbias, it may be 32 bytes for each column and
 * 320 bytes instead. Fails as evenorm_run_backward does, but does not check addresses and overlaps. */
EVENORM_API evenorm_status evenorm_backward_scratch_bytes(const evenorm_backward* backward, size_t* out);

/* Validates a backward pass and runs it once, over `executor` or, if that is NULL, on the calling thread. scratch has
 * scratch_size bytes, at least evenorm_backward_scratch_bytes(), at any address. It overlaps no tensor and holds
 * nothing useful afterwards. 64-byte alignment is fastest. If scratch is NULL and scratch_size is 0, the function
 * allocates the scratch and may return EVENORM_OUT_OF_MEMORY. */
EVENORM_API evenorm_status evenorm_run_backward(const evenorm_backward* backward, void* scratch, size_t scratch_size,
                                                const evenorm_executor* executor);

/* A backward pass that is validated once and can run many times. */
typedef struct evenorm_backward_plan evenorm_backward_plan;

/* The addresses of one run of such a plan. x and dy must not be NULL. Any other address must be NULL if and only if it
 * is NULL, or that of a dweight or dbias without elements, in the plan's backward pass. */
typedef struct evenorm_backward_buffers {
  size_t struct_size;
  const void* x;
  const void* dy;
  const void* weight;
  const void* mean;
  const void* rstd;
  void* dx;
  void* dweight;
  void* dbias;
  const void* dsum;
} evenorm_backward_buffers;

/* Sets *out to a new plan, or to NULL on failure. The caller destroys the plan. The plan copies *backward, with shapes,
 * strides and axes; only the tensors' memory must stay valid. x and dy may be NULL if every run has buffers of its own.
 */
EVENORM_API evenorm_status evenorm_backward_plan_create(const evenorm_backward* backward, evenorm_backward_plan** out);
/* Sets *out to the bytes of scratch that each run needs, or to 0 on failure. */
EVENORM_API evenorm_status evenorm_backward_plan_scratch_bytes(const evenorm_backward_plan* plan, size_t* out);
/* Run a plan at the addresses given at creation, or at those of *buffers. executor is as in evenorm_run. scratch has
 * scratch_size bytes, at least as many as the plan needs, at any address, and overlaps no tensor. Only
 * evenorm_backward_plan_run_with can allocate memory, and only if a tensor has more than 4 axes, counted as for
 * evenorm_run. Runs whose outputs and scratch do not overlap may be concurrent. */
EVENORM_API evenorm_status evenorm_backward_plan_run(const evenorm_backward_plan* plan, void* scratch,
                                                     size_t scratch_size, const evenorm_executor* executor);
EVENORM_API evenorm_status evenorm_backward_plan_run_with(const evenorm_backward_plan* plan,
                                                          const evenorm_backward_buffers* buffers, void* scratch,
                                                          size_t scratch_size, const evenorm_executor* executor);
EVENORM_API void evenorm_backward_plan_destroy(evenorm_backward_plan* plan); /* NULL: does nothing */

/* --- contiguous rows -------------------------------------------------------------------------------------------------
 * Normalise `rows` contiguous rows of `cols` elements on the calling thread. weight and bias have `cols` elements, or
 * are NULL. y may be x. A uint16_t holds the bits of a bf16 or f16.
 */
EVENORM_API evenorm_status evenorm_layer_norm_f64(const double* x, double* y, size_t rows, size_t cols,
                                                  const double* weight, const double* bias, double eps);
EVENORM_API evenorm_status evenorm_layer_norm_f32(const float* x, float* y, size_t rows, size_t cols,
                                                  const float* weight, const float* bias, double eps);
EVENORM_API evenorm_status evenorm_layer_norm_bf16(const uint16_t* x, uint16_t* y, size_t rows, size_t cols,
                                                   const uint16_t* weight, const uint16_t* bias, double eps);
EVENORM_API evenorm_status evenorm_layer_norm_f16(const uint16_t* x, uint16_t* y, size_t rows, size_t cols,
                                                  const uint16_t* weight, const uint16_t* bias, double eps);
EVENORM_API evenorm_status evenorm_rms_norm_f64(const double* x, double* y, size_t rows, size_t cols,
                                                const double* weight, double eps);
EVENORM_API evenorm_status evenorm_rms_norm_f32(const float* x, float* y, size_t rows, size_t cols, const float* weight,
                                                double eps);
EVENORM_API evenorm_status evenorm_rms_norm_bf16(const uint16_t* x, uint16_t* y, size_t rows, size_t cols,
                                                 const uint16_t* weight, double eps);
EVENORM_API evenorm_status evenorm_rms_norm_f16(const uint16_t* x, uint16_t* y, size_t rows, size_t cols,
                                                const uint16_t* weight, double eps);

/* Compute the gradients of such rows. At least one of dx, dweight and dbias is not NULL. dx may be dy or x. These
 * functions allocate their scratch. */
EVENORM_API evenorm_status evenorm_layer_norm_backward_f64(const double* dy, const double* x, double* dx, size_t rows,
                                                           size_t cols, const double* weight, double* dweight,
                                                           double* dbias, double eps);
EVENORM_API evenorm_status evenorm_layer_norm_backward_f32(const float* dy, const float* x, float* dx, size_t rows,
                                                           size_t cols, const float* weight, float* dweight,
                                                           float* dbias, double eps);
EVENORM_API evenorm_status evenorm_layer_norm_backward_bf16(const uint16_t* dy, const uint16_t* x, uint16_t* dx,
                                                            size_t rows, size_t cols, const uint16_t* weight,
                                                            uint16_t* dweight, uint16_t* dbias, double eps);
EVENORM_API evenorm_status evenorm_layer_norm_backward_f16(const uint16_t* dy, const uint16_t* x, uint16_t* dx,
                                                           size_t rows, size_t cols, const uint16_t* weight,
                                                           uint16_t* dweight, uint16_t* dbias, double eps);
EVENORM_API evenorm_status evenorm_rms_norm_backward_f64(const double* dy, const double* x, double* dx, size_t rows,
                                                         size_t cols, const double* weight, double* dweight,
                                                         double eps);
EVENORM_API evenorm_status evenorm_rms_norm_backward_f32(const float* dy, const float* x, float* dx, size_t rows,
                                                         size_t cols, const float* weight, float* dweight, double eps);
EVENORM_API evenorm_status evenorm_rms_norm_backward_bf16(const uint16_t* dy, const uint16_t* x, uint16_t* dx,
                                                          size_t rows, size_t cols, const uint16_t* weight,
                                                          uint16_t* dweight, double eps);
EVENORM_API evenorm_status evenorm_rms_norm_backward_f16(const uint16_t* dy, const uint16_t* x, uint16_t* dx,
                                                         size_t rows, size_t cols, const uint16_t* weight,
                                                         uint16_t* dweight, double eps);

/* --- SIMD targets and versions ---------------------------------------------------------------------------------------
 * SIMD targets have the names "avx3" (AVX-512), "avx2", "neon" and "portable". The environment variable EVENORM_TARGET
 * selects one. If that is not a supported target, the first use of the library fails with EVENORM_INVALID_ARGUMENT.
 */
EVENORM_API const char* const* evenorm_compiled_targets(void);  /* best first; ends with NULL */
EVENORM_API const char* const* evenorm_supported_targets(void); /* those that this CPU can run, likewise */
EVENORM_API evenorm_status evenorm_target(const char** out);    /* sets *out to the one in use, or NULL on failure */

/* These describe the library in use, which may be newer than this header (EVENORM_VERSION_NUMBER). */
EVENORM_API const char* evenorm_version(void);       /* "major.minor.patch" */
EVENORM_API uint32_t evenorm_version_number(void);   /* 10000 major + 100 minor + patch */
EVENORM_API int32_t evenorm_numerics_revision(void); /* versions with the same revision give the same bits */

#define EVENORM_VERSION_NUMBER (10000 * EVENORM_VERSION_MAJOR + 100 * EVENORM_VERSION_MINOR + EVENORM_VERSION_PATCH)

#ifdef __cplusplus
}
#endif

#endif /* EVENORM_EVENORM_H_ */
