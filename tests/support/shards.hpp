// A norm whose normalised axis is split over processes: each has some columns of all rows.
#pragma once

#include <cstring>
#include <vector>

#include "schedule.hpp"
#include "support/fused.hpp"

namespace evenorm::testing {

// Columns [first, first + n) of rows of `cols`.
inline contracts::Array columns_of(const contracts::Array& x, std::size_t cols, std::size_t first, std::size_t n) {
  const std::size_t bytes = size_of(x.dtype()), rows = x.size() / cols;
  contracts::Array some(x.dtype(), rows * n);
  for (std::size_t r = 0; r < rows && n != 0; ++r) {
    std::memcpy(some.data() + r * n * bytes, x.data() + (r * cols + first) * bytes, n * bytes);
  }
  return some;
}

inline std::vector<Moments> parts_on(internal::Target target, Kind kind, const contracts::Array& x, std::size_t cols,
                                     bool wide, const Executor& executor = {}) {
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(x.size() / cols), static_cast<std::int64_t>(cols)};
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  std::vector<Moments> parts(x.size() / cols * parts_of(cols));
  internal::run_on(target, {kind, {x.data(), x.dtype(), shape, {}}, normalized, {}, wide}, parts, executor);
  return parts;
}

inline bool is_wide(const FusedOperation& op) { return op.norm.arithmetic() == DType::f64; }

// How many columns each process has; all together make a row.
using ShardSizes = std::vector<std::size_t>;

// Each row's parts, from all processes; joined_first: of which each joins its own.
inline std::vector<Moments> joined_moments(internal::Target target, const FusedOperation& op, const contracts::Array& x,
                                           const ShardSizes& sizes, bool joined_first = false) {
  const std::size_t rows = x.size() / op.norm.cols;
  std::vector<std::vector<Moments>> of_rows(rows);
  std::size_t first = 0;
  for (const std::size_t n : sizes) {
    const contracts::Array shard = columns_of(x, op.norm.cols, first, n);
    const std::vector<Moments> parts = parts_on(target, op.norm.kind, shard, n, is_wide(op));
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<const Moments> of_row(&parts[r * parts_of(n)], parts_of(n));
      if (joined_first) {
        of_rows[r].push_back(internal::join_on(target, op.norm.kind, of_row, is_wide(op)));
      } else {
        of_rows[r].insert(of_rows[r].end(), of_row.begin(), of_row.end());
      }
    }
    first += n;
  }
  std::vector<Moments> joined;
  for (const auto& parts : of_rows) joined.push_back(internal::join_on(target, op.norm.kind, parts, is_wide(op)));
  return joined;
}

// What all processes write, put together; their statistics must agree.
inline FusedOutcome normalised_in_shards(internal::Target target, const FusedOperation& op, const FusedInputs& whole,
                                         const ShardSizes& sizes, const std::vector<Moments>& moments) {
  const std::size_t cols = op.norm.cols, rows = whole.x.size() / cols, bytes = size_of(op.norm.y);
  FusedOutcome all;
  all.y = contracts::Array(op.norm.y, whole.x.size());
  std::size_t first = 0;
  for (const std::size_t n : sizes) {
    FusedOperation part = op;
    part.norm.cols = n;
    FusedInputs inputs;
    inputs.x = columns_of(whole.x, cols, first, n);
    if (op.norm.weight) inputs.weight = columns_of(whole.weight, cols, first, n);
    if (op.norm.bias) inputs.bias = columns_of(whole.bias, cols, first, n);
    inputs.moments = moments;
    FusedOutcome outcome = run_fused(contracts::on_target(target), part, inputs);
    for (std::size_t r = 0; r < rows; ++r) {
      std::memcpy(all.y.data() + (r * cols + first) * bytes, outcome.y.data() + r * n * bytes, n * bytes);
    }
    outcome.y = {};
    if (first == 0) {
      all.mean = outcome.mean;
      all.rstd = outcome.rstd;
    } else {
      FusedOutcome statistics;
      statistics.mean = all.mean;
      statistics.rstd = all.rstd;
      all.kept_inside = all.kept_inside && outcome.difference_to(statistics).empty();
    }
    all.kept_inside = all.kept_inside && outcome.kept_inside;
    first += n;
  }
  return all;
}

inline bool same_bits(const std::vector<Moments>& a, const std::vector<Moments>& b) {
  static_assert(sizeof(Moments) == 7 * 8);  // without gaps, whose bytes would be anything
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Moments)) == 0;
}

}  // namespace evenorm::testing
