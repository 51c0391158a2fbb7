// The pass that `evenorm bench` measures: its description, its tensors in memory, and the bytes it reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/copies.hpp"
#include "cli/common/layout.hpp"
#include "cli/files/npy.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// forward writes y; backward writes dx, dweight and dbias from precomputed statistics; residual writes y and the sum;
// int8 writes a quantised y and one scale per row.
enum class BenchForm { forward, backward, residual, int8 };
std::string_view name(BenchForm form);

// All tensors are dense and of one type, except a quantised y, the user's weight and bias, and dweight and dbias, which
// are as `grad` writes them. There is a weight and, in layer norm, a bias. The shape has elements.
struct BenchProblem {
  BenchForm form = BenchForm::forward;
  Kind kind = Kind::layer;
  DType dtype = DType::f32;
  Shape shape{};
  std::vector<std::size_t> axes{};  // the normalised ones, ascending
  double eps = 1e-5;

  std::size_t rows() const { return product(sizes_elsewhere(shape, axes)); }
  std::size_t cols() const { return product(sizes_at(shape, axes)); }
  std::uint64_t held_bytes() const;  // of all tensors with x's shape
};

// Tensors that the pass does not use are absent.
struct BenchTensors {
  Array x, dy, residual, weight, bias, mean, rstd;  // read
  Array y, sum, scale, dx, dweight, dbias;          // written
};

// given: the user's x, which has the problem's shape and type, weight and bias; any may be absent. Other inputs are
// normally distributed, with a fixed seed. All pages of the outputs are resident.
BenchTensors make_tensors(const BenchProblem& problem, BenchTensors given);

// What a pass must read and write: the tensors of x's shape. Parameters and statistics do not count.
bench::Traffic traffic_of(const BenchProblem& problem, BenchTensors& tensors);

// A pass that can run many times.
class BenchPass {
 public:
  // Computes the statistics for a backward pass. Throws Error if the library refuses the problem. Borrows the tensors.
  BenchPass(const BenchProblem& problem, BenchTensors& tensors, const Executor& executor);
  BenchPass(const BenchPass&) = delete;
  BenchPass& operator=(const BenchPass&) = delete;

  void run();
  // What the library has decided about the pass, in words.
  std::string plan() const;

 private:
  Forward forward(const BenchProblem& problem, BenchTensors& tensors) const;
  Backward backward(const BenchProblem& problem, BenchTensors& tensors) const;

  const Shape axes_;  // forward_ and backward_ refer to it
  const Executor executor_;
  std::optional<Plan> plan_;
  Forward forward_{};
  Backward backward_{};
  Array scratch_{};
};

}  // namespace evenorm::cli
