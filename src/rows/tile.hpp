// Tiles: some columns of some rows of a tensor of any layout, as rows of contiguous elements in scratch. Elements are
// moved unchanged, whatever their type. A channels-first tensor is transposed.
#pragma once

#include <cstddef>

#include "kernels/kernels.hpp"
#include "problem/problem.hpp"
#include "rows/panel.hpp"

namespace evenorm::internal {

// Moves a part of a tensor, plane by plane. stream: with non-temporal stores, if whole cache lines are written.
void move_tile(const Kernels& kernels, Move move, char* data, DType dtype, const Axes& row_axes, const Axes& col_axes,
               const Part& part, bool stream, char* tile, std::size_t tile_stride);

// Scratch for parts of a matrix: single blocks of a row on request or, while held, a block of several rows.
template <class Pointer>
class Tile {
 public:
  // memory: null if the tile is not used.
  Tile(const Kernels& kernels, const Matrix<Pointer>& m, bool stream, void* memory, std::size_t row_bytes)
      : kernels_(kernels), m_(m), stream_(stream), memory_(static_cast<char*>(memory)), row_bytes_(row_bytes) {}
  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;

  Tile* if_used() { return memory_ == nullptr ? nullptr : this; }

  // While held, the calls below use only the held part.
  void hold(const Part& part) {
    part_ = part;
    held_ = true;
  }
  void release() { held_ = false; }
  void gather(const Part& part) {
    hold(part);
    move_all(Move::gather);
  }
  void scatter() const { move_all(Move::scatter); }

  bool is_held() const { return held_; }
  std::ptrdiff_t step() const { return static_cast<std::ptrdiff_t>(row_bytes_); }  // from a row to the next
  // The address of an element in the covered part.
  char* at(std::size_t row, std::size_t col) const {
    return memory_ + (row - part_.row) * row_bytes_ + (col - part_.col) * bytes_of(m_.dtype);
  }

  // Gathers n elements of a row.
  const char* load(std::size_t row, std::size_t col, std::size_t n) {
    char* memory = reserve(row, col, n);
    if (!held_) move_all(Move::gather);
    return memory;
  }
  // Returns room for n elements of a row. deliver() scatters them unless they are held.
  char* reserve(std::size_t row, std::size_t col, std::size_t n) {
    if (!held_) part_ = {row, 1, col, n};
    return at(row, col);
  }
  void deliver() const {
    if (!held_) scatter();
  }

 private:
  void move_all(Move move) const {
    char* data = const_cast<char*>(static_cast<const char*>(m_.data));
    move_tile(kernels_, move, data, m_.dtype, m_.rows, m_.cols, part_, stream_, memory_, row_bytes_);
  }

  const Kernels& kernels_;
  const Matrix<Pointer>& m_;
  bool stream_;
  char* memory_;
  std::size_t row_bytes_;
  Part part_;
  bool held_ = false;
};

}  // namespace evenorm::internal
