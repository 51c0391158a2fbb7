// Rows whose columns are split over processes. The steps of all processes run one after the other on one target, or
// processes are threads with an all-gather between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "contracts/accuracy.hpp"
#include "contracts/harness.hpp"
#include "problem/validate.hpp"
#include "run/schedule.hpp"
#include "sharded/steps.hpp"
#include "support/cases.hpp"

namespace evenorm::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Columns = std::vector<std::int64_t>;  // columns of each process

// Compares numbers, or moments.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<std::type_identity_t<T>>& b) {
  static_assert(sizeof(Moments) == 4 * 8);  // no padding, whose bytes would be undefined
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

// --- all steps of all processes, one after the other ---------------------------------------------------------------

// Calls work(process) for each process that has columns.
template <class Work>
void for_each_process(const Columns& columns, const Work& work) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] != 0) work(i);
  }
}

// The moments of the whole rows, from the forward passes of all processes. A process without columns has none.
inline std::vector<Moments> moments_of_whole_rows(internal::Target target, const Columns& columns,
                                                  const std::vector<internal::Problem>& passes,
                                                  const Executor& executor = {}) {
  const internal::Problem& p = passes[static_cast<std::size_t>(std::ranges::max_element(columns) - columns.begin())];
  const bool wide = internal::arithmetic_type(p) == DType::f64;
  const std::size_t numbers = p.rows * Cuts(columns, 0).numbers(Pass::forward, p.kind, wide);
  std::vector<double> messages(columns.size() * numbers);
  for_each_process(columns, [&](std::size_t i) {
    internal::find_moments_on(target, Cuts(columns, i), passes[i], std::span(messages).subspan(i * numbers, numbers),
                              executor);
  });
  const internal::Messages all{messages.data(), numbers};
  internal::check_messages(Cuts(columns, 0), p.kind, wide, all, p.rows);
  std::vector<Moments> moments(p.rows);
  internal::join_shards(Cuts(columns, 0), p.kind, wide, all, moments);
  return moments;
}

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

// The columns of each process of a pass over the last of two axes. All tensors have strides.
template <class Pass>
class CutPasses {
 public:
  CutPasses(const Pass& whole, const Columns& columns) : passes_(columns.size(), whole) {
    for (const std::int64_t n : columns) shapes_.push_back({whole.x.shape[0], n});
    std::int64_t first = 0;
    for (std::size_t i = 0; i < columns.size(); first += columns[i++]) {
      Pass& pass = passes_[i];
      const std::span<const std::int64_t> shape = shapes_[i];
      const auto cut = [&](auto& tensor) {
        if (tensor.data == nullptr) return;
        const auto bytes = first * tensor.strides.end()[-1] * static_cast<std::int64_t>(size_of(tensor.dtype));
        tensor.data = const_cast<std::byte*>(static_cast<const std::byte*>(tensor.data) + bytes);
        tensor.shape = shape.last(tensor.shape.size());
      };
      const auto cut_all = [&](auto&... tensors) { (cut(tensors), ...); };
      if constexpr (std::is_same_v<Pass, Forward>) cut_all(pass.x, pass.y, pass.weight, pass.bias);
      if constexpr (std::is_same_v<Pass, Backward>) {
        cut_all(pass.x, pass.dy, pass.weight, pass.dx, pass.dweight, pass.dbias);
      }
      pass.normalized_shape = shape.last(1);
    }
  }
  const Pass& operator[](std::size_t process) const { return passes_[process]; }

 private:
  std::vector<std::array<std::int64_t, 2>> shapes_;
  std::vector<Pass> passes_;
};

// Runs a forward pass over the last of two axes, as processes that share its columns.
inline contracts::Runner sharded_on(internal::Target target, const Columns& columns) {
  return [=](const Forward& whole, const Executor& executor) {
    const CutPasses<Forward> cut(whole, columns);
    std::vector<internal::Problem> passes(columns.size());
    for_each_process(columns, [&](std::size_t i) {
      passes[i] = internal::validate(cut[i]);
      internal::validate_buffers(passes[i]);
    });
    std::vector<Moments> moments = moments_of_whole_rows(target, columns, passes, executor);
    for_each_process(columns, [&](std::size_t i) {
      passes[i].moments = moments.data();
      internal::run(internal::ForwardPass(passes[i]), internal::kernels_of(target), executor);
    });
  };
}

