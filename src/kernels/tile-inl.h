// Tiles: some columns of some rows of a tensor of any layout, as rows of contiguous elements in scratch. Elements are
// moved as they are, whatever their type. Where rows, not columns, lie side by side in memory, a tile is a
// transposition. Included once per target.
#if defined(EVENORM_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_TILE_INL_H_
#undef EVENORM_KERNELS_TILE_INL_H_
#else
#define EVENORM_KERNELS_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/row_functions.hpp"
#include "kernels/scratch.hpp"
#include "problem.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

enum class Move { gather, scatter };  // from the tensor to the tile; from the tile to the tensor

// A rectangle of a tensor, over which both rows and columns step evenly.
struct Plane {
  char* data;
  std::ptrdiff_t row_stride, col_stride;  // bytes
  size_t rows, cols;
};

template <Move kMove, class U>
HWY_INLINE void MoveElement(char* tensor, char* tile) {
  kMove == Move::gather ? std::memcpy(tile, tensor, sizeof(U)) : std::memcpy(tensor, tile, sizeof(U));
}

template <Move kMove, class U>
HWY_INLINE void MoveElements(const Plane& p, size_t first_row, size_t first_col, char* tile, size_t tile_stride) {
  for (size_t r = first_row; r < p.rows; ++r) {
    char* tensor_row = p.data + static_cast<std::ptrdiff_t>(r) * p.row_stride;
    char* tile_row = tile + r * tile_stride;
    for (size_t c = first_col; c < p.cols; ++c) {
      MoveElement<kMove, U>(tensor_row + static_cast<std::ptrdiff_t>(c) * p.col_stride, tile_row + c * sizeof(U));
    }
  }
}

#if HWY_TARGET != HWY_SCALAR

// kN x kN elements. Rounds of interleaving the first half of the vectors with the second transpose them.
template <class U>
HWY_INLINE void TransposeSquare(const char* from, std::ptrdiff_t from_stride, char* to, std::ptrdiff_t to_stride) {
  const hn::Full128<U> d;
  constexpr size_t kN = 16 / sizeof(U);
  hn::Vec<decltype(d)> v[kN];
  for (size_t i = 0; i < kN; ++i) {
    v[i] = hn::LoadU(d, reinterpret_cast<const U*>(from + static_cast<std::ptrdiff_t>(i) * from_stride));
  }
  for (size_t round = 1; round < kN; round *= 2) {
    hn::Vec<decltype(d)> w[kN];
    for (size_t i = 0; i < kN / 2; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + kN / 2]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kN / 2]);
    }
    for (size_t i = 0; i < kN; ++i) v[i] = w[i];
  }
  for (size_t i = 0; i < kN; ++i) {
    hn::StoreU(v[i], d, reinterpret_cast<U*>(to + static_cast<std::ptrdiff_t>(i) * to_stride));
  }
}

// A plane whose rows lie side by side: squares, then what they leave at the right and at the bottom.
template <Move kMove, class U>
HWY_INLINE void MoveTransposed(const Plane& p, char* tile, size_t tile_stride) {
  constexpr size_t kN = 16 / sizeof(U);
  const size_t rows = p.rows / kN * kN, cols = p.cols / kN * kN;
  const auto stride = static_cast<std::ptrdiff_t>(tile_stride);
  for (size_t c = 0; c < cols; c += kN) {
    char* tensor = p.data + static_cast<std::ptrdiff_t>(c) * p.col_stride;
    for (size_t r = 0; r < rows; r += kN) {
      char* square = tile + r * tile_stride + c * sizeof(U);
      if constexpr (kMove == Move::gather) {
        TransposeSquare<U>(tensor + r * sizeof(U), p.col_stride, square, stride);
      } else {
        TransposeSquare<U>(square, stride, tensor + r * sizeof(U), p.col_stride);
      }
    }
  }
  MoveElements<kMove, U>({p.data, p.row_stride, p.col_stride, rows, p.cols}, 0, cols, tile, tile_stride);
  MoveElements<kMove, U>(p, rows, 0, tile, tile_stride);
}

