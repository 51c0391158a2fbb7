// The functions of evenorm/cuda.hpp.
#include "evenorm/cuda.hpp"

#include <cstdint>

#include "cuda/passes.hpp"
#include "problem/validate.hpp"

namespace evenorm::cuda {

void run(const Forward& forward, const Stream& stream) {
  const internal::Problem problem = internal::validate_plain(forward);
  internal::validate_buffers(problem);
  internal::cuda::run_forward(problem, stream);
}

std::size_t scratch_bytes(const Backward& backward) {
  return internal::cuda::backward_scratch_bytes(internal::validate_plain(backward));
}

void run(const Backward& backward, std::span<std::byte> scratch, const Stream& stream) {
  const internal::GradientProblem problem = internal::validate_plain(backward);
  internal::check_scratch_size(scratch, internal::cuda::backward_scratch_bytes(problem));
  if (reinterpret_cast<std::uintptr_t>(scratch.data()) % sizeof(double) != 0) {
    throw Error("scratch has an address that is not a multiple of 8 bytes");
  }
  internal::validate_buffers(problem, scratch);
  internal::cuda::run_backward(problem, scratch.data(), stream);
}

}  // namespace evenorm::cuda
