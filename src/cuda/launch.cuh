// Chooses a forward kernel by the row's length and launches it.
#pragma once

#include <cuda_runtime.h>

#include "cuda/forward.cuh"
#include "cuda/forward_kernels.hpp"
#include "cuda/launch_kernel.hpp"

namespace evenorm::internal::cuda {

template <class Form>
struct Launch {
  // Two rows at a time read gamma and beta half as often.
  template <bool kKeep>
  using Long = LongTeam<1, kKeep ? 2 : 1>;
  static constexpr int kMostBlocks = 8;  // of a cluster, on every device that has clusters

  static cudaError_t run(const ForwardArguments& p, cudaStream_t stream) {
    if (p.cols <= 128) return short_rows<8>(p, stream);
    if (p.cols <= 256) return short_rows<4>(p, stream);
    if (p.cols <= 512) return short_rows<2>(p, stream);
    if (p.cols <= kBlock) return short_rows<1>(p, stream);
    const std::size_t cluster =
        std::bit_ceil((blocks_of(p.cols) + Long<true>::kMostGroups - 1) / Long<true>::kMostGroups);
    return cluster <= kMostBlocks ? long_rows<true>(p, static_cast<unsigned>(cluster), stream)
                                  : long_rows<false>(p, kMostBlocks, stream);
  }

 private:
  // The shared memory of a part of so many elements, with the scalars of its rows.
  template <class Row>
  static constexpr unsigned part_bytes(std::size_t elements) {
    return static_cast<unsigned>((Row::kScalarsBytes + Form::shared_bytes(elements) + kChunk - 1) / kChunk * kChunk);
  }
  template <int kV>
  static cudaError_t short_rows(const ForwardArguments& p, cudaStream_t stream) {
    using Team = ShortTeam<kV>;
    constexpr unsigned kWarps = Team::kMostWarps, kRows = kWarps * Team::kRows;
    const unsigned of_warp = part_bytes<ForwardRow<Form, Team, kV, true>>(Team::kRows * p.cols);
    const LaunchSize size{(p.rows + kRows - 1) / kRows, kWarps * kWarp, kWarps * of_warp};
    return launch_kernel(forward_rows<Form, Team, kV, true>, size, stream, p, of_warp);
  }
  template <bool kKeep>
  static cudaError_t long_rows(const ForwardArguments& p, unsigned cluster, cudaStream_t stream) {
    using Team = Long<kKeep>;
    using Row = ForwardRow<Form, Team, 1, kKeep>;
    const auto kernel = forward_rows<Form, Team, 1, kKeep>;
    // More than a thread block gets without asking, static shared memory included. It is asked for once and for all,
    // since the limit is the kernel's, not the launch's.
    constexpr unsigned kMostBytes = part_bytes<Row>(Team::kRows * Team::kMostGroups * kBlock), kUnasked = 40U << 10U;
    if constexpr (kMostBytes > kUnasked) {
      const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostBytes));
      if (status != cudaSuccess) return status;
    }
    const std::size_t groups =
        std::clamp<std::size_t>(std::bit_ceil(blocks_of(p.cols)), Team::kGroupsOfWarp, Team::kMostGroups);
    const std::size_t teams = (p.rows + Team::kRows - 1) / Team::kRows;
    const auto warps = static_cast<unsigned>(Team::kRows * groups / Team::kGroupsOfWarp);
    const LaunchSize size{teams * cluster, warps * kWarp,
                          part_bytes<Row>(Team::kRows * std::min(groups * kBlock, p.cols)), cluster};
    return launch_kernel(kernel, size, stream, p, 0U);
  }
};

template <class X, class P>
cudaError_t launch_typed(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.vectors ? Launch<TypedForm<X, P, true>>::run(p, stream) : Launch<TypedForm<X, P, false>>::run(p, stream);
}
// X: the type of x; gamma and beta are of that type or f32.
template <class X>
cudaError_t launch_typed(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.parameters == DType::f32 ? launch_typed<X, float>(p, form, stream) : launch_typed<X, X>(p, form, stream);
}

}  // namespace evenorm::internal::cuda
