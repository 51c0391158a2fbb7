// One norm or its gradients: what is computed, from which numbers, in which memory. Every test, fuzzer and `evenorm
// check` runs the library through it.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "contracts/inputs.hpp"
#include "contracts/placed.hpp"
#include "evenorm/evenorm.hpp"
#include "run/dispatch.hpp"

namespace evenorm::contracts {

using Type = std::optional<DType>;  // none: absent

// What to compute. A backward pass if any of its gradients has a type.
struct Operation {
  Kind kind = Kind::layer;
  DType x = DType::f32;
  DType y = DType::f32;  // of a backward pass: dy's type
  Type weight{}, bias{};
  bool zero_centered = false;
  double eps = 1e-5;
  std::size_t cols = 1;
  // steps of a forward pass besides the norm; y may be i8
  Type residual{};
  double residual_scale = 1;
  bool sum = true;  // is an output, if there is a residual
  double given_scale = 0;
  // gradients
  Type dx{}, dgamma{}, dbeta{};
  bool accumulate = false;
  Type dsum{};

  bool is_backward() const { return dx || dgamma || dbeta; }
  Operation forward() const;  // without gradients
  bool has_sum() const { return residual && sum; }
  bool has_scale() const { return y == DType::i8 && given_scale == 0; }
  DType arithmetic() const;
  std::string name() const;  // e.g. "layer f32->bf16 weight=f32+1 dx=f32 768", a part of a Case's text
};

// All types equal. The second asks for all gradients.
Operation same_type(Kind kind, DType dtype, std::size_t cols, bool parameters = true);
Operation same_type_backward(Kind kind, DType dtype, std::size_t cols);

// The numbers, row by row. Those that the operation does not use may be empty.
struct Inputs {
  Array x, dy{}, weight{};
  std::vector<double> mean{}, rstd{};  // of a backward pass, one per row; if empty, it computes them
  Array dgamma{}, dbeta{};             // their initial contents; anything if empty
  Array bias{}, residual{}, dsum{};

  Inputs row(const Operation& op, std::size_t i) const;  // without statistics, dgamma and dbeta
};

// The statistics that the forward pass writes for inputs.x.
void add_statistics(internal::Target target, const Operation& op, Inputs& inputs);

struct Outcome {
  Array y{}, sum{}, scale{}, dx{}, dgamma{}, dbeta{};  // empty if not asked for; rows are dense
  std::vector<double> mean{}, rstd{};
  bool kept_inside = true;  // only the outputs' elements were written

  // Names what has other bits; empty if nothing has. NaNs and signed zeros count.
  std::string difference_to(const Outcome& other) const;
  bool has_the_bits_of(const Outcome& other) const { return difference_to(other).empty(); }
  Outcome row(const Operation& op, std::size_t i) const;
  void append(const Outcome& rows);
};

enum class Part : unsigned char { x, y, weight, bias, mean, rstd, residual, sum, scale, dx, dgamma, dbeta, dsum };
inline constexpr std::size_t kParts = 13;  // y is also dy

// The memory layout. The residual lies as x does, the sum as y, dsum as dx; the others are vectors.
struct Layout {
  Place x{}, y{}, dx{};
  Part y_in = Part::y, sum_in = Part::sum, dx_in = Part::dx;  // where outputs are: y_in = Part::x is in place
  bool odd_addresses = false;                                 // no element is aligned to its size
  bool vectors_apart = false;                                 // gaps between the elements of vectors
  std::size_t vector_offset = 0;
  Type statistics = DType::f64;  // of a forward pass
  Guard guard = Guard::none;     // also forbids to write inputs
};

// Calls like evenorm::run, for the passes that the given function can take.
struct Runner {
  std::function<void(const Forward&, const Executor&)> forward;
  std::function<void(const Backward&, const Executor&)> backward;

  void operator()(const Forward& pass, const Executor& executor) const { forward(pass, executor); }
  void operator()(const Backward& pass, const Executor& executor) const { backward(pass, executor); }
  template <class Run>
  requires(!std::is_same_v<std::remove_cvref_t<Run>, Runner>)
      Runner(const Run& run) {  // NOLINT(google-explicit-constructor): any callable is a Runner
    if constexpr (std::is_invocable_v<const Run&, const Forward&, const Executor&>) forward = run;
    if constexpr (std::is_invocable_v<const Run&, const Backward&, const Executor&>) backward = run;
  }
};
Runner on_target(internal::Target target);
Runner through_run();  // evenorm::run
Runner through_c();    // with the scratch size that the C API asks for; on the active target

// The tensors of one pass.
class Call {
 public:
  // x and what has its shape: `shape`, or rows of op.cols. parameter: the shape of weight and what has its shape, or
  // that of the normalised axes.
  Call(const Operation& op, const Inputs& inputs, const Layout& layout, const Shape& shape = {},
       const Shape& axes = {-1}, const Shape& parameter = {});
  // Without tensors, which are then placed one by one.
  Call(const Operation& op, const Shape& shape, const Shape& axes);

  // rows: of x's shape, row by row; otherwise in C order. Where elements share memory, `values` becomes what is there.
  void place(Part part, Placed tensor, Array* values = nullptr);
  Placed& operator[](Part part) { return *parts_[static_cast<std::size_t>(part)]; }

  Operation op;
  Axes axes;
  Part y_in = Part::y, sum_in = Part::sum, dx_in = Part::dx;

  Forward forward() const;
  Backward backward() const;
  void run(const Runner& run, const Executor& executor = {}) const;
  Outcome outcome() const;
  void reset();  // to the contents before the run

 private:
  bool has(Part part) const { return parts_[static_cast<std::size_t>(part)].has_value(); }
  const Placed& at(Part part) const { return *parts_[static_cast<std::size_t>(part)]; }
  bool is_output(Part part) const;
  bool kept_inside() const;
  Array rows_of(Part part) const;
  template <class Pass>
  void describe(Pass& pass) const;

  std::vector<std::size_t> order_;  // of the elements, row by row; empty: C order
  std::array<std::optional<Placed>, kParts> parts_;
};

Outcome run_operation(const Runner& run, const Operation& op, const Inputs& inputs, const Layout& layout = {},
                      const Executor& executor = {});

// The targets that run on this machine, best first.
std::vector<internal::Target> runnable_targets();

// Calls work(i) for every i < count, in no fixed order, on `threads` threads including the calling one.
void for_each_index(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work);

// Runs its tasks on the calling thread in reverse order, and reports `threads` threads.
Executor reversed_executor(std::size_t threads);

inline constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr Kind kBothKinds[] = {Kind::layer, Kind::rms};

}  // namespace evenorm::contracts
