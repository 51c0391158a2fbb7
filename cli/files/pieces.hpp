// Divides a tensor that may be larger than memory into pieces of whole rows, and finds each piece in the file. It
// counts in elements, and knows nothing of types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace evenorm::cli {

// One axis of a tensor in its file.
struct Extent {
  std::size_t axis = 0;
  std::int64_t size = 1;
  bool rows = false;  // true: an axis that numbers the rows; false: a normalised axis
};

struct Extents {
  std::vector<Extent> in_file;          // outermost first
  std::vector<std::size_t> normalized;  // the numbers of the normalised extents, in the tensor's order of axes
};

// The axes of a tensor as they lie in its file, outermost first. With groups, the first two axes after the batch were
// one axis in the file; see in_groups().
std::vector<std::size_t> axes_in_file(std::size_t axes, bool fortran_order, bool groups = false);

// axes: the normalised axes, ascending. in_file: see axes_in_file().
Extents extents_of(std::span<const std::int64_t> shape, std::span<const std::size_t> axes,
                   std::span<const std::size_t> in_file);

// The limits of a piece, in elements. A piece has at least one row. It exceeds `wanted`, up to `most`, only to make its
// contiguous runs `run` long.
struct PieceLimits {
  std::int64_t wanted = 1;
  std::int64_t run = 1;
  std::int64_t most = 1;
  bool in_order = false;  // the file is read or written in order, so each piece is one run, however large
};

// Rows that follow each other in the file's order. In memory a piece has the file's order of elements, without gaps.
struct Piece {
  std::vector<std::int64_t> sizes, start;  // one per extent
  std::int64_t elements = 0;
  std::int64_t rows = 0;
  std::int64_t first = 0;      // number of the first element in the file
  std::int64_t first_row = 0;  // in the file's order
  std::int64_t run = 0;        // elements that are contiguous in the file
};

class Pieces {
 public:
  Pieces(std::vector<Extent> extents, const PieceLimits& limits);

  std::int64_t count() const noexcept { return count_; }
  std::uint64_t rows() const noexcept { return rows_; }
  std::uint64_t elements() const noexcept { return rows_ * static_cast<std::uint64_t>(row_elements_); }
  Piece largest() const { return box(0, 0); }  // empty if the tensor has no elements
  Piece operator[](std::int64_t i) const { return box(i / steps_, i % steps_); }

  // Calls `visit` with the first element of each run, in the order of memory.
  void for_each_run(const Piece& piece, const std::function<void(std::int64_t first)>& visit) const;

 private:
  void cut(const PieceLimits& limits);
  Piece box(std::int64_t outer, std::int64_t step) const;

  std::vector<Extent> extents_;
  std::vector<std::int64_t> strides_;
  bool empty_ = false;
  std::size_t cut_ = 0;     // the extent that is divided; a piece has one index of those before it, all of those after
  std::int64_t step_ = 0;   // indices of that extent in a piece
  std::int64_t steps_ = 1;  // pieces along that extent
  std::int64_t rows_after_ = 1;
  std::int64_t row_elements_ = 1;
  std::uint64_t rows_ = 0;
  std::int64_t count_ = 0;
};

// The strides, in elements, of a dense tensor with these sizes in C order, or whose axes lie as axes_in_file().
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> sizes);
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> sizes, std::span<const std::size_t> in_file);

}  // namespace evenorm::cli