// Runs a backward pass likewise, with the moments of the forward pass.
inline contracts::Runner gradients_sharded_on(internal::Target target, const Columns& columns) {
  return [=](const Backward& whole, const Executor& executor) {
    const CutPasses<Backward> cut(whole, columns);
    std::vector<internal::Problem> forwards(columns.size());
    bool wide = false;
    for_each_process(columns, [&](std::size_t i) {
      const Backward& b = cut[i];
      forwards[i] = internal::validate(Forward{.kind = b.kind,
                                               .x = b.x,
                                               .y = {nullptr, b.dy.dtype, b.x.shape},
                                               .normalized_shape = b.normalized_shape,
                                               .weight = b.weight,
                                               .eps = b.eps,
                                               .zero_centered = b.zero_centered});
      wide = internal::arithmetic_type(forwards[i]) == DType::f64;
    });
    const std::vector<Moments> moments = moments_of_whole_rows(target, columns, forwards, executor);
    const std::size_t numbers = moments.size() * Cuts(columns, 0).numbers(Pass::backward, whole.kind, wide);
    std::vector<double> sums(columns.size() * numbers);
    std::vector<std::optional<internal::GradientPass>> passes(columns.size());
    for_each_process(columns, [&](std::size_t i) {
      passes[i] = internal::gradient_pass(Cuts(columns, i), cut[i], moments);
      const std::span<double> own = std::span(sums).subspan(i * numbers, numbers);
      internal::find_gradient_sums_on(target, Cuts(columns, i), *passes[i], own, executor);
    });
    for_each_process(columns, [&](std::size_t i) {
      internal::run_on(target, Cuts(columns, i), *passes[i], {sums.data(), numbers}, executor);
    });
  };
}

// --- whole rows and the columns of each process --------------------------------------------------------------------

// A norm over whole rows, and its gradients.
struct Example {
  contracts::Operation op;
  contracts::Inputs inputs;
};

inline Example example(const contracts::Operation& op, const Names& x, const Names& dy, std::size_t rows,
                       std::uint64_t seed = 1) {
  return {op, inputs_of(op, x, dy, rows, seed)};
}
inline Example example(Kind kind, DType type, std::size_t cols, std::size_t rows = 6) {
  return example(contracts::same_type_backward(kind, type, cols), {"normal", "mean_1e4"}, {"normal"}, rows);
}

// Every kind of row. f64 rows out of range are left out, because processes that share one make it NaN.
inline Names rows_of_type(DType type) {
  Names names = {"normal", "mean_1e4", "constant_0.1", "mean_300",    "steps",
                 "zeros",  "ramp",     "mean_1e6",     "one_ulp_0.1", "outlier_1e6_at_5"};
  if (type != DType::f64) names.insert(names.end(), {"huge", "subnormal", "wide_exponents", "std_1e30", "std_1e-30"});
  return names;
}

struct Results {
  contracts::Outcome forward;
  contracts::Outcome gradients;

  bool operator==(const Results& other) const {
    return forward.has_the_bits_of(other.forward) && gradients.has_the_bits_of(other.gradients);
  }
};

// The results of one process that has whole rows.
inline Results whole(const Example& of) {
  const internal::Target target = contracts::runnable_targets()[0];
  Results all;
  all.forward = run_operation(contracts::on_target(target), of.op.forward(), of.inputs);
  if (of.op.is_backward()) {
    all.gradients = run_operation(contracts::on_target(target), of.op, of.inputs);
  }
  return all;
}

// Copies n columns of each row.
inline void copy_columns(const contracts::Array& from, std::size_t from_first, contracts::Array& to,
                         std::size_t to_first, std::size_t n, std::size_t rows) {
  const std::size_t bytes = size_of(to.dtype()), from_cols = from.size() / rows, to_cols = to.size() / rows;
  for (std::size_t r = 0; r < rows && n != 0; ++r) {
    std::memcpy(to.data() + (r * to_cols + to_first) * bytes, from.data() + (r * from_cols + from_first) * bytes,
                n * bytes);
  }
}