#else

template <Move kMove, class U>
HWY_INLINE void MoveTransposed(const Plane& p, char* tile, size_t tile_stride) {
  MoveElements<kMove, U>(p, 0, 0, tile, tile_stride);
}

#endif

template <Move kMove>
HWY_INLINE void MoveDense(const Plane& p, size_t bytes, char* tile, size_t tile_stride) {
  for (size_t r = 0; r < p.rows; ++r) {
    char* tensor = p.data + static_cast<std::ptrdiff_t>(r) * p.row_stride;
    char* row = tile + r * tile_stride;
    kMove == Move::gather ? std::memcpy(row, tensor, p.cols * bytes) : std::memcpy(tensor, row, p.cols * bytes);
  }
}

template <Move kMove, class U>
HWY_NOINLINE void MovePlane(const Plane& p, char* tile, size_t tile_stride) {
  constexpr auto kBytes = static_cast<std::ptrdiff_t>(sizeof(U));
  if (p.col_stride == kBytes) {
    MoveDense<kMove>(p, sizeof(U), tile, tile_stride);
  } else if (p.row_stride == kBytes) {
    MoveTransposed<kMove, U>(p, tile, tile_stride);
  } else {
    MoveElements<kMove, U>(p, 0, 0, tile, tile_stride);
  }
}

// Rows [row, row + rows) and columns [col, col + cols) of a tensor, plane by plane.
template <Move kMove>
HWY_NOINLINE void MoveTile(char* data, DType dtype, const Axes& row_axes, const Axes& col_axes, size_t row, size_t rows,
                           size_t col, size_t cols, char* tile, size_t tile_stride) {
  const size_t bytes = bytes_of(dtype);
  const auto move = bytes == 8   ? &MovePlane<kMove, uint64_t>
                    : bytes == 4 ? &MovePlane<kMove, uint32_t>
                                 : &MovePlane<kMove, uint16_t>;
  // How many of the next n indices step evenly along the innermost axis.
  const auto run = [](const Axes& axes, size_t index, size_t n) {
    return axes.count() <= 1 ? n : HWY_MIN(n, axes.inner().size - index % axes.inner().size);
  };
  for (size_t r = 0, r_run; r < rows; r += r_run) {
    r_run = run(row_axes, row + r, rows - r);
    char* row_data = data + row_axes.offset(row + r);
    for (size_t c = 0, c_run; c < cols; c += c_run) {
      c_run = run(col_axes, col + c, cols - c);
      move({row_data + col_axes.offset(col + c), row_axes.inner().stride, col_axes.inner().stride, r_run, c_run},
           tile + r * tile_stride + c * bytes, tile_stride);
    }
  }
}

// One row's worth, from a vector.
HWY_INLINE void GatherVector(const Vector<const void*>& v, size_t first, size_t n, void* to) {
  char* data = const_cast<char*>(static_cast<const char*>(v.data));
  MoveTile<Move::gather>(data, v.dtype, Axes(), v.axes, 0, 1, first, n, static_cast<char*>(to), 0);
}

// Scratch for parts of a matrix: block by block of one row, as they are asked for, or, while held, several rows of a
// block at once.
template <class Pointer>
class Tile {
 public:
  Tile(const Matrix<Pointer>& m, char* memory, size_t row_bytes) : m_(m), memory_(memory), row_bytes_(row_bytes) {}

  // While held, the calls below concern the held part alone.
  void Hold(size_t row, size_t rows, size_t col, size_t cols) {
    Cover(row, rows, col, cols);
    held_ = true;
  }
  void Release() { held_ = false; }
  void Gather() const { MoveAll<Move::gather>(); }
  void Scatter() const { MoveAll<Move::scatter>(); }

  // n elements of a row, gathered.
  const char* Load(size_t row, size_t col, size_t n) {
    char* memory = Reserve(row, col, n);
    if (!held_) Gather();
    return memory;
  }
  // Room for n elements of a row, which Deliver() scatters unless they are held.
  char* Reserve(size_t row, size_t col, size_t n) {
    if (!held_) Cover(row, 1, col, n);
    return memory_ + (row - row_) * row_bytes_ + (col - col_) * bytes_of(m_.dtype);
  }
  void Deliver() const {
    if (!held_) Scatter();
  }

