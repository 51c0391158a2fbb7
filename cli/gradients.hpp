// The backward pass over files. x and dy are in memory as a whole, because the order of the sums over rows depends on
// the size of the whole problem.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "cli/common/layout.hpp"
#include "cli/common/norm.hpp"
#include "cli/files/npy.hpp"

namespace evenorm::cli {

// The norm and its outputs, by number.
struct GradientWork {
  Norm norm{};
  DType dx_dtype = DType::f32;
  DType parameter_dtype = DType::f32;  // of dweight and dbias
  std::optional<std::size_t> dx{}, dweight{}, dbias{};
};

// The shapes of dweight or dbias: in its file, and as that of a NormParameter.
struct GradientShapes {
  Shape in_file, in_groups;
};

class Gradients {
 public:
  // Throws Error or Failure if the arguments are wrong. Reads, writes and allocates nothing large. Borrows x, dy and
  // outputs, which have been named but need not be open.
  Gradients(NpyFile& x, NpyFile& dy, Outputs& outputs, const GradientWork& what);

  std::uint64_t rows() const noexcept { return rows_; }
  std::uint64_t total_bytes() const;  // of x, dy and dx

  // Call it once, after outputs.open(). Calls `advance` with the bytes of x, dy and dx that are done.
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
  const Shape axes_;
  const Shape x_strides_, dy_strides_;  // the same in memory and in the file
  const GradientShapes dweight_, dbias_;
  const std::uint64_t rows_;
};

}  // namespace evenorm::cli
