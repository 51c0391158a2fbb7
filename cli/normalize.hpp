// Normalises a tensor from file to file, piece by piece, so that it need not fit in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cli/common/layout.hpp"
#include "cli/common/norm.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/pieces.hpp"

namespace evenorm::cli {

// Limits in bytes of x and y together. The results do not depend on them.
struct MemoryLimits {
  std::int64_t wanted = std::int64_t{16} << 20;  // the usual size of a piece; small, for the caches
  std::int64_t run = std::int64_t{64} << 10;     // a piece grows until its contiguous runs in the file have this size
  std::int64_t most = std::int64_t{256} << 20;   // the size up to which a piece grows, unless one row is larger
  std::int64_t held = std::int64_t{1} << 30;     // the limit of a piece through a pipe, unless one row is larger
};

// The norm to run and its outputs, by number.
struct Normalization {
  Norm norm{};
  DType y_dtype = DType::f32;
  std::size_t y = 0;
  std::optional<std::size_t> mean{}, rstd{};
  MemoryLimits limits{};
};

class Normalizer {
 public:
  // Throws Error or Failure if the arguments are wrong. Reads and writes nothing. Borrows x and outputs, which have
  // been named but need not be open.
  Normalizer(NpyFile& x, Outputs& outputs, const Normalization& what);

  const Pieces& pieces() const noexcept { return pieces_; }
  std::uint64_t total_bytes() const;  // of x and y

  // Call it once, after outputs.open(). Calls `advance` with the bytes of x and y of each finished piece.
  void run(const std::function<void(std::uint64_t)>& advance);

 private:
  std::int64_t element_bytes() const;
  PieceLimits limits() const;
  void check_held() const;
  struct Layout {
    Shape shape, strides;
  };

  Forward forward_of(const Piece& piece);
  ConstTensor part_of(const NormParameter& parameter, const Piece& piece, Layout& layout) const;
  void read(const Piece& piece);
  void write(const Piece& piece);
  void write_headers();

  NpyFile& x_;
  Outputs& outputs_;
  const Normalization what_;
  const Extents extents_;
  const bool in_order_;
  const Pieces pieces_;
  const Shape normalized_shape_;
  std::vector<std::size_t> order_;  // the numbers of the extents in the views of forward_of(): rows, then normalised
  std::uint64_t y_start_ = 0, statistics_start_ = 0;  // bytes of the headers
  Array x_piece_, mean_piece_, rstd_piece_;
  Array y_piece_;                                  // absent if y overwrites x
  Layout x_layout_, weight_layout_, bias_layout_;  // of the views of forward_of()
  Shape statistics_shape_;
};

}  // namespace evenorm::cli
