// Rows whose columns are split over processes. The steps of all processes run one after the other on one target, or
// processes are threads with an all-gather between them.
#pragma once

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "contracts/accuracy.hpp"
#include "contracts/backward_harness.hpp"
#include "problem/validate.hpp"
#include "run/schedule.hpp"
#include "sharded/steps.hpp"

namespace evenorm::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Columns = std::vector<std::int64_t>;  // columns of each process

// Compares numbers, or moments.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<std::type_identity_t<T>>& b) {
  static_assert(sizeof(Moments) == 4 * 8);  // no padding, whose bytes would be undefined
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

// Columns [first, first + n) of rows of `cols`.
inline contracts::Array columns_of(const contracts::Array& x, std::size_t cols, std::size_t first, std::size_t n) {
  const std::size_t bytes = size_of(x.dtype()), rows = x.size() / cols;
  contracts::Array some(x.dtype(), rows * n);
  for (std::size_t r = 0; r < rows && n != 0; ++r) {
    std::memcpy(some.data() + r * n * bytes, x.data() + (r * cols + first) * bytes, n * bytes);
  }
  return some;
}

// --- all steps of all processes, one after the other ---------------------------------------------------------------

// The forward passes of all processes. A process without columns has none. Returns the moments of the whole rows.
inline std::vector<Moments> moments_of_whole_rows(internal::Target target, const Columns& columns,
                                                  const std::vector<internal::Problem>& passes,
                                                  const Executor& executor = {}) {
  std::size_t some = 0;
  while (columns[some] == 0) ++some;
  const internal::Problem& p = passes[some];
  const bool wide = internal::arithmetic_type(p) == DType::f64;
  const std::size_t numbers = p.rows * Cuts(columns, 0).numbers(Pass::forward, p.kind, wide);
  std::vector<double> messages(columns.size() * numbers);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == 0) continue;
    internal::find_moments_on(target, Cuts(columns, i), passes[i], std::span(messages).subspan(i * numbers, numbers),
                              executor);
  }
  const internal::Messages all{messages.data(), numbers};
  internal::check_messages(Cuts(columns, 0), p.kind, wide, all, p.rows);
  std::vector<Moments> moments(p.rows);
  internal::join_shards(Cuts(columns, 0), p.kind, wide, all, moments);
  return moments;
}

inline std::vector<Moments> run_forward_steps(internal::Target target, const Columns& columns,
                                              const std::vector<Forward>& forwards, const Executor& executor) {
  std::vector<internal::Problem> passes(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == 0) continue;
    passes[i] = internal::validate(forwards[i]);
    internal::validate_buffers(passes[i]);
  }
  std::vector<Moments> moments = moments_of_whole_rows(target, columns, passes, executor);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == 0) continue;
    passes[i].moments = moments.data();
    internal::run(internal::ForwardPass(passes[i]), internal::kernels_of(target), executor);
  }
  return moments;
}

// Runs a forward pass over the last of two axes, as processes that share its columns. All tensors have strides.
// False if processes cannot normalise a row of x because its squares leave the range of f64.
inline bool fits_processes(const contracts::Operation& op, const contracts::Array& x) {
  if (op.arithmetic() != DType::f64) return true;
  for (std::size_t first = 0; first < x.size(); first += op.cols) {
    long double squares = 0;
    for (std::size_t i = first; i < first + op.cols; ++i) {
      const auto value = static_cast<long double>(contracts::value_at(x, i));
      squares += value * value;
    }
    squares /= static_cast<long double>(op.cols);
    if (squares != 0 && (squares < 0x1p-499L || squares > 0x1p499L)) return false;
  }
  return true;
}

inline contracts::Runner sharded_on(internal::Target target, const Columns& columns) {
  return [=](const Forward& whole, const Executor& executor) {
    std::vector<std::array<std::int64_t, 2>> shapes;
    std::vector<Forward> forwards(columns.size(), whole);
    for (const std::int64_t n : columns) shapes.push_back({whole.x.shape[0], n});
    std::int64_t first = 0;
    for (std::size_t i = 0; i < columns.size(); first += columns[i++]) {
      const auto cut = [&](auto& view, std::span<const std::int64_t> shape) {
        if (view.data == nullptr) return;
        const auto bytes = first * view.strides.back() * static_cast<std::int64_t>(size_of(view.dtype));
        view.data = const_cast<std::byte*>(static_cast<const std::byte*>(view.data) + bytes);
        view.shape = shape;
      };
      const std::span<const std::int64_t> normalized = std::span(shapes[i]).last(1);
      cut(forwards[i].x, shapes[i]);
      cut(forwards[i].y, shapes[i]);
      cut(forwards[i].weight, normalized);
      cut(forwards[i].bias, normalized);
      forwards[i].normalized_shape = normalized;
    }
    run_forward_steps(target, columns, forwards, executor);
  };
}

