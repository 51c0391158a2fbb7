/* evenorm on a GPU, in C11, in libraries that are built with EVENORM_CUDA. Results, devices, memory and streams:
 * evenorm/cuda.hpp. Conventions, statuses and structures: evenorm/evenorm.h. */
#ifndef EVENORM_EVENORM_CUDA_H_
#define EVENORM_EVENORM_CUDA_H_

#include "evenorm/evenorm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Validates a forward pass and enqueues it on a stream of `device`: a cudaStream_t, or NULL for the default stream. If
 * CUDA fails, the status is EVENORM_INTERNAL and evenorm_last_error() says why. */
EVENORM_API evenorm_status evenorm_cuda_run(const evenorm_forward* forward, int32_t device, void* stream);

/* The same for a backward pass. scratch is device memory of scratch_size bytes, at least those that
 * evenorm_cuda_scratch_bytes() sets *out to, at a multiple of 8 bytes. It overlaps no tensor and is in use until the
 * pass is done. */
EVENORM_API evenorm_status evenorm_cuda_scratch_bytes(const evenorm_backward* backward, size_t* out);
EVENORM_API evenorm_status evenorm_cuda_run_backward(const evenorm_backward* backward, void* scratch,
                                                     size_t scratch_size, int32_t device, void* stream);

#ifdef __cplusplus
}
#endif
#endif
