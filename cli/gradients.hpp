// The backward pass over files: x and dy in memory whole, since sums over rows are cut by the whole problem and pieces
// would be another one. What is computed is the library's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "cli/common/layout.hpp"
#include "cli/common/norm.hpp"
#include "cli/files/npy.hpp"

namespace evenorm::cli {

// What is to be done. Outputs by number; they are named, not open yet.
struct GradientWork {
  Norm norm{};
  DType dx_dtype = DType::f32;
  DType parameter_dtype = DType::f32;  // of dweight and dbias
  std::optional<std::size_t> dx{}, dweight{}, dbias{};
};

class Gradients {
 public:
  // Throws Error or Failure where anything is wrong with what is asked; nothing is read or written, and nothing large
  // is in memory yet. x, dy and outputs are borrowed.
  Gradients(NpyFile& x, NpyFile& dy, Outputs& outputs, const GradientWork& what);

  std::uint64_t rows() const noexcept { return rows_; }
  std::uint64_t total_bytes() const;  // of x, dy and dx

  // Once, the outputs being open. `advance` is told the bytes of x, dy and dx that are done.
  void run(const std::function<void(std::uint64_t)>& advance);

 private:
  using Advance = std::function<void(std::uint64_t)>;

  bool dx_takes_place_of_x() const { return what_.dx_dtype == x_.dtype(); }
  Backward backward() const;
  void write_dx(const Array& dx, const Advance& advance);

  NpyFile& x_;
  NpyFile& dy_;
  Outputs& outputs_;
  const GradientWork what_;
  const Shape normalized_shape_, axes_;
  const Shape x_strides_, dy_strides_;  // in memory as in the file
  const std::uint64_t rows_;
};

}  // namespace evenorm::cli