// The combined outputs of all processes, also for a backward pass.
struct ShardedOutcome {
  contracts::Array y;
  std::vector<double> mean, rstd;
  contracts::BackwardOutcome gradients;
  std::vector<Moments> moments;
};

// One process's columns of the inputs of a norm and its gradients, and memory for its outputs.
struct Shard {
  Shard(const contracts::BackwardOperation& op, const contracts::BackwardInputs& whole,
        const contracts::Array& whole_bias, std::size_t first, std::size_t n)
      : rows(whole.x.size() / op.forward.cols),
        x_shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n)},
        row_shape{static_cast<std::int64_t>(rows)},
        x(columns_of(whole.x, op.forward.cols, first, n)),
        dy(columns_of(whole.dy, op.forward.cols, first, n)),
        y(op.forward.y, rows * n),
        mean(rows),
        rstd(rows) {
    const std::size_t cols = op.forward.cols;
    if (op.forward.weight) weight = columns_of(whole.weight, cols, first, n);
    if (op.forward.bias) bias = columns_of(whole_bias, cols, first, n);
    if (op.dx) dx = contracts::Array(*op.dx, rows * n);
    if (op.dgamma) dgamma = contracts::Array(*op.dgamma, n);
    if (op.dbeta) dbeta = contracts::Array(*op.dbeta, n);
    const std::span<const std::int64_t> normalized(&x_shape[1], 1);
    const auto view = [](contracts::Array& array, auto present, std::span<const std::int64_t> shape) {
      return present ? Tensor{array.data(), array.dtype(), shape, {}} : Tensor{};
    };
    const auto input = [&](contracts::Array& array, auto present, std::span<const std::int64_t> shape) {
      const Tensor tensor = view(array, present, shape);
      return ConstTensor{tensor.data, tensor.dtype, tensor.shape, {}};
    };
    forward.kind = backward.kind = op.forward.kind;
    forward.x = backward.x = input(x, true, x_shape);
    forward.y = view(y, true, x_shape);
    forward.normalized_shape = backward.normalized_shape = normalized;
    forward.weight = backward.weight = input(weight, op.forward.weight, normalized);
    forward.bias = input(bias, op.forward.bias, normalized);
    if (op.forward.kind == Kind::layer) forward.mean = {mean.data(), DType::f64, row_shape, {}};
    forward.rstd = {rstd.data(), DType::f64, row_shape, {}};
    forward.eps = backward.eps = op.forward.eps;
    forward.zero_centered = backward.zero_centered = op.forward.zero_centered;
    backward.dy = input(dy, true, x_shape);
    backward.dx = view(dx, op.dx, x_shape);
    backward.dweight = view(dgamma, op.dgamma, normalized);
    backward.dbias = view(dbeta, op.dbeta, normalized);
  }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  std::size_t rows;
  std::int64_t x_shape[2], row_shape[1];
  contracts::Array x, dy, weight{}, bias{}, y, dx{}, dgamma{}, dbeta{};
  std::vector<double> mean, rstd;
  Forward forward;
  Backward backward;
};

inline std::vector<std::unique_ptr<Shard>> shards_of(const contracts::BackwardOperation& op,
                                                     const contracts::BackwardInputs& whole,
                                                     const contracts::Array& bias, const Columns& columns) {
  std::vector<std::unique_ptr<Shard>> shards;
  std::size_t first = 0;
  for (const std::int64_t n : columns) {
    shards.push_back(std::make_unique<Shard>(op, whole, bias, first, static_cast<std::size_t>(n)));
    first += static_cast<std::size_t>(n);
  }
  return shards;
}

inline contracts::Array put_together(const std::vector<std::unique_ptr<Shard>>& shards, contracts::Array Shard::*member,
                                     std::size_t rows) {
  contracts::Array whole((*shards[0].*member).dtype(), std::size_t{0});
  std::size_t size = 0;
  for (const auto& shard : shards) size += (*shard.*member).size();
  whole = contracts::Array((*shards[0].*member).dtype(), size);
  const std::size_t bytes = size_of(whole.dtype()), cols = size / rows;
  std::size_t first = 0;
  for (const auto& shard : shards) {
    const contracts::Array& part = *shard.*member;
    const std::size_t n = part.size() / rows;
    for (std::size_t r = 0; r < rows && n != 0; ++r) {
      std::memcpy(whole.data() + (r * cols + first) * bytes, part.data() + r * n * bytes, n * bytes);
    }
    first += n;
  }
  return whole;
}

