// The threads that share a row: a group of a warp for rows of one block, otherwise a cluster of thread blocks, with a
// group for each block of the row.
#pragma once

#include <cooperative_groups.h>

#include "cuda/forms.cuh"
#include "cuda/sums.cuh"

namespace evenorm::internal::cuda {

inline constexpr int kWarp = 32;

// Rows of at most kBlock columns: a warp has one for each of its groups.
template <int kV>
struct ShortTeam {
  static constexpr bool kLong = false;
  using By = Sharers<false>;
  static constexpr int kRows = kWarp / Group<kV>::kThreads;  // of a warp
  static constexpr int kMostWarps = 2;                       // of a thread block

  __device__ explicit ShortTeam(std::size_t) {}
  // What the warp has in a step; this thread's row of it, and its first column there.
  __device__ Part part(const ForwardArguments& p, std::size_t) const {
    const std::size_t warp = (static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
    const std::size_t row = warp * kRows, rest = row < p.rows ? p.rows - row : 0;
    return {row, 0, static_cast<int>(rest < kRows ? rest : kRows), static_cast<int>(p.cols)};
  }
  __device__ int row() const { return static_cast<int>(threadIdx.x) % kWarp / Group<kV>::kThreads; }
  __device__ int col() const { return 0; }
  __device__ std::size_t steps() const { return 1; }
  __device__ std::size_t blocks_of_step() const { return 1; }
  __device__ MomentNode joined(const MomentNode& own, std::size_t, bool) const { return own; }
  // The threads that finish rows, and the one of them that stores statistics.
  __device__ bool finishes() const { return true; }
  __device__ bool is_leader() const { return group.member == 0; }
  __device__ void sync() const { __syncwarp(); }
  __device__ float largest(float value) const { return group.largest(value); }

  Group<kV> group;
};

// Longer rows, kRows of them, each by some warps of a cluster's thread blocks. A step is as many blocks of columns as
// the cluster holds at once, a power of two.
template <int kV, int kRowsOfTeam>
struct LongTeam {
  static constexpr bool kLong = true;
  using By = Sharers<true>;
  static constexpr int kRows = kRowsOfTeam, kGroupsOfWarp = kWarp / Group<kV>::kThreads;
  static constexpr int kMostGroups = 8;                                   // of a row, in a thread block
  static constexpr int kMostWarps = kRows * kMostGroups / kGroupsOfWarp;  // of a thread block

  __device__ explicit LongTeam(std::size_t blocks)
      : threads(static_cast<int>(blockDim.x) / kRows),
        groups(threads / Group<kV>::kThreads),
        thread_blocks(static_cast<int>(cooperative_groups::this_cluster().num_blocks())),
        rank(static_cast<int>(cooperative_groups::this_cluster().block_rank())),
        blocks_of_row(blocks) {}

  __device__ Part part(const ForwardArguments& p, std::size_t step) const {
    const std::size_t row = blockIdx.x / static_cast<unsigned>(thread_blocks) * kRows;
    const std::size_t col = first_block(step) * kBlock, most = groups * kBlock;
    const std::size_t rest = col < p.cols ? p.cols - col : 0, rows = p.rows - row;
    return {row, col, static_cast<int>(rows < kRows ? rows : kRows), static_cast<int>(rest < most ? rest : most)};
  }
  __device__ int row() const { return static_cast<int>(threadIdx.x) / threads; }
  __device__ int own_group() const { return static_cast<int>(threadIdx.x) % threads / Group<kV>::kThreads; }
  __device__ int col() const { return own_group() * static_cast<int>(kBlock); }
  __device__ std::size_t steps() const { return (blocks_of_row + blocks_of_step() - 1) / blocks_of_step(); }
  __device__ std::size_t blocks_of_step() const { return static_cast<std::size_t>(groups) * thread_blocks; }

  // Joins the moments of a step's blocks, for the threads that finish rows.
  __device__ MomentNode joined(const MomentNode& own, std::size_t step, bool centred) {
    OfRow& of_row = shared()[row()];
    if (group.member == 0) of_row.parts[own_group()] = own;
    __syncthreads();
    MomentNode node{};
    if (finishes()) node = tree(of_row.parts, present(first_block(step), groups), centred);
    if (thread_blocks > 1) {
      auto cluster = cooperative_groups::this_cluster();
      if (finishes() && lane() == 0) of_row.whole = node;
      cluster.sync();
      if (finishes()) {
        const int blocks = present(step * blocks_of_step(), groups * thread_blocks);
        const int parts = (blocks + groups - 1) / groups;
        if (lane() < parts) node = *cluster.map_shared_rank(&of_row.whole, lane());
        node = tree(node, parts, centred);
      }
      cluster.sync();
    } else {
      __syncthreads();
    }
    return node;
  }
  // The first warp of each row finishes it.
  __device__ bool finishes() const { return static_cast<int>(threadIdx.x) % threads < kWarp; }
  __device__ bool is_leader() const { return rank == 0 && static_cast<int>(threadIdx.x) % threads == 0; }
  __device__ void sync() const { __syncthreads(); }
  __device__ float largest(float value) {
    auto* const parts = reinterpret_cast<float*>(shared()[row()].parts);
    value = group.largest(value);
    if (group.member == 0) parts[own_group()] = value;
    __syncthreads();
    for (int i = 0; i < groups; ++i) value = max(value, parts[i]);
    __syncthreads();
    if (thread_blocks == 1) return value;
    auto cluster = cooperative_groups::this_cluster();
    if (finishes() && lane() == 0) parts[0] = value;
    cluster.sync();
    for (int i = 0; i < thread_blocks; ++i) value = max(value, *cluster.map_shared_rank(parts, i));
    cluster.sync();
    return value;
  }

  Group<kV> group;
  int threads, groups;  // of a row, in a thread block
  int thread_blocks, rank;
  std::size_t blocks_of_row;

 private:
  struct OfRow {
    MomentNode parts[kMostGroups];
    MomentNode whole;
  };
  static __device__ OfRow* shared() {
    __shared__ OfRow rows[kRows];
    return rows;
  }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  // This thread block's first block of columns.
  __device__ std::size_t first_block(std::size_t step) const {
    return step * blocks_of_step() + static_cast<std::size_t>(rank) * groups;
  }
  // How many of `count` blocks from `first` on the row has.
  __device__ int present(std::size_t first, int count) const {
    if (first >= blocks_of_row) return 0;
    return static_cast<int>(min(static_cast<std::size_t>(count), blocks_of_row - first));
  }
  static __device__ MomentNode tree(const MomentNode* parts, int count, bool centred) {
    return tree(lane() < count ? parts[lane()] : MomentNode{}, count, centred);
  }
  // Joins the first `count` lanes' parts in the order of lanes. All lanes of the warp get the result.
  static __device__ MomentNode tree(MomentNode node, int count, bool centred) {
    for (int distance = 1; distance < count; distance *= 2) {
      const MomentNode right = from_lane(node, lane() + distance);
      if (lane() % (2 * distance) == 0 && lane() + distance < count) node = join_moments<float>(centred, node, right);
    }
    return from_lane(node, 0);
  }
  static __device__ MomentNode from_lane(const MomentNode& node, int lane) {
    const auto get = [&](double v) { return __shfl_sync(~0U, v, lane); };
    const MeanAndM2 moments = moments_of(node);
    return node_of(get(node.count), {get(moments.mean), get(moments.m2)});
  }
};

}  // namespace evenorm::internal::cuda
