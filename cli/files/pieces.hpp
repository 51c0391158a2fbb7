// A tensor that is larger than memory, cut into boxes that hold whole rows: which box comes when, and where it lies in
// the file. Counts elements only: knows nothing of types, of files or of what is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace evenorm::cli {

// One axis of a tensor in its file, or several that can be one.
struct Extent {
  std::int64_t size = 1;
  bool rows = false;  // its indices tell rows apart; else those of the elements of a row
};

struct Extents {
  std::vector<Extent> in_file;          // outermost first
  std::vector<std::size_t> normalized;  // those of the normalised axes, in the tensor's own order of axes
};

// axes: the normalised ones, ascending. Axes of rows that are neighbours in the file become one.
Extents extents_of(std::span<const std::int64_t> shape, std::span<const std::size_t> axes, bool fortran_order);

// In elements. A piece has at least one row, and grows beyond `wanted` only so that what lies together in the file is
// `run` long, and not beyond `most`.
struct PieceLimits {
  std::int64_t wanted = 1;
  std::int64_t run = 1;
  std::int64_t most = 1;
  bool in_order = false;  // the file is read or written in order: pieces of whole runs alone, however large
};

// A box of whole rows, and rows that follow each other in the file's order. In memory it lies as in the file, without
// the gaps.
struct Piece {
  std::vector<std::int64_t> sizes;  // one per extent
  std::int64_t elements = 0;
  std::int64_t rows = 0;
  std::int64_t first = 0;      // element in the file
  std::int64_t first_row = 0;  // in the file's order
  std::int64_t run = 0;        // elements that lie together
};

class Pieces {
 public:
  Pieces(std::vector<Extent> extents, const PieceLimits& limits);

  std::int64_t count() const noexcept { return count_; }
  std::uint64_t rows() const noexcept { return rows_; }
  std::uint64_t elements() const noexcept { return rows_ * static_cast<std::uint64_t>(row_elements_); }
  Piece largest() const { return box(0, 0); }  // of no elements where the tensor has none
  Piece operator[](std::int64_t i) const { return box(i / steps_, i % steps_); }

  // Calls `visit` with the place in the file of each run, in the order in which they lie in memory.
  void for_each_run(const Piece& piece, const std::function<void(std::int64_t first)>& visit) const;

 private:
  void cut(const PieceLimits& limits);
  Piece box(std::int64_t outer, std::int64_t step) const;

  std::vector<Extent> extents_;
  std::vector<std::int64_t> strides_;
  bool empty_ = false;
  std::size_t cut_ = 0;     // the extent of rows that is cut; single indices of those before it, all of those after
  std::int64_t step_ = 0;   // indices of it in a piece
  std::int64_t steps_ = 1;  // pieces of it
  std::int64_t rows_after_ = 1;
  std::int64_t row_elements_ = 1;
  std::uint64_t rows_ = 0;
  std::int64_t count_ = 0;
};

// Where the elements of a dense box lie, in elements: the strides of a tensor with these sizes in C order.
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> sizes);

}  // namespace evenorm::cli
