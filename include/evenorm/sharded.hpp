// evenorm: norms whose normalised axis is split over processes (tensor-parallel activations, queries and keys
// normalised across all heads), on an engine that the program has already: MPI, torch.distributed, its own.
//
// Each process has some columns of all rows, and its columns of weight and bias. A forward pass exchanges the moments
// of rows, a backward pass two sums a row, both by one all-gather; x itself is never sent. Every process joins what all
// have found in the order of the row, so that all have the same bits, whatever the engine and its timing.
//
// Where all cuts are at multiples of 1024 columns the bits, gradients included, are those of the whole row on one
// process; elsewhere they keep the bounds of docs/numerics.md, which names the exceptions (Sharded rows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm {

// The statistics of one row, which a forward pass finds for its backward pass: count, mean and sum of squares about the
// mean of x * 2^-exponent. The mean and the sum of squares are each the sum of two numbers; the low one is 0 except in
// f64 arithmetic. exponent is 0 unless x is f64 and its squares are out of range. In RMS norm the mean is 0 and m2 is
// the plain sum of squares. All are NaN if an element of the row is not finite. largest: the largest |x|, by which a
// row that is out of range is scaled; 0 where scaling cannot depend on it.
struct Moments {
  double count = 0;
  double mean_hi = 0, mean_lo = 0;
  double m2_hi = 0, m2_lo = 0;
  std::int64_t exponent = 0;
  double largest = 0;
};

enum class Pass : std::uint8_t { forward, backward };

// Which columns of its rows each process has.
class EVENORM_API Cuts {
 public:
  // cols: how many columns each process has, in the order of the row; 0 for those that have none. rank: which of them
  // is this process. Throws Error.
  Cuts(std::span<const std::int64_t> cols, std::size_t rank);

  std::size_t size() const { return cols_.size(); }  // processes
  std::size_t rank() const { return rank_; }
  std::size_t cols() const { return total_; }                                // of a whole row
  std::size_t cols_of(std::size_t process) const { return cols_[process]; }  // of one process
  std::size_t own_cols() const { return cols_[rank_]; }                      // of this one
  bool at_blocks() const { return at_blocks_; }  // are all cuts at multiples of 1024 columns?

  // The f64 numbers that each process sends for each row, the same for all: where cuts are at blocks a few for each run
  // of 2^k blocks of 1024 columns from a multiple of 2^k on, else a few in all. Throws Error.
  std::size_t numbers(Pass pass, Kind kind, bool wide) const;

  // A run of a process's blocks, which are joined before anything is sent: [first, first + blocks), of that process's
  // columns; `weight` is what it counts for in the join of all.
  struct Run {
    std::size_t first, blocks, weight;
  };
  std::span<const Run> runs_of(std::size_t process) const {
    return std::span(runs_).subspan(first_run_[process], first_run_[process + 1] - first_run_[process]);
  }

 private:
  void add_runs(std::size_t first_col, std::size_t cols);

  std::vector<std::size_t> cols_;
  std::vector<Run> runs_;
  std::vector<std::size_t> first_run_;
  std::size_t rank_, total_ = 0, most_runs_ = 0;
  bool at_blocks_ = true;
};

// The processes that share rows, on the caller's engine. all_gather(context, mine, bytes, all) brings the `bytes` bytes
// at `mine` of each process to all processes: process i's to all + i * bytes. Every process calls it with as many
// bytes. What it throws (a time limit that has passed, a process that died) passes through to the caller, before any
// output is written. Norms of one communicator are to be run in one order in all processes: on one thread, say.
struct Communicator {
  std::size_t rank = 0;
  std::size_t size = 1;
  void* context = nullptr;
  void (*all_gather)(void* context, const std::byte* mine, std::size_t bytes, std::byte* all) = nullptr;
};

