// Reads a tensor from its file piece by piece, so that it need not fit in memory, and describes the norm of each piece.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

class NormPieces {
 public:
  // y: the type of a result with memory of its own; without one it overwrites x. pipe: the name of an input or output
  // that is read or written in order; empty if there is none. Throws Failure if a piece is too large. Borrows x and the
  // parameters of norm.
  NormPieces(NpyFile& x, const Norm& norm, std::optional<DType> y, const std::string& pipe = {},
             const MemoryLimits& limits = {});

  const Pieces& all() const noexcept { return pieces_; }
  void read_x(const Piece& piece) { read(piece, x_file_, x_); }
  void read_y(const Piece& piece, NpyFile& y) { read(piece, y, y_); }  // a file of x's shape, in x's order
  const Array& y() const noexcept { return y_.present() ? y_ : x_; }

  // The norm of a piece, from x to y, without statistics. Rows are in the file's order. The elements of a row are in
  // the order of x's axes, on which the bits depend. Borrows this object, until the next call.
  Forward forward_of(const Piece& piece);

 private:
  struct Layout {
    Shape shape, strides;
  };
  void read(const Piece& piece, NpyFile& file, Array& to) const;
  ConstTensor part_of(const NormParameter& parameter, const Piece& piece, Layout& layout) const;

  NpyFile& x_file_;
  const Norm norm_;
  const Extents extents_;
  const Pieces pieces_;
  const Shape normalized_shape_;
  std::vector<std::size_t> order_;  // the numbers of the extents in the views of forward_of(): rows, then normalised
  Array x_, y_;
  Layout x_layout_, weight_layout_, bias_layout_;  // of the views of forward_of()
};

}  // namespace evenorm::cli
