// The backward kernel of f32 arithmetic: a cluster of thread blocks takes a row block, four rows at a time, and gives
// the bits of docs/numerics.md, section 7. A thread has one lane of a chain, four lines of 16 columns, of all four
// rows, so chains of columns stay in its registers. Rows of up to 512 columns go several fours at a time. Rows that are
// too long for a cluster are read twice, tile by tile.
#pragma once

#include <cooperative_groups.h>

#include "cuda/rare_rows.cuh"
#include "plan/spec.hpp"

namespace evenorm::internal::cuda {

// kTeam: the threads that take four rows. kTiled: the cluster does not hold a row; kTeam is then kBackwardThreads.
template <class Columns, int kTeam, bool kTiled>
class BackwardBlock {
  static constexpr bool kPlain = Columns::kPlain;
  using Raw = typename Columns::Raw;
  static constexpr int kTeams = kBackwardThreads / kTeam;
  static constexpr int kRows = kTeams * kFour;                 // of a step
  static constexpr int kChainsOfTeam = kTeam / kChainThreads;  // of no more than a block of columns
  static_assert(kChainsOfTeam * kChainColumns <= static_cast<int>(kBlock) && 2 * kRows <= kBackwardThreads);
  static constexpr int kTeamColumns = kTeam * kLines;
  // The wide sums of a thread: of its own columns, or if several teams share columns, of some of theirs.
  static constexpr int kWideSums = kTiled        ? 1
                                   : kTeams == 1 ? 2 * kLines
                                                 : (2 * kTeamColumns + kBackwardThreads - 1) / kBackwardThreads;

 public:
  struct Shared {
    // Per four rows: what chains add to wide lanes. Afterwards, what teams add to columns.
    float chains[kBackwardThreads / kChainThreads * kFour * 2 * kWideLanes];
    float columns[kTiled ? 1 : kTeams * 2 * kTeamColumns];
    double sums[kRows][2];                          // of g and g d, of this thread block's columns, later of all
    double wide_sums[kWideSums][kBackwardThreads];  // of columns; a thread's own
    RowInArithmetic rows[kRows];
    DxScalars scalars[kRows];
    bool rare[kRows];
    bool any_rare;  // of the row block
  };

  __device__ BackwardBlock(const BackwardArguments& p, Shared& shared)
      : p_(p),
        shared_(shared),
        cluster_blocks_(static_cast<int>(cooperative_groups::this_cluster().num_blocks())),
        rank_(static_cast<int>(cooperative_groups::this_cluster().block_rank())),
        team_(static_cast<int>(threadIdx.x) / kTeam),
        member_(static_cast<int>(threadIdx.x) % kTeam),
        row_block_(blockIdx.x / static_cast<unsigned>(cluster_blocks_)),
        end_(share_start(p.rows, p.row_blocks, row_block_ + 1)) {
    tiles_ = kTiled ? (p.cols + tile_columns() - 1) / tile_columns() : 1;
  }

  __device__ __forceinline__ void run() {
    if (!kPlain && p_.flags != nullptr && p_.flags[row_block_] == 0) return;
    if (p_.sums != nullptr) clear_sums();
    if constexpr (!kPlain) {
      if (threadIdx.x == 0) shared_.any_rare = false;
      __syncthreads();
    }
    begin_tile(0);
    if constexpr (!kTiled) load_gamma();
    const std::size_t first = share_start(p_.rows, p_.row_blocks, row_block_);
    if (threadIdx.x < kRows) next_ = statistics_of<kPlain>(p_, first + threadIdx.x, end_);
    for (std::size_t row = first; row < end_; row += kRows) {
      run_rows(row);
      if (kTeams == 1) second_ = !second_;
    }
    if (p_.sums != nullptr) store_sums();
  }

 private:
  __device__ std::size_t tile_columns() const { return static_cast<std::size_t>(kTileColumns) * cluster_blocks_; }
  // This thread block's first column of a tile, and this thread's.
  __device__ std::size_t first_column(std::size_t tile) const {
    return tile * tile_columns() + static_cast<std::size_t>(rank_) * kTileColumns;
  }
  __device__ OwnColumns own_columns(std::size_t tile) const {
    const int chain = member_ / kChainThreads, member = member_ % kChainThreads;
    return {first_column(tile) + chain * kChainColumns + member};
  }

