// The kernels for all other types and layouts, and the kernel that finishes sums over rows.
#include "cuda/backward_launch.cuh"
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t forward_any(const ForwardArguments& p, cudaStream_t stream) { return Launch<AnyForm>::run(p, stream); }
cudaError_t backward_any(const BackwardArguments& p, cudaStream_t stream) {
  return BackwardLaunch<AnyColumns>::run(p, stream);
}

namespace {

// A thread block takes kColumns columns, of each of which kParts threads take as many row blocks in a row.
constexpr int kColumns = 16, kParts = 16, kBlocksOfPart = static_cast<int>(kMaxRowBlocks) / kParts;
static_assert(kParts == kBlocksOfPart);

__device__ double sum_in_tree(double (&numbers)[kParts]) {
#pragma unroll
  for (int n = kParts / 2; n > 0; n /= 2) {
#pragma unroll
    for (int i = 0; i < n; ++i) numbers[i] = numbers[2 * i] + numbers[2 * i + 1];
  }
  return numbers[0];
}

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
  parts[part][own] = sum_in_tree(sums);
  __syncthreads();
  const DeviceVector<char>& to = which == 0 ? p.dgamma : p.dbeta;
  if (part != 0 || col >= p.cols || to.data == nullptr) return;
#pragma unroll
  for (int i = 0; i < kParts; ++i) sums[i] = parts[i][own];
  double total = sum_in_tree(sums);
  if (p.accumulate) total += load_as<double>(to.at(col), to.dtype);
  store_as(std::isfinite(total) ? total : kNanOf<double>, to.at(col), to.dtype);
}

}  // namespace

cudaError_t finish_columns(const ColumnArguments& p, cudaStream_t stream) {
  const LaunchSize size{2 * ((p.cols + kColumns - 1) / kColumns), kColumns * kParts};
  return launch_kernel(finish_columns_kernel, size, stream, p);
}

}  // namespace evenorm::internal::cuda
