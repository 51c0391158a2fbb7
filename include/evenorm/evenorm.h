/* evenorm: layer norm and RMS norm on the CPU, and their gradients. The C API: evenorm.hpp's, as C11.
 *
 *   y = xhat * weight + bias,  xhat = (x - mean) / sqrt(var + eps)     layer norm
 *   y = xhat * weight + bias,  xhat = x / sqrt(mean(x^2) + eps)        RMS norm
 *
 *   dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps),  g = dy * weight     RMS norm: without mean(g)
 *   dweight = sum over rows of dy * xhat,  dbias = sum over rows of dy
 *
 * Shapes are in elements, strides too. Wrong arguments are refused before anything is written.
 * What accuracy and which bits are promised: docs/numerics.md. The bits are those of the C++ API.
 */
#ifndef EVENORM_EVENORM_H_
#define EVENORM_EVENORM_H_

#include <stddef.h>
#include <stdint.h>

#include "evenorm/version.hpp" /* macros alone: EVENORM_VERSION_MAJOR, ... */

#if defined(EVENORM_STATIC)
#define EVENORM_API
#else
#define EVENORM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- for all functions -----------------------------------------------------------------------------------------------
 * Threads: every function may be called from any thread at any time; two runs at once must not write to the same
 * memory. Exceptions: none leaves this API. Strings returned live as long as the library and are not freed, but for
 * evenorm_last_error()'s. Nothing is allocated while a norm runs, but for the scratch of
 * gradients where the caller brings none.
 */

/* What a function that can fail returns. */
typedef int32_t evenorm_status;
enum {
  EVENORM_OK = 0,
  EVENORM_INVALID_ARGUMENT = 1, /* evenorm_last_error() names the argument, what it has and what it should have */
  EVENORM_OUT_OF_MEMORY = 2,
  EVENORM_INTERNAL = 3,            /* a defect of evenorm */
  EVENORM_COMMUNICATION_FAILED = 4 /* of evenorm_sharded.h: what the caller's all_gather returned is not 0 */
};

/* The text of the last failure on the calling thread, "" before the first one; a success leaves it as it is. One line
 * of at most 1,023 bytes; valid until the next failure on this thread, or its end. Never NULL. */
EVENORM_API const char* evenorm_last_error(void);

/* Types of elements. bf16: 8 exponent and 7 fraction bits; f16: IEEE binary16. */
typedef int32_t evenorm_dtype;
enum {
  EVENORM_F64 = 0,
  EVENORM_F32 = 1,
  EVENORM_BF16 = 2,
  EVENORM_F16 = 3,
  EVENORM_I8 = 4 /* of quantised outputs alone */
};

EVENORM_API const char* evenorm_dtype_name(evenorm_dtype dtype); /* "f64", ...; NULL where there is no such type */
EVENORM_API size_t evenorm_dtype_size(evenorm_dtype dtype);      /* bytes of one element; 0 likewise */

typedef int32_t evenorm_kind;
enum { EVENORM_LAYER = 0, EVENORM_RMS = 1 };

/* Axes of a tensor at most. */
#define EVENORM_MAX_RANK 64

/* A tensor in the caller's memory; shape and strides are borrowed for the time of the call.
 * data     the element with all indices 0, at any address, a multiple of its size or not; NULL means "absent" where
 *          that is allowed
 * shape    `rank` sizes; may be NULL where rank is 0
 * strides  `rank` strides, in elements (not in bytes); NULL means C-contiguous. Those of axes of size 1, and all of a
 *          tensor without elements, are ignored
 * These two structures never grow, so that others can contain them. */
typedef struct evenorm_const_tensor {
  const void* data;
  evenorm_dtype dtype;
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides;
} evenorm_const_tensor;

typedef struct evenorm_tensor {
  void* data;
  evenorm_dtype dtype;
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides;
} evenorm_tensor;

/* The structures below grow at their end from version to version. struct_size is the caller's sizeof: fields beyond it
 * have their defaults. A size that this version does not know is an invalid argument. */

/* How work is shared out. parallel_for calls task(argument, i) once for each i in [0, tasks), in any order, on any
 * threads, and returns when all have returned; it must not throw or unwind. threads: how many can run at once.
 * With parallel_for NULL, or threads 0 or 1, work is done on the calling thread. */