  __device__ __forceinline__ void run_rows(std::size_t first) {
    first_ = first + static_cast<std::size_t>(team_) * kFour;
    for (std::size_t tile = 0; tile < tiles_; ++tile) {
      if constexpr (kTiled) begin_tile(tile);
      load();
      if (tile == 0) find_rows();
      if (kPlain) prefetch(tile);
      widen_loaded();
      sum_chains();
      sum_blocks(tile);
      if constexpr (kTiled) push(tile);
    }
    if constexpr (kTiled) finish_pushed();
    find_scalars();
    for (std::size_t tile = 0; tile < tiles_; ++tile) {
      if constexpr (kTiled) {
        begin_tile(tile);
        load();
        __syncthreads();
        widen_loaded();
      }
      if (p_.writes_dx) write_dx();
      if (p_.sums != nullptr) add_to_columns();
    }
    __syncthreads();  // before the next rows take the place of these in shared memory
  }

  // --- what is known of the rows, and their elements ---
  __device__ __forceinline__ void find_rows() {
    const int row = static_cast<int>(threadIdx.x);
    if (row < kRows) {
      mine_ = next_;
      next_ = statistics_of<kPlain>(p_, first_of_step() + kRows + row, end_);
      shared_.rows[row] = {norm_scalars(mine_, false)};
      shared_.rare[row] = has_rare_rstd(mine_.rstd);
      if (kPlain && shared_.rare[row]) flag();
      if (!kPlain && shared_.rare[row]) shared_.any_rare = true;
    }
    __syncthreads();
  }
  // Row r of the four of a team.
  __device__ const RowInArithmetic& known(int r) const { return shared_.rows[team_ * kFour + r]; }
  __device__ std::size_t first_of_step() const { return first_ - static_cast<std::size_t>(team_) * kFour; }

