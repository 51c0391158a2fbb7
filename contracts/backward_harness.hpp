// One backward pass over rows that lie in memory in a chosen way, on a chosen target: how tests call it.
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

// What is computed. Without a type, a gradient is not asked for.
struct BackwardOperation {
  Operation forward;  // y is dy's type; bias means nothing
  std::optional<DType> dx{}, dgamma{}, dbeta{};
  bool accumulate = false;

  // What the bound is about: f64 arithmetic where dx is f64, too.
  Operation measured() const;
  std::string name() const;  // e.g. "layer f32 weight=f32 768, dx=f32 dgamma=f32 dbeta=f32"
};

// All types equal, all gradients asked for.
BackwardOperation same_type_backward(Kind kind, DType dtype, std::size_t cols);

struct BackwardInputs {
  Array x, dy;                         // whole rows
  Array weight{};                      // as the operation says
  std::vector<double> mean{}, rstd{};  // of the rows, or empty: found anew
  Array dgamma{}, dbeta{};             // what these hold before, or empty: anything
};

// The statistics that the forward pass writes for inputs.x.
void add_statistics(internal::Target target, const Operation& op, BackwardInputs& inputs);

// Where things lie: elements past a 64-byte boundary, between the end of a row (column) and the next one, in an order.
struct Place {
  std::size_t offset = 0, gap = 0;
  Order order = Order::rows_first;
};
enum class InPlace { none, of_dy, of_x };

struct BackwardLayout {
  Place x{}, dy{}, dx{};
  InPlace in_place = InPlace::none;  // dx is dy's or x's memory, and of its type
  bool odd_addresses = false;        // of all tensors: no element begins at a multiple of its size
  bool vectors_apart = false;        // gaps between the elements of weight, mean, rstd, dgamma and dbeta
};

struct BackwardOutcome {
  Array dx, dgamma, dbeta;  // empty where not asked for
  bool kept_inside = true;  // nothing but the gradients' elements was written

  bool has_the_bits_of(const BackwardOutcome& other) const;
};

using BackwardRunner = std::function<void(const Backward&, const Executor&)>;
BackwardRunner gradients_on_target(internal::Target target);

BackwardOutcome run_backward(const BackwardRunner& run, const BackwardOperation& op, const BackwardInputs& inputs,
                             const BackwardLayout& layout = {}, const Executor& executor = {});

}  // namespace evenorm::contracts
