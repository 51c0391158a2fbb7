/* evenorm: norms whose normalised axis is split over processes, on an engine that the program has already (MPI, its
 * own). The C API: sharded.hpp's ShardedNorm, as C11; the bits are those of C++.
 *
 * Each process has some columns of all rows, and its columns of weight and bias. A forward pass exchanges the moments
 * of rows, a backward pass two sums a row, both by one all-gather; x itself is never sent.
 *
 * Where all cuts are at multiples of 1024 columns the bits, gradients included, are those of the whole row on one
 * process; elsewhere they keep the bounds of docs/numerics.md, which names the exceptions (Sharded rows).
 */
#ifndef EVENORM_EVENORM_SHARDED_H_
#define EVENORM_EVENORM_SHARDED_H_

#include "evenorm/evenorm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The statistics of one row, which a forward pass finds for its backward pass: count, mean and sum of squares about the
 * mean of x * 2^-exponent. The mean and the sum of squares are each the sum of two numbers; the low one is 0 except in
 * f64 arithmetic. exponent is 0 unless x is f64 and its squares are out of range. In RMS norm the mean is 0 and m2 is
 * the plain sum of squares. All are NaN if an element of the row is not finite. largest: the largest |x|, by which a
 * row that is out of range is scaled; 0 where scaling cannot depend on it. The structure never grows. */
typedef struct evenorm_moments {
  double count;
  double mean_hi, mean_lo;
  double m2_hi, m2_lo;
  int64_t exponent;
  double largest;
} evenorm_moments;

/* The processes that share rows, on the caller's engine. rank: which of the `size` processes this one is.
 * all_gather(context, mine, bytes, all) brings the `bytes` bytes at `mine` of each process to all processes: process
 * i's to all + i * bytes. Every process calls it with as many bytes. It returns 0 when that is done; with anything else
 * the call that it belongs to returns EVENORM_COMMUNICATION_FAILED, evenorm_last_error() says the value, and no output
 * is written. It must not throw or unwind. struct_size: as for the structures of evenorm.h. */
typedef struct evenorm_communicator {
  size_t struct_size;
  size_t rank;
  size_t size;
  void* context;
  int (*all_gather)(void* context, const void* mine, size_t bytes, void* all);
} evenorm_communicator;

/* A norm of rows that all processes of a communicator share. All create it together, with what must agree (rows, kind,
 * types, eps, what is present) and columns of their own, and then run the same passes in the same order. One all-gather
 * of a fixed size at creation, one for each pass. Where processes disagree, or one of them fails before the exchange
 * (by what it must refuse, for want of memory), every one returns a failure, the others EVENORM_INVALID_ARGUMENT with a
 * text that names the process and what it said; nothing is written. Messages are checked before they are used: one that
 * is not valid, or that all_gather brings to another place, is EVENORM_INVALID_ARGUMENT as well. What fails alone:
 * `norm`, `communicator` or `out` that is NULL, a communicator that is none, memory for the messages of all processes
 * and for a backward pass's scratch. Norms of one communicator are to be run in one order in all processes: on one
 * thread, say. */
typedef struct evenorm_sharded_norm evenorm_sharded_norm;

/* *out is a new norm, which the caller destroys, or NULL where this fails. forward: this process's columns, in any
 * layout, of rows that may have none here: x of shape (rows, 0), say, and normalized_shape (0). Buffers may be absent:
 * whether there is a weight or a bias is told by its data, or, where that is NULL, by a rank that is not 0. Without
 * residual, y2 or a y of type i8. *communicator is copied; its context outlives the norm. */
EVENORM_API evenorm_status evenorm_sharded_norm_create(const evenorm_forward* forward,
                                                       const evenorm_communicator* communicator,
                                                       evenorm_sharded_norm** out);

/* forward: as at creation, but for buffers and strides. moments: moments_count of them, one for each row, are written,
 * the same in all processes, for the backward pass; or NULL, and 0. mean and rstd, of whole rows, are written in
 * processes without columns, too. executor as for evenorm_run. */
EVENORM_API evenorm_status evenorm_sharded_norm_run_forward(evenorm_sharded_norm* norm, const evenorm_forward* forward,
                                                            evenorm_moments* moments, size_t moments_count,
                                                            const evenorm_executor* executor);

/* backward: of the same rows, without mean and rstd; moments: what the forward pass wrote. The arithmetic must be that
 * of the forward pass. The scratch is allocated. executor as for evenorm_run. */
EVENORM_API evenorm_status evenorm_sharded_norm_run_backward(evenorm_sharded_norm* norm,
                                                             const evenorm_backward* backward,
                                                             const evenorm_moments* moments, size_t moments_count,
                                                             const evenorm_executor* executor);

/* What this process sends in a pass, either one; 0 where norm is NULL. */
EVENORM_API size_t evenorm_sharded_norm_bytes(const evenorm_sharded_norm* norm);

EVENORM_API void evenorm_sharded_norm_destroy(evenorm_sharded_norm* norm); /* NULL: nothing; of this process alone */

#ifdef __cplusplus
}
#endif

#endif /* EVENORM_EVENORM_SHARDED_H_ */