  __device__ __forceinline__ void begin_tile(std::size_t tile) {
    own_ = own_columns(tile);
    const std::size_t left = own_.first < p_.cols ? p_.cols - own_.first : 0;
    left_ = left < kChainColumns ? static_cast<int>(left) : kChainColumns;
  }
  // Whether this thread has a column in a line of the tile.
  __device__ bool exists(int line) const { return line * static_cast<int>(kLanes) < left_; }
  __device__ __forceinline__ void load_gamma() {
#pragma unroll
    for (int line = 0; line < kLines; ++line) {
      gamma_[line] = exists(line) ? 1.0F : 0.0F;
      if (p_.gamma.data != nullptr && exists(line)) gamma_[line] = Columns::read(p_.gamma, own_.at(line));
      if (p_.zero_centered && exists(line)) gamma_[line] += 1.0F;
    }
  }
  __device__ __forceinline__ void load() {
    if constexpr (kTiled) load_gamma();
#pragma unroll
    for (int r = 0; r < kFour; ++r) {
      const bool has_row = first_ + r < end_;
      const char* x = p_.x.template row<kPlain>(first_ + r);
      const char* dy = p_.dy.template row<kPlain>(first_ + r);
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        const bool has = has_row && exists(line);
        raw_x_[r][line] = has ? Columns::read(p_.x, x, own_.at(line)) : Raw{};
        raw_dy_[r][line] = has ? Columns::read(p_.dy, dy, own_.at(line)) : Raw{};
      }
    }
  }
  // Must not follow load() at once, or each load would be waited for by itself.
  __device__ __forceinline__ void widen_loaded() {
#pragma unroll
    for (int r = 0; r < kFour; ++r) {
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        x_[r][line] = widened(raw_x_[r][line]);
        dy_[r][line] = widened(raw_dy_[r][line]);
      }
    }
  }

  // Brings the same columns of the next rows to the L2 cache: a cache line for each thread and step of the loop.
  __device__ __forceinline__ void prefetch(std::size_t tile) const {
    constexpr std::size_t kCacheLine = 128;
    const std::size_t first = first_column(tile), left = first < p_.cols ? p_.cols - first : 0;
    const std::size_t bytes = (left < kTileColumns ? left : kTileColumns) * bytes_of(p_.x.dtype);
    const auto lines = static_cast<int>((bytes + kCacheLine - 1) / kCacheLine);
    for (int i = static_cast<int>(threadIdx.x); i < lines * kRows; i += kBackwardThreads) {
      const std::size_t row = first_of_step() + kRows + i / lines,
                        at = first * bytes_of(p_.x.dtype) + i % lines * kCacheLine;
      if (row >= end_) break;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(p_.x.template row<kPlain>(row) + at));
      asm volatile("prefetch.global.L2 [%0];" ::"l"(p_.dy.template row<kPlain>(row) + at));
    }
  }

  // --- sums of rows ---
  // What this thread's chain adds to wide lanes: lanes l and l + 8 together.
  __device__ void sum_chains() {
    const int chain = static_cast<int>(threadIdx.x) / kChainThreads,
              member = static_cast<int>(threadIdx.x) % kChainThreads;
#pragma unroll
    for (int r = 0; r < kFour; ++r) {
      const float centre = known(r).centre;
      float g[kLines], d[kLines];
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        g[line] = dy_[r][line] * gamma_[line];
        d[line] = centre - x_[r][line];
      }
      float sum_g = ((g[0] + g[1]) + g[2]) + g[3];
      float sum_gd = std::fma(g[1], d[1], g[0] * d[0]) + std::fma(g[3], d[3], g[2] * d[2]);
      sum_g += __shfl_xor_sync(~0U, sum_g, kWideLanes);
      sum_gd += __shfl_xor_sync(~0U, sum_gd, kWideLanes);
      float* to = shared_.chains + (chain * kFour + r) * 2 * kWideLanes + member;
      if (member < kWideLanes) to[0] = sum_g;
      if (member >= kWideLanes) to[0] = sum_gd;  // these come after the other sum's
    }
    __syncthreads();
  }
  // Adds the chains of each row in wide lanes, and these in a tree. Sums that are not finite, and those of rare rows,
  // are found again in f64.
  __device__ __forceinline__ void sum_blocks(std::size_t tile) {
    for (int task = static_cast<int>(threadIdx.x); task < kRows * 2 * kWideLanes; task += kBackwardThreads) {
      const int team = task / (kFour * 2 * kWideLanes), rest = task % (kFour * 2 * kWideLanes);
      double sum = 0;
#pragma unroll
      for (int c = 0; c < kChainsOfTeam; ++c) {
        sum += static_cast<double>(shared_.chains[(team * kChainsOfTeam + c) * kFour * 2 * kWideLanes + rest]);
      }
#pragma unroll
      for (int distance = kWideLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0U, sum, distance);
      if (rest % kWideLanes == 0) shared_.sums[task / (2 * kWideLanes)][task / kWideLanes % 2] = sum;
    }
    __syncthreads();
    const int row = static_cast<int>(threadIdx.x);
    bool again = false;
    if (row < kRows && first_of_step() + row < end_) {
      const double* sums = shared_.sums[row];
      again = shared_.rare[row] || (p_.centred && !std::isfinite(sums[0])) || !std::isfinite(sums[1]);
    }
    if constexpr (kPlain) {
      if (again) flag();
    } else if (__syncthreads_or(again)) {
      if (again) sum_block_again(p_, first_of_step() + row, first_column(tile), shared_.sums[row]);
      __syncthreads();
    }
    join_cluster();
  }
  // Joins the sums of all thread blocks of the cluster, which all get them: a thread takes one sum of one thread block.
  // Those that do not exist count as 0, which changes no bit of the tree.
  __device__ __forceinline__ void join_cluster() {
    if (kTeams > 1 || cluster_blocks_ == 1) return;
    auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    const int from = static_cast<int>(threadIdx.x) % kMostOfCluster,
              sum = static_cast<int>(threadIdx.x) / kMostOfCluster;
    double joined = 0;
    if (sum < 2 * kRows && from < cluster_blocks_) {
      joined = *cluster.map_shared_rank(&shared_.sums[sum / 2][sum % 2], from);
    }
#pragma unroll
    for (int distance = 1; distance < kMostOfCluster; distance *= 2) {
      joined += __shfl_xor_sync(~0U, joined, distance);
    }
    cluster.sync();
    if (sum < 2 * kRows && from == 0) shared_.sums[sum / 2][sum % 2] = joined;
    __syncthreads();
  }
  // Sums of tiles are joined in a binary tree. The thread of a sum keeps the nodes that wait.
  __device__ void push(std::size_t tile) {
    const int row = static_cast<int>(threadIdx.x) / 2, which = static_cast<int>(threadIdx.x) % 2;
    if (row >= kRows) return;
    double part = shared_.sums[row][which];
    for (std::size_t full = tile + 1; full % 2 == 0; full /= 2) part = nodes_[--depth_] + part;
    nodes_[depth_++] = part;
  }
  __device__ void finish_pushed() {
    const int row = static_cast<int>(threadIdx.x) / 2, which = static_cast<int>(threadIdx.x) % 2;
    if (row < kRows) {
      double sum = nodes_[--depth_];
      while (depth_ > 0) sum = nodes_[--depth_] + sum;
      shared_.sums[row][which] = sum;
    }
    __syncthreads();
  }

  // --- from sums to what dx is made of ---
  __device__ void find_scalars() {
    const int row = static_cast<int>(threadIdx.x);
    if (row < kRows) {
      const double* const sums = shared_.sums[row];
      const DxScalars s = dx_scalars(p_.centred, mine_, shared_.rows[row].centre, sums[0], sums[1],
                                     Count(static_cast<double>(p_.cols)));
      if (kPlain && s.rare && p_.writes_dx && first_of_step() + row < end_) flag();
      shared_.scalars[row] = s;
    }
    __syncthreads();
  }

  // --- dx ---
  __device__ __forceinline__ void write_dx() const {
    unsigned again = 0;  // a bit for each row
#pragma unroll
    for (int r = 0; r < kFour; ++r) {
      const std::size_t row = first_ + r;
      if (row >= end_) break;
      const DxScalars& s = shared_.scalars[team_ * kFour + r];
      const RowInArithmetic row_known = known(r);
      float dx[kLines], watch = 0;
#pragma unroll
      for (int at = 0; at < kLines; ++at) {
        const float g = dy_[r][at] * gamma_[at], d = row_known.centre - x_[r][at];
        dx[at] = std::fma(g, row_known.rstd, std::fma(d, s.k2, s.a));
        if (exists(at)) watch += kPlain ? dx[at] : 0 * dx[at];  // a sum of finite dx may be infinite
      }
      const bool in_range = std::isfinite(watch) && (kPlain || !s.rare);
      if (kPlain && !in_range) flag();
      if (kPlain || in_range) {
        write_row(row, dx);
      } else {
        again |= 1U << r;
      }
    }
    if constexpr (!kPlain) {
      for (int r = 0; again != 0 && r < kFour; ++r) {
        if ((again >> r & 1U) != 0) write_rare_dx(p_, first_ + r, shared_.scalars[team_ * kFour + r], own_.first);
      }
    }
  }
  __device__ __forceinline__ void write_row(std::size_t row, float (&dx)[kLines]) const {
    if (p_.dsum.data != nullptr) {
      const char* dsum = p_.dsum.template row<kPlain>(row);
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        if (exists(line)) dx[line] += widened(Columns::read(p_.dsum, dsum, own_.at(line)));
      }
    }
    char* to = p_.dx.template row<kPlain>(row);
