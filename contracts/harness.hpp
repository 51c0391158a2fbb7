// One norm over rows that lie in memory in a chosen way, on a chosen target: how tests and digests call the library.
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

// What is computed. Without a type, weight or bias is absent.
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

// Where things lie: elements past a 64-byte boundary, and elements between the end of a row (column) and the next one.
struct Layout {
  std::size_t x_offset = 0, y_offset = 0, weight_offset = 0, bias_offset = 0;
  std::size_t x_gap = 0, y_gap = 0;
  bool in_place = false;  // y is x's memory; x and y have one type
  Order x_order = Order::rows_first, y_order = Order::rows_first;
  bool odd_addresses = false;  // of all tensors: no element begins at a multiple of its size
  bool vectors_apart = false;  // gaps between the elements of weight, bias, mean and rstd
  DType statistics = DType::f64;
};

struct Outcome {
  Array y;                         // rows one after the other
  std::vector<double> mean, rstd;  // mean is empty for RMS norm
  bool kept_inside = true;         // nothing but y's elements was written; x is as it was, unless in place
};

// What evenorm::run is: on the target in use, or on a forced one.
using Runner = std::function<void(const Forward&, const Executor&)>;
Runner on_target(internal::Target target);

// x: whole rows of op.cols elements; weight and bias: as op says.
Outcome run_operation(const Runner& run, const Operation& op, const Array& x, const Array& weight, const Array& bias,
                      const Layout& layout = {}, const Executor& executor = {});

// The targets that this machine can run, best first.
std::vector<internal::Target> runnable_targets();

// work(i) for every i < count, in no fixed order, on so many threads, of which the calling one is one.
void for_each_index(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work);

// Runs its tasks on the calling thread, last one first, and claims to have `threads` threads.
Executor reversed_executor(std::size_t threads);

inline constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr Kind kBothKinds[] = {Kind::layer, Kind::rms};

}  // namespace evenorm::contracts
