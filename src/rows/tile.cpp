// Moves tiles: copies contiguous columns, transposes contiguous rows by kernels, and moves other elements one by one.
#include "rows/tile.hpp"

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

}  // namespace

void move_tile(const Kernels& kernels, Move move, char* data, DType dtype, const Axes& row_axes, const Axes& col_axes,
               const Part& part, bool stream, char* tile, std::size_t tile_stride) {
  const std::size_t bytes = bytes_of(dtype);
  const auto move_one = bytes == 8   ? &move_plane<std::uint64_t>
                        : bytes == 4 ? &move_plane<std::uint32_t>
                                     : &move_plane<std::uint16_t>;
  Transpose* transpose = kernels.transpose[static_cast<std::size_t>(std::countr_zero(bytes)) - 1];
  for (std::size_t r = 0, r_run; r < part.rows; r += r_run) {
    r_run = even_run(row_axes, part.row + r, part.rows - r);
    char* row_data = data + row_axes.offset(part.row + r);
    for (std::size_t c = 0, c_run; c < part.cols; c += c_run) {
      char* start = row_data + col_axes.offset(part.col + c);
      char* to = tile + r * tile_stride + c * bytes;
      const Axis &rows = row_axes.inner(), &cols = col_axes.inner();
      c_run = transposed_cols(col_axes, bytes, part.col + c, part.cols - c);
      if (c_run == 0) {
        c_run = even_run(col_axes, part.col + c, part.cols - c);
        move_one(transpose, {start, rows.stride, cols.stride, r_run, c_run}, move, stream, to, tile_stride);
        continue;
      }
      const std::size_t runs = c_run / cols.size;
      for (std::size_t i = 0; i < r_run; ++i, start += rows.stride, to += tile_stride) {
        move_one(transpose, {start, static_cast<std::ptrdiff_t>(bytes), cols.stride, runs, cols.size}, move, stream, to,
                 cols.size * bytes);
      }
    }
  }
}

}  // namespace evenorm::internal
