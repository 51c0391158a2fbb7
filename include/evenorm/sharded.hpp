// Norms whose normalised axis is split over processes, such as tensor-parallel activations. The program brings the
// communication engine: MPI, torch.distributed, or its own.
//
// Each process has some columns of every row, and the same columns of weight and bias. Each pass makes one all-gather:
// a forward pass sends each row's moments, a backward pass two sums per row, and neither sends x. Every process joins
// the messages in the order of the row, so all get the same bits, whatever the engine and its timing.
//
// If every split is at a multiple of 1024 columns, results and gradients have the bits of the unsplit pass. Otherwise
// they keep the error bounds of docs/numerics.md, which lists the exceptions ("Sharded rows").
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm {

// The statistics of one whole row, which a forward pass computes and its backward pass needs. The mean is the sum of
// two numbers; the low one is 0 unless the arithmetic is f64. If an element of the row is not finite, mean and m2 are
// NaN.
struct Moments {
  double count = 0;               // columns
  double mean = 0, mean_low = 0;  // RMS norm: 0
  double m2 = 0;                  // the sum of (x - mean)^2; RMS norm: of x^2
};

enum class Pass : std::uint8_t { forward, backward };

// How a row's columns are split over the processes.
class EVENORM_API Cuts {
 public:
  // cols: the number of columns of each process, in the order of the row; it may be 0. rank: the number of this
  // process. Throws Error.
  Cuts(std::span<const std::int64_t> cols, std::size_t rank);

  std::size_t size() const { return cols_.size(); }  // processes
  std::size_t rank() const { return rank_; }
  std::size_t cols() const { return total_; }                                // of a whole row
  std::size_t cols_of(std::size_t process) const { return cols_[process]; }  // of one process
  std::size_t own_cols() const { return cols_[rank_]; }                      // of this one
  bool at_blocks() const { return at_blocks_; }  // true if every split is at a multiple of 1024 columns

  // The count of f64 numbers that each process sends per row. It is the same for all processes: a few per Part of the
  // process that has the most. wide: the arithmetic is f64. Throws Error.
  std::size_t numbers(Pass pass, Kind kind, bool wide) const;

  // Neighbouring blocks of 1024 columns that their process joins before it sends. If at_blocks(), a part has 2^k blocks
  // and begins at a multiple of 2^k blocks of the whole row. Otherwise all columns of a process are one part. `first`
  // counts from the process's first block. `weight` is the part's weight when all parts are joined.
  struct Part {
    std::size_t first, blocks, weight;
  };
  std::span<const Part> parts_of(std::size_t process) const {
    return std::span(parts_).subspan(first_part_[process], first_part_[process + 1] - first_part_[process]);
  }

 private:
  void add_parts(std::size_t first_col, std::size_t cols);

  std::vector<std::size_t> cols_;
  std::vector<Part> parts_;
  std::vector<std::size_t> first_part_;
  std::size_t rank_, total_ = 0, most_parts_ = 0;
  bool at_blocks_ = true;
};

// The processes that share rows, and the caller's engine. All processes must use the norms of one communicator in the
// same order. Using them on one thread ensures this.
struct Communicator {
  std::size_t rank = 0;  // of this process
  std::size_t size = 1;  // the number of processes
  void* context = nullptr;
  // Copies the `bytes` bytes at `mine` of process i to all + i * bytes in every process. All processes call it with the
  // same `bytes`. If it throws, after a timeout for example, the exception reaches the caller and no output is written.
  void (*all_gather)(void* context, const std::byte* mine, std::size_t bytes, std::byte* all) = nullptr;
};

// A norm of rows whose columns are split over the processes of a communicator. All processes construct it together, and
// must agree on rows, kind, types, eps and which parameters are present. Then they run the same passes in the same
// order. The constructor makes one all-gather of a fixed size, each pass one of bytes().
//
// If the processes disagree, or one of them fails before an exchange, every process throws and writes nothing. The one
// that failed throws its own exception. The others throw Error, whose text names the process and its reason. Messages
// are validated before use. An invalid message throws Error, which names the process and the field. After the exchange,
// only the allocation of messages or of scratch can fail (std::bad_alloc). The other processes do not notice.
class EVENORM_API ShardedNorm {
 public:
  // forward describes this process's columns, in any layout. Buffers may be absent. A residual and an i8 y are not
  // supported. x may have no columns; the passes still write mean and rstd of the whole rows. Throws Error.
  ShardedNorm(const Forward& forward, const Communicator& communicator);
  ShardedNorm(ShardedNorm&&) noexcept;  // a norm that was moved from can only be destroyed or assigned to
  ShardedNorm& operator=(ShardedNorm&&) noexcept;
  ~ShardedNorm();

  const Cuts& cuts() const;
  std::size_t rows() const;
  // The bytes that this process sends in a pass, forward or backward.
  std::size_t bytes() const;

  // Runs a forward pass. `forward` may differ from the constructor's only in buffers and strides. moments is empty, or
  // an output with one element per row. Throws Error, and what the communicator throws.
  void run(const Forward& forward, std::span<Moments> moments = {}, const Executor& executor = {});
  // Runs the backward pass of the same rows, without mean and rstd. moments is what the forward pass wrote. The
  // arithmetic (f64 or f32) must be that of the forward pass. Throws Error, and what the communicator throws.
  void run(const Backward& backward, std::span<const Moments> moments, const Executor& executor = {});

  // Call it instead of a pass, or instead of the constructor, in a process that cannot take part. The other processes
  // throw Error with the text `why`. Throws what the communicator throws.
  void refuse(const std::string& why);
  static void refuse(const Communicator& communicator, const std::string& why);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace detail {

// Returns describe(). If that throws, calls tell(why), because the other processes wait for this one.
template <class Describe, class Tell>
auto described_or_refused(const Describe& describe, const Tell& tell) {
  try {
    return describe();
  } catch (const std::exception& error) {
    tell(error.what());
    throw;
  }
}

template <class T>
void run_sharded_rows(Kind kind, const Communicator& communicator, std::span<const T> x, std::span<T> y,
                      std::size_t cols, std::span<Moments> moments, const RowOptions<T>& options) {
  const Forward forward =
      described_or_refused([&] { return forward_of(kind, x, y, options, RowTensors(x.size(), cols)); },
                           [&](const char* why) { ShardedNorm::refuse(communicator, why); });
  ShardedNorm(forward, communicator).run(forward, moments, executor_of(options.executor));
}

template <class T>
void run_sharded_gradients(Kind kind, const Communicator& communicator, std::span<const T> dy, std::span<const T> x,
                           std::span<T> dx, std::size_t cols, std::span<const Moments> moments,
                           const GradientOptions<T>& options) {
  const Backward backward =
      described_or_refused([&] { return backward_of(kind, dy, x, dx, options, RowTensors(x.size(), cols)); },
                           [&](const char* why) { ShardedNorm::refuse(communicator, why); });
  const Forward forward{.kind = kind,
                        .x = backward.x,
                        .y = {nullptr, dtype_of<T>, backward.x.shape},
                        .normalized_shape = backward.normalized_shape,
                        .weight = backward.weight,
                        .eps = options.eps,
                        .zero_centered = options.zero_centered};
  ShardedNorm(forward, communicator).run(backward, moments, executor_of(options.executor));
}

}  // namespace detail

// These functions are layer_norm, rms_norm and their gradients for rows of which this process has `cols` columns, at
// least 1. Each call constructs a ShardedNorm and runs one pass. moments has one element per row: an output of the
// forward pass, where it may be empty, and an input of the backward pass. mean and rstd are those of whole rows.
template <class T>
void sharded_layer_norm(const Communicator& communicator, std::span<const T> x, std::span<T> y, std::size_t cols,
                        std::span<Moments> moments = {}, const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_sharded_rows<T>(Kind::layer, communicator, x, y, cols, moments, options);
}
template <class T>
void sharded_rms_norm(const Communicator& communicator, std::span<const T> x, std::span<T> y, std::size_t cols,
                      std::span<Moments> moments = {}, const std::type_identity_t<RowOptions<T>>& options = {}) {
  detail::run_sharded_rows<T>(Kind::rms, communicator, x, y, cols, moments, options);
}
template <class T>
void sharded_layer_norm_backward(const Communicator& communicator, std::span<const T> dy, std::span<const T> x,
                                 std::span<T> dx, std::size_t cols, std::span<const Moments> moments,
                                 const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_sharded_gradients<T>(Kind::layer, communicator, dy, x, dx, cols, moments, options);
}
template <class T>
void sharded_rms_norm_backward(const Communicator& communicator, std::span<const T> dy, std::span<const T> x,
                               std::span<T> dx, std::size_t cols, std::span<const Moments> moments,
                               const std::type_identity_t<GradientOptions<T>>& options = {}) {
  detail::run_sharded_gradients<T>(Kind::rms, communicator, dy, x, dx, cols, moments, options);
}

}  // namespace evenorm
