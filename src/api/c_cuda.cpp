// The C API of passes on a GPU.
#include "api/c_convert.hpp"
#include "evenorm/cuda.hpp"
#include "evenorm/evenorm_cuda.h"

namespace {
using namespace evenorm::internal::c;
}

evenorm_status evenorm_cuda_run(const evenorm_forward* forward, int32_t device, void* stream) {
  return status_of([&] { evenorm::cuda::run(forward_of(forward), {device, stream}); });
}

evenorm_status evenorm_cuda_scratch_bytes(const evenorm_backward* backward, size_t* out) {
  return set_out(out, [&] { return evenorm::cuda::scratch_bytes(backward_of(backward)); });
}

evenorm_status evenorm_cuda_run_backward(const evenorm_backward* backward, void* scratch, size_t scratch_size,
                                         int32_t device, void* stream) {
  return status_of([&] {
    const std::span bytes(static_cast<std::byte*>(scratch), scratch_size);
    evenorm::cuda::run(backward_of(backward), bytes, {device, stream});
  });
}