// A norm of rows that all processes of a communicator share. All make it together, with what must agree (rows, kind,
// types, eps, what is present) and columns of their own, and then call the same passes in the same order. One
// all-gather of a fixed size when it is made, one of bytes() for each pass. Where processes disagree, or one of them
// fails before the exchange (by what it must refuse, for want of memory), every one throws: that one its own exception,
// the others Error, which names the process and what it said; nothing is written. Messages are checked before they are
// used: one that is not valid is an Error that names the process and the field, and so is an all-gather that brings
// this process's own message to another place. What fails later fails alone: memory for bytes() of all processes, and
// for a backward pass's scratch (std::bad_alloc).
class EVENORM_API ShardedNorm {
 public:
  // forward: this process's columns, in any layout; buffers may be absent; without residual, y2 or an i8 y.
  // x may have no columns: passes write mean and rstd all the same, which are of the whole rows. Throws Error.
  ShardedNorm(const Forward& forward, const Communicator& communicator);
  ShardedNorm(ShardedNorm&&) noexcept;  // what was moved from may be assigned to and destroyed, nothing else
  ShardedNorm& operator=(ShardedNorm&&) noexcept;
  ~ShardedNorm();

  const Cuts& cuts() const;
  std::size_t rows() const;
  // What this process sends in a pass, either one.
  std::size_t bytes() const;

  // forward: as at construction, but for buffers and strides. moments: one for each row, for the backward pass; or
  // empty. Throws Error, and what the communicator throws.
  void run(const Forward& forward, std::span<Moments> moments = {}, const Executor& executor = {});
  // backward: of the same rows; without mean and rstd. Arithmetic must be that of the forward pass.
  void run(const Backward& backward, std::span<const Moments> moments, const Executor& executor = {});

  // Instead of a pass, or of making a norm, by a process that cannot: the others, which wait for it there, throw Error
  // with `why`. Returns once they are told; throws what the communicator throws.
  void refuse(const std::string& why);
  static void refuse(const Communicator& communicator, const std::string& why);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One pass of contiguous rows of `cols` columns of this process, at least 1: an agreement and the pass. Who is given
// spans that do not fit together tells the others, as ShardedNorm does. As layer_norm and rms_norm,
// with the moments of whole rows, one for each row, from the forward pass to the backward pass; empty where there is
// none. T: double, float, bfloat16 or float16.
namespace detail {
EVENORM_API void run_sharded_rows(const Communicator& communicator, const RowSpans& rows, std::span<Moments> moments);
EVENORM_API void run_sharded_gradients(const Communicator& communicator, const GradientSpans& rows,
                                       std::span<const Moments> moments);
}  // namespace detail

template <class T>
void sharded_layer_norm(const Communicator& communicator, std::span<const T> x, std::span<T> y, std::size_t cols,
                        std::span<Moments> moments = {}, const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_sharded_rows(communicator, detail::row_spans<T>(Kind::layer, x, y, cols, options), moments);
}
template <class T>
void sharded_rms_norm(const Communicator& communicator, std::span<const T> x, std::span<T> y, std::size_t cols,
                      std::span<Moments> moments = {}, const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_sharded_rows(communicator, detail::row_spans<T>(Kind::rms, x, y, cols, options), moments);
}
template <class T>
void sharded_layer_norm_backward(const Communicator& communicator, std::span<const T> dy, std::span<const T> x,
                                 std::span<T> dx, std::size_t cols, std::span<const Moments> moments,
                                 const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_sharded_gradients(communicator, detail::gradient_spans<T>(Kind::layer, dy, x, dx, cols, options),
                                moments);
}
template <class T>
void sharded_rms_norm_backward(const Communicator& communicator, std::span<const T> dy, std::span<const T> x,
                               std::span<T> dx, std::size_t cols, std::span<const Moments> moments,
                               const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_sharded_gradients(communicator, detail::gradient_spans<T>(Kind::rms, dy, x, dx, cols, options), moments);
}

}  // namespace evenorm
