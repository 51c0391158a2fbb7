// The backward kernels for all other types and layouts, and the kernel that finishes sums over rows.
#include "cuda/backward_launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_any(const BackwardArguments& p, cudaStream_t stream) {
  return BackwardLaunch<AnyColumns>::run(p, stream);
}

namespace {

// A thread block takes kColumns columns, of each of which kParts threads take as many row blocks in a row.
constexpr int kColumns = 16, kParts = 16, kBlocksOfPart = static_cast<int>(kMaxRowBlocks) / kParts;

__global__ void __launch_bounds__(kColumns* kParts) finish_columns_kernel(const __grid_constant__ ColumnArguments p) {
  __shared__ double parts[kParts][kColumns];
  const int own = static_cast<int>(threadIdx.x) % kColumns, part = static_cast<int>(threadIdx.x) / kColumns;
  const std::size_t col = static_cast<std::size_t>(blockIdx.x / 2) * kColumns + own, which = blockIdx.x % 2;
  // Row blocks that do not exist count as 0, which changes no bit of the tree.
  double sums[kBlocksOfPart];
#pragma unroll
  for (int i = 0; i < kBlocksOfPart; ++i) {
    const auto block = static_cast<std::size_t>(part * kBlocksOfPart + i);
    sums[i] = block < p.row_blocks && col < p.cols ? p.sums[(block * 2 + which) * p.cols + col] : 0;
  }
#pragma unroll
  for (int n = kBlocksOfPart / 2; n > 0; n /= 2) {
#pragma unroll
    for (int i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  parts[part][own] = sums[0];
  __syncthreads();
  const DeviceVector<char>& to = which == 0 ? p.dgamma : p.dbeta;
  if (part != 0 || col >= p.cols || to.data == nullptr) return;
#pragma unroll
  for (int i = 0; i < kParts; ++i) sums[i] = parts[i][own];
#pragma unroll
  for (int n = kParts / 2; n > 0; n /= 2) {
#pragma unroll
    for (int i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  const double total = p.accumulate ? sums[0] + load_as<double>(to.at(col), to.dtype) : sums[0];
  store_as(std::isfinite(total) ? total : kNanOf<double>, to.at(col), to.dtype);
}
static_assert(kParts <= kBlocksOfPart);

}  // namespace

cudaError_t finish_columns(const ColumnArguments& p, cudaStream_t stream) {
  const LaunchSize size{2 * ((p.cols + kColumns - 1) / kColumns), kColumns * kParts};
  return launch_kernel(finish_columns_kernel, size, stream, p);
}

}  // namespace evenorm::internal::cuda