// One process's columns of an example, dense, and memory for its outputs.
struct Shard {
  Shard(const Example& of, std::size_t first, std::size_t n)
      : rows(of.inputs.x.size() / of.op.cols),
        shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n)},
        mean(rows),
        rstd(rows) {
    const contracts::Operation& op = of.op;
    const std::span<const std::int64_t> row_shape(&shape[0], 1), normalized(&shape[1], 1);
    const auto out = [&](contracts::Array& own, std::optional<DType> type, auto& tensor, std::size_t count) {
      if (!type) return;
      own = contracts::Array(*type, count * n);
      tensor = {own.data(), *type, count == rows ? std::span<const std::int64_t>(shape) : normalized, {}};
    };
    const auto in = [&](contracts::Array& own, std::optional<DType> type, ConstTensor& tensor,
                        const contracts::Array& of_rows, std::size_t count) {
      out(own, type, tensor, count);
      if (type) copy_columns(of_rows, first, own, 0, n, count);
    };
    in(x, op.x, forward.x, of.inputs.x, rows);
    in(dy, op.y, backward.dy, of.inputs.dy, rows);
    in(weight, op.weight, forward.weight, of.inputs.weight, 1);
    in(bias, op.bias, forward.bias, of.inputs.bias, 1);
    out(y, op.y, forward.y, rows);
    out(dx, of.op.dx, backward.dx, rows);
    out(dgamma, of.op.dgamma, backward.dweight, 1);
    out(dbeta, of.op.dbeta, backward.dbias, 1);
    if (op.kind == Kind::layer) forward.mean = {mean.data(), DType::f64, row_shape, {}};
    forward.rstd = {rstd.data(), DType::f64, row_shape, {}};
    backward.x = forward.x;
    backward.weight = forward.weight;
    forward.normalized_shape = backward.normalized_shape = normalized;
    forward.kind = backward.kind = op.kind;
    forward.eps = backward.eps = op.eps;
    forward.zero_centered = backward.zero_centered = op.zero_centered;
  }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  std::size_t rows;
  std::int64_t shape[2];
  contracts::Array x, dy, weight{}, bias{}, y, dx{}, dgamma{}, dbeta{};
  std::vector<double> mean, rstd;
  Forward forward;
  Backward backward;
};
using Shards = std::deque<Shard>;

inline Shards shards_of(const Example& of, const Columns& columns) {
  Shards shards;
  std::size_t first = 0;
  for (const std::int64_t n : columns) {
    shards.emplace_back(of, first, static_cast<std::size_t>(n));
    first += static_cast<std::size_t>(n);
  }
  return shards;
}

// Of all processes, with the statistics of the first. The others must have the same.
inline Results results_of(const Example& of, const Shards& shards) {
  const auto together = [&](contracts::Array Shard::*member, std::size_t rows) {
    contracts::Array all((shards[0].*member).dtype(), rows * of.op.cols);
    std::size_t first = 0;
    for (const Shard& shard : shards) {
      const std::size_t n = (shard.*member).size() / rows;
      copy_columns(shard.*member, 0, all, first, n, rows);
      first += n;
    }
    return all;
  };
  Results all;
  all.forward.y = together(&Shard::y, shards[0].rows);
  all.forward.rstd = shards[0].rstd;
  if (of.op.kind == Kind::layer) all.forward.mean = shards[0].mean;
  for (const Shard& shard : shards) {
    EXPECT_TRUE(same_bits(shard.mean, shards[0].mean) && same_bits(shard.rstd, shards[0].rstd));
  }
  if (of.op.dx) all.gradients.dx = together(&Shard::dx, shards[0].rows);
  if (of.op.dgamma) all.gradients.dgamma = together(&Shard::dgamma, 1);
  if (of.op.dbeta) all.gradients.dbeta = together(&Shard::dbeta, 1);
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

// The error that each process gets from `work`, or "".
inline std::vector<std::string> told(std::size_t size, const std::function<void(const Communicator&)>& work) {
  std::vector<std::string> all(size);
  Processes(size).run([&](const Communicator& communicator) {
    try {
      work(communicator);
    } catch (const std::exception& error) {
      all[communicator.rank] = error.what();
    }
  });
  return all;
}

// Expects that one process reports `text`, or more behind it, and all others that it has failed with this text.
inline void expect_failure_of(std::size_t process, const std::string& text, const std::vector<std::string>& texts) {
  EXPECT_EQ(texts[process].substr(0, text.size()), text);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i == process) continue;
    EXPECT_EQ(texts[i], "process " + std::to_string(process) + " has failed: " + texts[process]);
  }
}

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