typedef struct evenorm_executor {
  size_t struct_size;
  size_t threads;
  void* context;
  void (*parallel_for)(void* context, size_t tasks, void (*task)(void* argument, size_t i), void* argument);
} evenorm_executor;

/* Fills in *out, whose struct_size the caller has set, with the library's own pool: started at the first parallel use,
 * kept to the end of the process; `threads` tasks at most run at once; 0 means one per processor of this process. In a
 * child of fork(), and where no threads can be started, the work is done serially; the bits are the same by contract.
 * The pool's threads leave the process's signals to the caller's. *out may be copied and needs no release. For their
 * sake the library stays in memory where it is unloaded (dlclose).
 */
EVENORM_API evenorm_status evenorm_pool_executor(size_t threads, evenorm_executor* out);

/* One forward pass. The normalised axes are told in one of two ways, the other one having count 0:
 *   normalized_shape  the sizes of the trailing axes that are normalised together, normalized_shape_count of them, or
 *   axes              the numbers of any axes of x, axes_count of them, in any order; negative ones count from the end
 * A row is what lies along the normalised axes, in x's order of axes, at one place of the other axes.
 *   x, y          of one shape, any two of the four types; y may be x (same address, type, strides)
 *   weight, bias  of the normalised axes' shape; absent: 1 and 0. zero_centered not 0: 1 + weight takes weight's place
 *   mean, rstd    of the other axes' shape, f64 or f32; written where present (RMS norm has no mean)
 *   eps           finite and >= 0
 * Strides are free: zero and negative ones too for inputs; the elements of an output lie apart, and, sorted by stride,
 * each axis steps over all that is inside it. Outputs that may overlap anything else are refused; slices interleaved
 * with equal strides are decided exactly.
 * Arithmetic is f64 where any of x, y, weight, bias is, f32 otherwise; statistics are always accumulated wider.
 *
 * What may be done in the same pass, each with the bits of the steps one by one:
 *   residual      of x's shape, any type: s = fma(residual_scale, residual, x), rounded to x's type (the arithmetic is
 *                 f64 where x or residual is), is normalised in x's place; residual_scale is finite in that arithmetic
 *   sum           of x's shape and type: s is written to it; may be x or residual (same address, type, strides). y may
 *                 then be either too, but not both
 *   y2            of y's shape: x normalised with weight2 and bias2 instead, in one look at x; touches nothing else
 *   y of type i8  quantised: y, before any rounding, times 127 / m, to the nearest integer (even), with m the largest
 *                 magnitude of its row; m / 127 is written to scale, f32, of the other axes' shape. A row of zeros has
 *                 scale 0, one that is not finite scale NaN, and both have y = 0. Or, with given_scale > 0, a normal
 *                 f32, the same for all rows: y times 1 / given_scale, to the nearest integer, no more than 127 in
 *                 magnitude, NaN to 0. Not together with y2. All factors and scales are f32; where m < 3.73e-37,
 *                 127 / m is not, and y is multiplied by the largest f32, so y times scale is then too small
 * With residual or y of type i8 the elements of each row lie side by side in all tensors of x's shape. */
typedef struct evenorm_forward {
  size_t struct_size;
  evenorm_kind kind;
  int32_t zero_centered;
  double eps;
  evenorm_const_tensor x;
  evenorm_tensor y;
  const int64_t* normalized_shape;
  size_t normalized_shape_count;
  const int64_t* axes;
  size_t axes_count;
  evenorm_const_tensor weight;
  evenorm_const_tensor bias;
  evenorm_tensor mean;
  evenorm_tensor rstd;
  evenorm_const_tensor residual;
  double residual_scale;
  evenorm_tensor sum;
  evenorm_const_tensor weight2;
  evenorm_const_tensor bias2;
  evenorm_tensor y2;
  evenorm_tensor scale;
  double given_scale; /* 0: scale is found row by row */
} evenorm_forward;

/* Sets the first struct_size bytes of *forward: struct_size, layer norm, eps 1e-5, residual_scale 1, all else absent.
 */
EVENORM_API evenorm_status evenorm_forward_init(evenorm_forward* forward, size_t struct_size);

