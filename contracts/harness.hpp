// Runs one norm on a chosen target, over rows in a chosen memory layout. Tests and digests call the library through it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "contracts/field.hpp"
#include "contracts/inputs.hpp"
#include "evenorm/evenorm.hpp"
#include "run/dispatch.hpp"

namespace evenorm::contracts {

// What to compute. A weight or bias without a type is absent.
struct Operation {
  Kind kind = Kind::layer;
  DType x = DType::f32;
  DType y = DType::f32;
  std::optional<DType> weight{};
  std::optional<DType> bias{};
  bool zero_centered = false;
  double eps = 1e-5;
  std::size_t cols = 1;

  DType arithmetic() const;
  std::string name() const;  // e.g. "layer f32 weight=f32 bias=f32 768"
};

// All types equal.
Operation same_type(Kind kind, DType dtype, std::size_t cols, bool parameters = true);

// The memory layout: offsets in elements from a 64-byte boundary, and gaps in elements after a row (column).
struct Layout {
  std::size_t x_offset = 0, y_offset = 0, weight_offset = 0, bias_offset = 0;
  std::size_t x_gap = 0, y_gap = 0;
  bool in_place = false;  // y shares x's memory and type
  Order x_order = Order::rows_first, y_order = Order::rows_first;
  bool odd_addresses = false;  // places every tensor so that no element is aligned to its size
  bool vectors_apart = false;  // leaves gaps between the elements of weight, bias, mean and rstd
  DType statistics = DType::f64;
};

struct Outcome {
  Array y;                         // dense rows
  std::vector<double> mean, rstd;  // mean is empty for RMS norm
  bool kept_inside = true;         // only y's elements were written; x is unchanged, unless in place
};

// A function like evenorm::run, on the current target or on a chosen one.
using Runner = std::function<void(const Forward&, const Executor&)>;
Runner on_target(internal::Target target);

// x holds whole rows of op.cols elements. weight and bias have the types of op.
Outcome run_operation(const Runner& run, const Operation& op, const Array& x, const Array& weight, const Array& bias,
                      const Layout& layout = {}, const Executor& executor = {});

// The targets that run on this machine, best first.
std::vector<internal::Target> runnable_targets();

// Calls work(i) for every i < count, in no fixed order, on `threads` threads including the calling one.
void for_each_index(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work);

// Runs its tasks on the calling thread in reverse order, and reports `threads` threads.
Executor reversed_executor(std::size_t threads);

inline constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr Kind kBothKinds[] = {Kind::layer, Kind::rms};

}  // namespace evenorm::contracts
