/* Norms whose normalised axis is split over processes, in C11. The program brings the communication engine: MPI, or its
 * own. The results have the bits of the C++ API (sharded.hpp).
 *
 * Each process has some columns of every row, and the same columns of weight and bias. Each pass makes one all-gather:
 * a forward pass sends each row's moments, a backward pass two sums per row, and neither sends x.
 *
 * If every split is at a multiple of 1024 columns, results and gradients have the bits of the unsplit pass. Otherwise
 * they keep the error bounds of docs/numerics.md, which lists the exceptions ("Sharded rows").
 */
#ifndef EVENORM_EVENORM_SHARDED_H_
#define EVENORM_EVENORM_SHARDED_H_

#include "evenorm/evenorm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The statistics of one whole row, which a forward pass computes and its backward pass needs. The mean is the sum of
 * two numbers; the low one is 0 unless the arithmetic is f64. If an element of the row is not finite, mean and m2 are
 * NaN. The structure never grows. */
typedef struct evenorm_moments {
  double count;          /* columns */
  double mean, mean_low; /* RMS norm: 0 */
  double m2;             /* the sum of (x - mean)^2; RMS norm: of x^2 */
} evenorm_moments;

/* The processes that share rows, and the caller's engine. All processes must use the norms of one communicator in the
 * same order. Using them on one thread ensures this. */
typedef struct evenorm_communicator {
  size_t struct_size; /* see evenorm.h */
  size_t rank;        /* of this process */
  size_t size;        /* the number of processes */
  void* context;
  /* Copies the `bytes` bytes at `mine` of process i to all + i * bytes in every process. All processes call it with the
   * same `bytes`. It returns 0 on success and must not throw or unwind. If it returns another value, the function that
   * called it writes no output and returns EVENORM_COMMUNICATION_FAILED; evenorm_last_error() contains the value. */
  int (*all_gather)(void* context, const void* mine, size_t bytes, void* all);
} evenorm_communicator;

/* A norm of rows whose columns are split over the processes of a communicator. All processes create it together, and
 * must agree on rows, kind, types, eps and which parameters are present. Then they run the same passes in the same
 * order. Creation makes one all-gather of a fixed size, each pass one of evenorm_sharded_norm_bytes().
 *
 * If the processes disagree, or one of them fails before an exchange, every process fails and writes nothing. The
 * others return EVENORM_INVALID_ARGUMENT, and their text names the process and its reason. Messages are validated
 * before use; a wrong one is EVENORM_INVALID_ARGUMENT. A process fails alone if `norm`, `communicator` or `out` is
 * NULL, if the communicator is invalid, or if there is no memory for the messages or for a backward pass's scratch. */
typedef struct evenorm_sharded_norm evenorm_sharded_norm;

/* Sets *out to a new norm, or to NULL on failure. The caller destroys the norm. forward describes this process's
 * columns, in any layout. A residual and an i8 y are not supported. A process without columns has an x of shape
 * (rows, 0), for example, and normalized_shape (0). Buffers may be absent: a weight or bias counts as present if its
 * data is not NULL or its rank is not 0. *communicator is copied; its context must outlive the norm. */
EVENORM_API evenorm_status evenorm_sharded_norm_create(const evenorm_forward* forward,
                                                       const evenorm_communicator* communicator,
                                                       evenorm_sharded_norm** out);

/* Runs a forward pass. *forward may differ from that at creation only in buffers and strides. moments is an output with
 * moments_count elements, one per row, or NULL with count 0. Processes without columns write mean and rstd, too.
 * executor is as in evenorm_run. */
EVENORM_API evenorm_status evenorm_sharded_norm_run_forward(evenorm_sharded_norm* norm, const evenorm_forward* forward,
                                                            evenorm_moments* moments, size_t moments_count,
                                                            const evenorm_executor* executor);

/* Runs the backward pass of the same rows, without mean and rstd. moments is what the forward pass wrote. The
 * arithmetic (f64 or f32) must be that of the forward pass. Allocates scratch. executor is as in evenorm_run. */
EVENORM_API evenorm_status evenorm_sharded_norm_run_backward(evenorm_sharded_norm* norm,
                                                             const evenorm_backward* backward,
                                                             const evenorm_moments* moments, size_t moments_count,
                                                             const evenorm_executor* executor);

/* Returns the bytes that this process sends in a pass, forward or backward; 0 if norm is NULL. */
EVENORM_API size_t evenorm_sharded_norm_bytes(const evenorm_sharded_norm* norm);

/* Involves no other process. NULL: does nothing. */
EVENORM_API void evenorm_sharded_norm_destroy(evenorm_sharded_norm* norm);

#ifdef __cplusplus
}
#endif

#endif /* EVENORM_EVENORM_SHARDED_H_ */
