// Backward passes of two norms of one x, of values that are chosen or named, and what they are to be equal to: a pass
// for each norm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contracts/backward_harness.hpp"
#include "support/gradient_rows.hpp"
#include "support/tensors.hpp"

namespace evenorm::testing {

// Without a type, a tensor is absent.
struct PairOperation {
  Kind kind = Kind::layer;
  DType x = DType::f32, dy = DType::f32, dy2 = DType::f32;
  std::optional<DType> dx = DType::f32, dsum{}, weight{}, weight2{};
  std::optional<DType> dgamma{}, dbeta{}, dgamma2{}, dbeta2{};
  std::size_t cols = 1;
  double eps = 1e-5;
  bool zero_centered = false, accumulate = false;

  DType arithmetic() const;  // where dx is asked for
  std::string name() const;
};
// All of one type, all present but dsum.
PairOperation pair_of_type(Kind kind, DType dtype, std::size_t cols);

// What is read, what is written, which holds `accumulate`'s numbers before; empty where absent.
struct PairTensors {
  Array x, dy, dy2, dsum, weight, weight2;
  std::vector<double> mean, rstd;
  Array dx, dgamma, dbeta, dgamma2, dbeta2;
};
// Rows of these by turns: x, dy; dy2 is normal, and so is dsum.
PairTensors pair_inputs(const PairOperation& op, std::size_t rows, const Names& x = {"normal"},
                        const Names& dy = {"normal"}, std::uint64_t seed = 1);
// mean and rstd, as the forward pass writes them.
void add_statistics(const PairOperation& op, PairTensors& tensors);

// Where dx goes; and whether columns come first in memory, parameters lie two elements apart.
enum class DxAt { own, x, dy, dy2, dsum };
struct PairLayout {
  DxAt dx = DxAt::own;
  bool columns_first = false, vectors_apart = false;
};

// The tensors after the pass. Fails where an input that is not dx's place was written to.
PairTensors run_pair(const contracts::BackwardRunner& run, const PairOperation& op, const PairTensors& tensors,
                     const PairLayout& layout = {}, const Executor& executor = {});

// The same by a pass for the second norm, with dx of the arithmetic's type, and then one for the first, whose dsum this
// is.
PairTensors one_by_one(internal::Target target, const PairOperation& op, const PairTensors& tensors);

// The gradients that differ; "" where none does.
std::string difference(const PairTensors& a, const PairTensors& b);

}  // namespace evenorm::testing