/* evenorm_forward forward = evenorm_forward_defaults(); */
static inline evenorm_forward evenorm_forward_defaults(void) {
  evenorm_forward forward;
  forward.struct_size = sizeof forward; /* refused later on by a library that does not know this size */
  (void)evenorm_forward_init(&forward, sizeof forward);
  return forward;
}

/* Validates and runs once; over `executor`, or on the calling thread where that is NULL. */
EVENORM_API evenorm_status evenorm_run(const evenorm_forward* forward, const evenorm_executor* executor);

/* --- a plan: validated once, run as often as wanted ----------------------------------------------------------------*/

typedef struct evenorm_plan evenorm_plan;

/* The addresses of one run of a plan; which of them are NULL must be as in the forward pass that it was made from. */
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
  const void* weight2;
  const void* bias2;
  void* y2;
  void* scale;
} evenorm_buffers;

/* *out is a new plan, which the caller destroys, or NULL where this fails. It keeps nothing of *forward but the
 * addresses of the data, which may be NULL for x and y if every run brings its own buffers. */
EVENORM_API evenorm_status evenorm_plan_create(const evenorm_forward* forward, evenorm_plan** out);
/* At the addresses given at creation, or at those of *buffers; executor as for evenorm_run. One plan may run on several
 * threads at once. */
EVENORM_API evenorm_status evenorm_plan_run(const evenorm_plan* plan, const evenorm_executor* executor);
EVENORM_API evenorm_status evenorm_plan_run_with(const evenorm_plan* plan, const evenorm_buffers* buffers,
                                                 const evenorm_executor* executor);
EVENORM_API void evenorm_plan_destroy(evenorm_plan* plan); /* NULL: nothing */

/* --- gradients -----------------------------------------------------------------------------------------------------*/

/* One backward pass: from dy, the gradient of y, to the gradients of x, weight and bias, any of them (at least one).
 * The normalised axes are told as in evenorm_forward.
 *   x, dy          of one shape, each of any type
 *   dx             of x's shape; may be dy, dsum or x (same address, type, strides)
 *   weight         of the normalised axes' shape; absent: 1. zero_centered not 0: 1 + weight takes weight's place
 *   mean, rstd     f64, of the other axes' shape: what the forward pass wrote for these x and eps, or absent and found
 *                  anew, with the same bits. Both for layer norm, rstd alone for RMS norm. Not looked at in f64
 *                  arithmetic
 *   dweight, dbias of the normalised axes' shape, each of any type, rounded once from sums that are kept wider.
 *                  accumulate not 0: added to what they hold
 *   dsum           of x's shape, any type: a gradient that reaches x from elsewhere. It is added to dx before dx is
 *                  rounded. If x is evenorm_forward's sum, dsum is the gradient of that sum, and dx times
 *                  residual_scale is also the gradient of the residual. If evenorm_forward has a y2, dsum is the dx of
 *                  the second norm
 * Strides and overlap: as in evenorm_forward. Arithmetic is f64 where any of x, dy, dx, weight, dsum is, f32 otherwise.
 */
typedef struct evenorm_backward {
  size_t struct_size;
  evenorm_kind kind;
  int32_t zero_centered;
  int32_t accumulate;
  double eps;
  evenorm_const_tensor x;
  evenorm_const_tensor dy;
  const int64_t* normalized_shape;
  size_t normalized_shape_count;
  const int64_t* axes;
  size_t axes_count;
  evenorm_const_tensor weight;
  evenorm_const_tensor mean;
  evenorm_const_tensor rstd;
  evenorm_tensor dx;
  evenorm_tensor dweight;
  evenorm_tensor dbias;
  evenorm_const_tensor dsum;
} evenorm_backward;

/* Sets the first struct_size bytes of *backward: struct_size, layer norm, eps 1e-5, all else absent. */
EVENORM_API evenorm_status evenorm_backward_init(evenorm_backward* backward, size_t struct_size);

/* evenorm_backward backward = evenorm_backward_defaults(); */
static inline evenorm_backward evenorm_backward_defaults(void) {
  evenorm_backward backward;
  backward.struct_size = sizeof backward; /* refused later on by a library that does not know this size */
  (void)evenorm_backward_init(&backward, sizeof backward);
  return backward;
}