#pragma unroll
    for (int line = 0; line < kLines; ++line) {
      if (exists(line)) Columns::write(p_.dx, to, own_.at(line), dx[line]);
    }
  }

  // --- sums over rows ---
  __device__ __forceinline__ void clear_sums() {
    for (int i = 0; i < kWideSums; ++i) wide_sum(i) = 0;
    if constexpr (kTiled) for_each_sum([&](int, const ColumnOfThread& c) { *sums_at(c) = 0; });
  }
  // What the four rows add to the columns of this thread in f32.
  __device__ __forceinline__ void chain_rows(float (&dgamma)[kLines], float (&dbeta)[kLines]) const {
#pragma unroll
    for (int line = 0; line < kLines; ++line) dgamma[line] = dbeta[line] = 0;
#pragma unroll
    for (int r = 0; r < kFour; ++r) {
      const RowInArithmetic row = known(r);
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        const float xhat = std::fma(x_[r][line] - row.centre, row.rstd, row.offset);
        dgamma[line] = std::fma(dy_[r][line], xhat, dgamma[line]);
        dbeta[line] += dy_[r][line];
      }
    }
  }
  __device__ __forceinline__ void add_to_columns() {
    float chains[2][kLines];
    chain_rows(chains[0], chains[1]);
    const bool alone = first_ + kFour >= end_;  // no second chain follows
#pragma unroll
    for (int which = 0; which < 2; ++which) {
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        float& chain = chains[which][line];
        if constexpr (kTeams > 1) {
          shared_.columns[(team_ * 2 + which) * kTeamColumns + static_cast<int>(own_.at(line))] = chain;
        } else if (!kTiled || exists(line)) {
          float& first_chain = *first_chain_at(which, line);
          if (second_) chain = first_chain + chain;
          if (second_ || alone) {
            (kTiled ? *sums_at({own_.at(line), which}) : wide_sum(which * kLines + line)) += static_cast<double>(chain);
          } else {
            first_chain = chain;
          }
        }
      }
    }
    if constexpr (kTeams > 1) {
      __syncthreads();
      for (int team = 0; team < kTeams; team += 2) {
#pragma unroll
        for (int i = 0; i < kWideSums; ++i) {
          const int task = static_cast<int>(threadIdx.x) + i * kBackwardThreads;
          const float* chain = shared_.columns + team * 2 * kTeamColumns + task;
          if (task < 2 * kTeamColumns) wide_sum(i) += static_cast<double>(chain[0] + chain[2 * kTeamColumns]);
        }
      }
    }
  }
  // Where the first chain of a pair waits for the second, if this thread's team is the only one.
  __device__ __forceinline__ float* first_chain_at(int which, int line) const {
    if constexpr (kTiled) return p_.first_chains + (row_block_ * 2 + which) * p_.cols + own_.at(line);
    return shared_.columns + (which * kLines + line) * kBackwardThreads + threadIdx.x;
  }
  // A column, and which of dgamma and dbeta.
  struct ColumnOfThread {
    std::size_t col;
    int which;
  };
  // Calls work(i, column) for this thread's sums, which are wide_sum(i) or, if the row is tiled, in memory.
  template <class Work>
  __device__ __forceinline__ void for_each_sum(const Work& work) {
    for (std::size_t tile = 0; tile < tiles_; ++tile) {
      for (int i = 0; i < (kTeams > 1 ? kWideSums : 2 * kLines); ++i) {
        const int task = static_cast<int>(threadIdx.x) + i * kBackwardThreads;
        ColumnOfThread c{own_columns(tile).at(i % kLines), i / kLines};
        if (kTeams > 1) c = {static_cast<std::size_t>(task % kTeamColumns), task / kTeamColumns};
        if (c.col < p_.cols && c.which < 2) work(i, c);
      }
    }
  }
  // Stores the row block's sums. Those that left the range on the way, or have rare rows, are found anew in f64.
  __device__ __forceinline__ void store_sums() {
    const std::size_t first = share_start(p_.rows, p_.row_blocks, row_block_);
    for_each_sum([&](int i, const ColumnOfThread& c) {
      double sum = kTiled ? *sums_at(c) : wide_sum(i);
      if constexpr (kPlain) {
        if (!std::isfinite(sum)) flag();
      } else {
        if (shared_.any_rare || !std::isfinite(sum)) sum = sum_over_rows_again(p_, first, end_, c.col, c.which);
      }
      *sums_at(c) = sum;
    });
  }
  __device__ void flag() const { p_.flags[row_block_] = 1; }
  __device__ double& wide_sum(int i) const { return shared_.wide_sums[i][threadIdx.x]; }
  __device__ double* sums_at(const ColumnOfThread& c) const {
    return p_.sums + (row_block_ * 2 + c.which) * p_.cols + c.col;
  }

  const BackwardArguments& p_;
  Shared& shared_;
  int cluster_blocks_, rank_;
  int team_, member_;
  std::size_t row_block_, end_;
  std::size_t tiles_;
  std::size_t first_ = 0;          // the first of this thread's four rows
  bool second_ = false;            // a chain of these rows is the second of a pair; not used if there are several teams
  RowStatistics mine_{}, next_{};  // of row threadIdx.x of this step, and of the next
  OwnColumns own_{};
  int left_ = 0;  // columns from own_.first on
  Raw raw_x_[kFour][kLines], raw_dy_[kFour][kLines];
  float x_[kFour][kLines], dy_[kFour][kLines], gamma_[kLines];
  double nodes_[kTiled ? 32 : 1];
  int depth_ = 0;
};

template <class Columns, int kTeam, bool kTiled>
__global__ void __launch_bounds__(kBackwardThreads, 3) backward_rows(const __grid_constant__ BackwardArguments p) {
  __shared__ typename BackwardBlock<Columns, kTeam, kTiled>::Shared shared;
  BackwardBlock<Columns, kTeam, kTiled>(p, shared).run();
}

}  // namespace evenorm::internal::cuda
