// Moves parts of tensors of any layout: copies contiguous columns, transposes contiguous rows by kernels, and moves
// other elements one by one. Elements are moved unchanged, and converted in memory.
#include "panels/panel.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace evenorm::internal {
namespace {

// Moves the elements from (first_row, first_col) on: of contiguous columns whole rows, else one by one.
template <class U>
void move_elements(const Plane& p, Move move, std::size_t first_row, std::size_t first_col, char* tile,
                   std::size_t tile_stride) {
  for (std::size_t r = first_row; r < p.rows; ++r) {
    char* tensor_row = p.data + static_cast<std::ptrdiff_t>(r) * p.row_stride;
    char* tile_row = tile + r * tile_stride;
    if (p.col_stride == sizeof(U)) {
      move == Move::gather ? std::memcpy(tile_row, tensor_row, p.cols * sizeof(U))
                           : std::memcpy(tensor_row, tile_row, p.cols * sizeof(U));
      continue;
    }
    for (std::size_t c = first_col; c < p.cols; ++c) {
      char* element = tensor_row + static_cast<std::ptrdiff_t>(c) * p.col_stride;
      char* copy = tile_row + c * sizeof(U);
      move == Move::gather ? std::memcpy(copy, element, sizeof(U)) : std::memcpy(element, copy, sizeof(U));
    }
  }
}

template <class U>
void move_plane(Transpose* transpose, const Plane& p, Move move, bool stream, char* tile, std::size_t tile_stride) {
  constexpr auto kBytes = static_cast<std::ptrdiff_t>(sizeof(U));
  if (p.col_stride == kBytes || p.row_stride != kBytes) return move_elements<U>(p, move, 0, 0, tile, tile_stride);
  const std::size_t side = transpose(p, move, stream, tile, tile_stride);
  const std::size_t rows = side == 0 ? 0 : p.rows / side * side, cols = side == 0 ? 0 : p.cols / side * side;
  Plane above = p;
  above.rows = rows;
  move_elements<U>(above, move, 0, cols, tile, tile_stride);
  move_elements<U>(p, move, rows, 0, tile, tile_stride);
}

// How many of the next n columns, from column `col` on, form a transposed matrix: whole runs of the innermost axis,
// whose first elements lie side by side, such as the channels of a channels-last image. Less than two runs do not
// count.
std::size_t transposed_cols(const Axes& axes, std::size_t bytes, std::size_t col, std::size_t n) {
  if (axes.count() < 2) return 0;
  const Axis &runs = axes[axes.count() - 2], &run = axes.inner();
  if (runs.stride != static_cast<std::ptrdiff_t>(bytes) || col % run.size != 0) return 0;
  const std::size_t count = std::min(n / run.size, runs.size - col / run.size % runs.size);
  return count < 2 ? 0 : count * run.size;
}

constexpr std::size_t kPiece = 64;  // elements that are converted at once where they are in memory

}  // namespace

// Moves a part plane by plane.
void Panel::move(Move direction, const Part& part, char* memory, std::ptrdiff_t step) const {
  const std::size_t bytes = bytes_of(dtype_), stride = static_cast<std::size_t>(step);
  const auto move_one = bytes == 8   ? &move_plane<std::uint64_t>
                        : bytes == 4 ? &move_plane<std::uint32_t>
                                     : &move_plane<std::uint16_t>;
  Transpose* transpose = kernels_.transpose[static_cast<std::size_t>(std::countr_zero(bytes)) - 1];
  for (std::size_t r = 0, r_run; r < part.rows; r += r_run) {
    r_run = even_run(rows_, part.row + r, part.rows - r);
    char* row_data = data_ + rows_.offset(part.row + r);
    for (std::size_t c = 0, c_run; c < part.cols; c += c_run) {
      char* start = row_data + cols_.offset(part.col + c);
      char* to = memory + r * stride + c * bytes;
      const Axis &rows = rows_.inner(), &cols = cols_.inner();
      c_run = transposed_cols(cols_, bytes, part.col + c, part.cols - c);
      if (c_run == 0) {
        c_run = even_run(cols_, part.col + c, part.cols - c);
        move_one(transpose, {start, rows.stride, cols.stride, r_run, c_run}, direction, stream_, to, stride);
        continue;
      }
      const std::size_t runs = c_run / cols.size;
      for (std::size_t i = 0; i < r_run; ++i, start += rows.stride, to += stride) {
        move_one(transpose, {start, static_cast<std::ptrdiff_t>(bytes), cols.stride, runs, cols.size}, direction,
                 stream_, to, cols.size * bytes);
      }
    }
  }
}

// What is narrower than T is gathered to the end of a row's memory, and widened from its start on.
void Panel::load(const Part& part, char* to, std::ptrdiff_t step) const {
  const std::size_t bytes = bytes_of(dtype_), size = bytes_of(type_), before = part.cols * (size - bytes);
  Convert* widen = kernels_.convert[index_of(dtype_)][index_of(type_)];
  if (access_ == Access::gathered) move(Move::gather, part, to + before, step);
  for (std::size_t r = 0; dtype_ != type_ && r < part.rows; ++r, to += step) {
    if (access_ == Access::converted) {
      widen(place(part.row + r, part.col), to, part.cols);
      continue;
    }
    std::byte piece[kPiece * sizeof(double)];
    for (std::size_t c = 0, n; c < part.cols; c += n) {
      n = std::min(kPiece, part.cols - c);
      std::memcpy(piece, to + before + c * bytes, n * bytes);
      widen(piece, to + c * size, n);
    }
  }
}

void Panel::store(const Part& part, char* from, std::ptrdiff_t step) const {
  const std::size_t bytes = bytes_of(dtype_), size = bytes_of(type_);
  Convert* narrow = kernels_.convert[index_of(type_)][index_of(dtype_)];
  for (std::size_t r = 0; dtype_ != type_ && r < part.rows; ++r) {
    char* row = from + static_cast<std::ptrdiff_t>(r) * step;
    if (access_ == Access::converted) {
      narrow(row, place(part.row + r, part.col), part.cols);
      continue;
    }
    std::byte piece[kPiece * sizeof(double)];
    for (std::size_t c = 0, n; c < part.cols; c += n) {
      n = std::min(kPiece, part.cols - c);
      narrow(row + c * size, piece, n);
      std::memcpy(row + c * bytes, piece, n * bytes);
    }
  }
  if (access_ == Access::gathered) move(Move::scatter, part, from, step);
}

}  // namespace evenorm::internal
