// Runs one backward pass on a chosen target, over rows in a chosen memory layout. Tests call the library through it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contracts/field.hpp"
#include "contracts/harness.hpp"

namespace evenorm::contracts {

// What to compute. A gradient without a type is not asked for.
struct BackwardOperation {
  Operation forward;  // y has dy's type; bias is ignored
  std::optional<DType> dx{}, dgamma{}, dbeta{};
  bool accumulate = false;

  // The operation that the bound refers to, in f64 arithmetic if dx is also f64.
  Operation measured() const;
  std::string name() const;  // e.g. "layer f32 weight=f32 768, dx=f32 dgamma=f32 dbeta=f32"
};

// All types equal, and all gradients asked for.
BackwardOperation same_type_backward(Kind kind, DType dtype, std::size_t cols);

struct BackwardInputs {
  Array x, dy;                         // whole rows
  Array weight{};                      // of the operation's type
  std::vector<double> mean{}, rstd{};  // one per row; if empty, the pass computes them
  Array dgamma{}, dbeta{};             // initial contents; anything if empty
};

// The statistics that the forward pass writes for inputs.x.
void add_statistics(internal::Target target, const Operation& op, BackwardInputs& inputs);

// The memory layout: offsets in elements from a 64-byte boundary, gaps in elements after a row (column), and the order.
struct Place {
  std::size_t offset = 0, gap = 0;
  Order order = Order::rows_first;
};
enum class InPlace { none, of_dy, of_x };

struct BackwardLayout {
  Place x{}, dy{}, dx{};
  InPlace in_place = InPlace::none;  // dx shares the memory and the type of dy or x
  bool odd_addresses = false;        // places every tensor so that no element is aligned to its size
  bool vectors_apart = false;        // leaves gaps between the elements of weight, mean, rstd, dgamma and dbeta
};

struct BackwardOutcome {
  Array dx, dgamma, dbeta;  // empty if not asked for
  bool kept_inside = true;  // only the gradients' elements were written

  bool has_the_bits_of(const BackwardOutcome& other) const;
};

using BackwardRunner = std::function<void(const Backward&, const Executor&)>;
BackwardRunner gradients_on_target(internal::Target target);

BackwardOutcome run_backward(const BackwardRunner& run, const BackwardOperation& op, const BackwardInputs& inputs,
                             const BackwardLayout& layout = {}, const Executor& executor = {});

}  // namespace evenorm::contracts