/* *out is the bytes of scratch that this pass wants: a function of shapes and types alone, at most
 * max(256 KiB, 1/8 of x's elements); 0 where no gradient of a parameter is asked for, and where this fails. Scratch is
 * fastest at a multiple of 64 bytes. Refuses what evenorm_run_backward does, but for what concerns buffers. */
EVENORM_API evenorm_status evenorm_backward_scratch_bytes(const evenorm_backward* backward, size_t* out);

/* Validates and runs once; over `executor`, or on the calling thread where that is NULL. scratch: scratch_size bytes,
 * at least those that evenorm_backward_scratch_bytes tells, at any address, apart from all tensors; their contents are
 * of no use afterwards. NULL, with scratch_size 0: it is allocated (EVENORM_OUT_OF_MEMORY). */
EVENORM_API evenorm_status evenorm_run_backward(const evenorm_backward* backward, void* scratch, size_t scratch_size,
                                                const evenorm_executor* executor);

/* A backward pass that is validated once and run as often as wanted. */
typedef struct evenorm_backward_plan evenorm_backward_plan;

/* The addresses of one run of such a plan; which of them are NULL must be as in the backward pass that it was made
 * from. */
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

/* *out is a new plan, which the caller destroys, or NULL where this fails. It keeps nothing of *backward but the
 * addresses of the data, which may be NULL for x and dy if every run brings its own buffers. */
EVENORM_API evenorm_status evenorm_backward_plan_create(const evenorm_backward* backward, evenorm_backward_plan** out);
/* *out: the bytes of scratch that each run wants, or 0 where this fails. */
EVENORM_API evenorm_status evenorm_backward_plan_scratch_bytes(const evenorm_backward_plan* plan, size_t* out);
/* At the addresses given at creation, or at those of *buffers; executor as for evenorm_run. scratch: scratch_size bytes
 * at any address, apart from all tensors, at least those that the plan wants. Nothing is allocated, unless *buffers are
 * given and a tensor has more than 4 axes that cannot be merged with a neighbour. One plan may run on several threads
 * at once, each with outputs and scratch of its own. */
EVENORM_API evenorm_status evenorm_backward_plan_run(const evenorm_backward_plan* plan, void* scratch,
                                                     size_t scratch_size, const evenorm_executor* executor);
EVENORM_API evenorm_status evenorm_backward_plan_run_with(const evenorm_backward_plan* plan,
                                                          const evenorm_backward_buffers* buffers, void* scratch,
                                                          size_t scratch_size, const evenorm_executor* executor);
EVENORM_API void evenorm_backward_plan_destroy(evenorm_backward_plan* plan); /* NULL: nothing */

/* --- the plain form --------------------------------------------------------------------------------------------------
 * `rows` contiguous rows of `cols` elements, one after the other, on the calling thread. weight and bias have `cols`
 * elements of the same type, or are NULL. y may be x. bf16 and f16 are held in uint16_t, by their bits.
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

/* Gradients of the same rows. dx, dweight and dbias may each be NULL, but not all; dx may be dy or x. The scratch is
 * allocated. */
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

/* --- what this library is --------------------------------------------------------------------------------------------
 * SIMD targets by name, best first: "avx3" (AVX-512), "avx2", "neon", "portable".
 * The environment variable EVENORM_TARGET forces one; an unknown or unsupported name is an invalid argument at first
 * use.
 */
EVENORM_API const char* const* evenorm_compiled_targets(void);  /* ends with NULL */
EVENORM_API const char* const* evenorm_supported_targets(void); /* those that this CPU can run; ends with NULL */
EVENORM_API evenorm_status evenorm_target(const char** out);    /* the one in use; NULL where this fails */

/* The library's, which may be later than this header's EVENORM_VERSION_NUMBER. */
EVENORM_API const char* evenorm_version(void);       /* "major.minor.patch" */
EVENORM_API uint32_t evenorm_version_number(void);   /* 10000 major + 100 minor + patch */
EVENORM_API int32_t evenorm_numerics_revision(void); /* versions of one revision give the same bits */

#define EVENORM_VERSION_NUMBER (10000 * EVENORM_VERSION_MAJOR + 100 * EVENORM_VERSION_MINOR + EVENORM_VERSION_PATCH)

#ifdef __cplusplus
}
#endif

#endif /* EVENORM_EVENORM_H_ */
