// One pass over tensors in memory, as `evenorm bench` runs it: what it is, its tensors, what it reads and writes.
// Knows nothing of time or of the command line's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/copies.hpp"
#include "cli/common/layout.hpp"
#include "cli/files/npy.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// forward: y. backward: dx, dweight and dbias, the statistics given. residual: y and the sum. int8: y quantised, and a
// scale for each row.
enum class BenchForm { forward, backward, residual, int8 };
std::string_view name(BenchForm form);

// All tensors are dense and of one type, but for a quantised y, and dweight and dbias, which are as `grad` writes them.
// A weight, and in layer norm a bias, is there. The shape has elements.
struct BenchProblem {
  BenchForm form = BenchForm::forward;
  Kind kind = Kind::layer;
  DType dtype = DType::f32;
  Shape shape{};
  std::vector<std::size_t> axes{};  // the normalised ones, ascending
  double eps = 1e-5;

  std::size_t rows() const { return product(sizes_elsewhere(shape, axes)); }
  std::size_t cols() const { return product(sizes_at(shape, axes)); }
  std::uint64_t held_bytes() const;  // of all tensors as large as x, or quantised from it
};

// What has no part is absent.
struct BenchTensors {
  Array x, dy, residual, weight, bias, mean, rstd;  // read
  Array y, sum, scale, dx, dweight, dbias;          // written
};

// x: absent, or the elements to be taken, of the problem's shape and type. All other inputs are normal numbers, by a
// fixed seed; all pages of the outputs are there.
BenchTensors make_tensors(const BenchProblem& problem, Array x);

// What a pass cannot do without: x and what is as large. Parameters and statistics are not counted.
bench::Traffic traffic_of(const BenchProblem& problem, BenchTensors& tensors);

// Made ready, to be run again and again. Finds the statistics that a backward pass is given.
class BenchPass {
 public:
  // Throws Error where the library refuses the problem. The tensors are borrowed.
  BenchPass(const BenchProblem& problem, BenchTensors& tensors, const Executor& executor);
  BenchPass(const BenchPass&) = delete;
  BenchPass& operator=(const BenchPass&) = delete;

  void run();

 private:
  Forward forward(const BenchProblem& problem, BenchTensors& tensors) const;
  Backward backward(const BenchProblem& problem, BenchTensors& tensors) const;

  const Shape axes_;  // what backward_ refers to, beside the tensors
  const Executor executor_;
  std::optional<Plan> plan_;
  Backward backward_{};
  Array scratch_{};
};

}  // namespace evenorm::cli
