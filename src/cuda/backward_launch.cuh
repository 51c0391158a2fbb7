// Chooses a backward kernel by the row's length and launches it.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>

#include "cuda/backward.cuh"
#include "cuda/backward_kernels.hpp"
#include "cuda/launch_kernel.hpp"

namespace evenorm::internal::cuda {

template <class Columns>
struct BackwardLaunch {
  static cudaError_t run(const BackwardArguments& p, cudaStream_t stream) {
    if (p.cols <= 64) return launch<16, false>(p, 1, stream);
    if (p.cols <= 128) return launch<32, false>(p, 1, stream);
    if (p.cols <= 256) return launch<64, false>(p, 1, stream);
    if (p.cols <= 512) return launch<128, false>(p, 1, stream);
    const auto cluster = static_cast<unsigned>(
        std::min<std::size_t>(std::bit_ceil((p.cols + kTileColumns - 1) / kTileColumns), kMostOfCluster));
    if (cluster * kTileColumns < p.cols) return launch<kBackwardThreads, true>(p, most_of_cluster<true>(), stream);
    if (cluster <= kPortable || most_of_cluster<false>() == kMostOfCluster) {
      return launch<kBackwardThreads, false>(p, cluster, stream);
    }
    return launch<kBackwardThreads, true>(p, kPortable, stream);
  }

 private:
  static constexpr unsigned kPortable = 8;  // thread blocks of a cluster that every device has

  // How many thread blocks of a kernel for long rows this device can cluster: kMostOfCluster or kPortable.
  template <bool kTiled>
  static unsigned most_of_cluster() {
    const auto kernel = backward_rows<Columns, kBackwardThreads, kTiled>;
    cudaLaunchConfig_t config{};
    config.gridDim = {kMostOfCluster, 1, 1};
    config.blockDim = {kBackwardThreads, 1, 1};
    int most = 0;
    const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
                       cudaOccupancyMaxPotentialClusterSize(&most, kernel, &config) == cudaSuccess;
    if (!known) static_cast<void>(cudaGetLastError());
    return known && most >= kMostOfCluster ? kMostOfCluster : kPortable;
  }

  template <int kTeam, bool kTiled>
  static cudaError_t launch(const BackwardArguments& arguments, unsigned cluster, cudaStream_t stream) {
    BackwardArguments p = arguments;
    // Without sums over rows, rows may be shared out at will.
    constexpr std::size_t kRows = kBackwardThreads / kTeam * kChainRows;
    if (p.sums == nullptr) p.row_blocks = std::clamp(p.rows / kRows, std::size_t{1}, kMostRowShares);
    const LaunchSize size{p.row_blocks * cluster, kBackwardThreads, 0, cluster};
    return launch_kernel(backward_rows<Columns, kTeam, kTiled>, size, stream, p);
  }
};

// X: the type of x; gamma is of that type or f32.
template <class X>
cudaError_t launch_typed(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return gamma == DType::f32 ? BackwardLaunch<TypedColumns<X, float>>::run(p, stream)
                             : BackwardLaunch<TypedColumns<X, X>>::run(p, stream);
}

}  // namespace evenorm::internal::cuda