inline ShardedOutcome outcome_of(const contracts::BackwardOperation& op,
                                 const std::vector<std::unique_ptr<Shard>>& shards) {
  const std::size_t rows = shards[0]->rows;
  ShardedOutcome all;
  all.y = put_together(shards, &Shard::y, rows);
  if (op.dx) all.gradients.dx = put_together(shards, &Shard::dx, rows);
  if (op.dgamma) all.gradients.dgamma = put_together(shards, &Shard::dgamma, 1);
  if (op.dbeta) all.gradients.dbeta = put_together(shards, &Shard::dbeta, 1);
  return all;
}

inline ShardedOutcome sharded_in_steps(internal::Target target, const contracts::BackwardOperation& op,
                                       const contracts::BackwardInputs& whole, const contracts::Array& bias,
                                       const Columns& columns, const Executor& executor = {}) {
  const auto shards = shards_of(op, whole, bias, columns);
  const auto cuts = [&](std::size_t rank) { return Cuts(columns, rank); };
  std::vector<Forward> forwards;
  for (const auto& shard : shards) forwards.push_back(shard->forward);
  const std::vector<Moments> moments = run_forward_steps(target, columns, forwards, executor);

  const bool wide = op.measured().arithmetic() == DType::f64;
  const std::size_t numbers = moments.size() * cuts(0).numbers(Pass::backward, op.forward.kind, wide);
  std::vector<double> sums(columns.size() * numbers);
  std::vector<std::optional<internal::GradientPass>> passes(columns.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (columns[i] == 0) continue;
    passes[i] = internal::gradient_pass(cuts(i), shards[i]->backward, moments);
    internal::find_gradient_sums_on(target, cuts(i), *passes[i], std::span(sums).subspan(i * numbers, numbers),
                                    executor);
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (columns[i] != 0) internal::run_on(target, cuts(i), *passes[i], {sums.data(), numbers}, executor);
  }
  ShardedOutcome all = outcome_of(op, shards);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (columns[i] == 0) continue;
    all.mean = shards[i]->mean;
    all.rstd = shards[i]->rstd;
  }
  all.moments = moments;
  return all;
}

// --- processes as threads ------------------------------------------------------------------------------------------

class Processes {
 public:
  explicit Processes(std::size_t size) : mine_(size), arrived_(static_cast<std::ptrdiff_t>(size)) {}

  // Calls work(communicator) in each process at the same time.
  void run(const std::function<void(const Communicator&)>& work) {
    std::vector<std::thread> threads;
    std::vector<Member> members(mine_.size());
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      members[i] = {this, i};
      threads.emplace_back([&, i] { work({i, mine_.size(), &members[i], all_gather}); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::size_t gathers() const { return gathers_; }
  std::size_t bytes() const { return bytes_; }  // sent by one process

 private:
  struct Member {
    Processes* processes;
    std::size_t rank;
  };

  static void all_gather(void* context, const std::byte* mine, std::size_t bytes, std::byte* all) {
    const auto [self, rank] = *static_cast<Member*>(context);
    self->mine_[rank] = mine;
    self->arrived_.arrive_and_wait();
    for (std::size_t i = 0; i < self->mine_.size(); ++i) std::memcpy(all + i * bytes, self->mine_[i], bytes);
    if (rank == 0) {
      ++self->gathers_;
      self->bytes_ += bytes;
    }
    self->arrived_.arrive_and_wait();
  }

  std::vector<const std::byte*> mine_;
  std::barrier<> arrived_;
  std::size_t gathers_ = 0, bytes_ = 0;
};

// One process of a communicator. The other processes send the same messages, after spoil(gather, process, message) has
// changed them. Gathers are counted from 0.
struct Echo {
  using Spoil = std::function<void(std::size_t gather, std::size_t process, std::span<std::byte> message)>;

  std::size_t rank, size;
  Spoil spoil;
  std::size_t gathers = 0;

  Communicator communicator() {
    const auto all_gather = [](void* context, const std::byte* mine, std::size_t bytes, std::byte* all) {
      auto& self = *static_cast<Echo*>(context);
      for (std::size_t i = 0; i < self.size; ++i) {
        std::memcpy(all + i * bytes, mine, bytes);
        self.spoil(self.gathers, i, {all + i * bytes, bytes});
      }
      ++self.gathers;
    };
    return {rank, size, this, all_gather};
  }
};

}  // namespace evenorm::testing
