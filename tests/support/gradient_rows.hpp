// Rows for backward passes, from several named inputs in turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "contracts/backward_harness.hpp"

namespace evenorm::testing {

using Names = std::vector<std::string_view>;

// Repeats the named inputs in turn, without those that the type cannot hold. At least one must remain.
inline contracts::Array rows_of(const Names& names, DType dtype, std::size_t rows, std::size_t cols,
                                std::uint64_t seed) {
  const std::vector<std::string_view> known = contracts::input_names(dtype, cols);
  Names held;
  std::ranges::copy_if(names, std::back_inserter(held),
                       [&](std::string_view name) { return std::ranges::find(known, name) != known.end(); });
  contracts::Array array(dtype, std::size_t{0});
  for (std::size_t r = 0; r < rows; ++r) {
    array.append(contracts::make_input(held.at(r % held.size()), dtype, cols, seed + r));
  }
  return array;
}

inline contracts::BackwardInputs inputs_of(const contracts::BackwardOperation& op, const Names& x, const Names& dy,
                                           std::size_t rows, std::uint64_t seed = 1) {
  const contracts::Operation& forward = op.forward;
  contracts::BackwardInputs inputs;
  inputs.x = rows_of(x, forward.x, rows, forward.cols, seed);
  inputs.dy = rows_of(dy, forward.y, rows, forward.cols, seed + 1000000);
  if (forward.weight) inputs.weight = contracts::make_weight(*forward.weight, forward.cols, seed);
  return inputs;
}

}  // namespace evenorm::testing