 private:
  void Cover(size_t row, size_t rows, size_t col, size_t cols) {
    row_ = row;
    rows_ = rows;
    col_ = col;
    cols_ = cols;
  }
  template <Move kMove>
  void MoveAll() const {
    char* data = const_cast<char*>(static_cast<const char*>(m_.data));
    MoveTile<kMove>(data, m_.dtype, m_.rows, m_.cols, row_, rows_, col_, cols_, memory_, row_bytes_);
  }

  const Matrix<Pointer>& m_;
  char* memory_;
  size_t row_bytes_;
  size_t row_ = 0, rows_ = 0, col_ = 0, cols_ = 0;
  bool held_ = false;
};

// The tiles of those of x and y whose rows are not dense, of up to kBlock columns. Elements of one size share one:
// results take the place of what they were made from.
class Tiles {
 public:
  // At most `most_rows` rows, and no more than the scratch has room for beside `beside_row` bytes for each.
  Tiles(const Problem& p, Scratch& scratch, size_t most_rows, size_t beside_row)
      : gathers_x_(!has_dense_rows(p.x)),
        scatters_y_(!has_dense_rows(p.y)),
        shared_(gathers_x_ && scatters_y_ && bytes_of(p.x.dtype) == bytes_of(p.y.dtype)),
        x_bytes_(gathers_x_ ? RowBytes(p, p.x.dtype) : 0),
        y_bytes_(scatters_y_ ? RowBytes(p, p.y.dtype) : 0),
        rows_(Fitting(p, scratch.left(), most_rows, beside_row)),
        x_memory_(scratch.take<char>(rows_ * x_bytes_)),
        y_memory_(shared_ ? x_memory_ : scratch.take<char>(rows_ * y_bytes_)),
        x_(p.x, x_memory_, x_bytes_),
        y_(p.y, y_memory_, y_bytes_) {}
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  size_t Rows() const { return rows_; }  // 0 where both tensors have dense rows
  Tile<const void*>* X() { return gathers_x_ ? &x_ : nullptr; }
  Tile<void*>* Y() { return scatters_y_ ? &y_ : nullptr; }

  void LoadX(size_t row, size_t rows, size_t col, size_t cols) {
    if (!gathers_x_) return;
    x_.Hold(row, rows, col, cols);
    x_.Gather();
  }
  void HoldY(size_t row, size_t rows, size_t col, size_t cols) { y_.Hold(row, rows, col, cols); }
  void StoreY() {
    if (scatters_y_) y_.Scatter();
  }
  void Release() {
    x_.Release();
    y_.Release();
  }

 private:
  // Whole cache lines, and not a power of two apart, which would put all rows in the same few places of a cache.
  static size_t RowBytes(const Problem& p, DType dtype) {
    const size_t bytes = HWY_MIN(p.cols, kBlock) * bytes_of(dtype);
    if (bytes < 64) return (bytes + 15) / 16 * 16;
    return (bytes + 63) / 64 * 64 + (bytes % 1024 == 0 ? 64 : 0);
  }

  // Where many rows fit, a number of them that is whole cache lines of one column.
  size_t Fitting(const Problem& p, size_t left, size_t most, size_t beside_row) const {
    const size_t row = x_bytes_ + (shared_ ? 0 : y_bytes_);
    if (row == 0) return 0;
    const size_t line = 64 / HWY_MIN(bytes_of(p.x.dtype), bytes_of(p.y.dtype));
    const size_t rows = HWY_MIN(most, (left - 3 * 64) / (row + beside_row));
    return rows < line ? HWY_MAX(rows, size_t{1}) : rows / line * line;
  }

  bool gathers_x_, scatters_y_, shared_;
  size_t x_bytes_, y_bytes_;
  size_t rows_;
  char* x_memory_;
  char* y_memory_;
  Tile<const void*> x_;
  Tile<void*> y_;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
