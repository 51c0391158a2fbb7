// Tiles: some columns of some rows of a tensor of any layout, as rows of contiguous elements in scratch. Elements are
// moved as they are, whatever their type. Where rows, not columns, lie side by side in memory, a tile is a
// transposition. Included once per target.
#if defined(EVENORM_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_TILE_INL_H_
#undef EVENORM_KERNELS_TILE_INL_H_
#else
#define EVENORM_KERNELS_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

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

// The 128-bit blocks of a vector, `stride` bytes apart in memory.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const char* from, std::ptrdiff_t stride) {
  if constexpr (sizeof(hn::Vec<D>) == 16) {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
  } else {
    const hn::Half<D> half;
    constexpr std::ptrdiff_t kBlocks = sizeof(hn::Vec<D>) / 32;
    return hn::Combine(d, LoadBlocks(half, from + kBlocks * stride, stride), LoadBlocks(half, from, stride));
  }
}
template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, char* to, std::ptrdiff_t stride) {
  if constexpr (sizeof(hn::Vec<D>) == 16) {
    hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  } else {
    const hn::Half<D> half;
    constexpr std::ptrdiff_t kBlocks = sizeof(hn::Vec<D>) / 32;
    StoreBlocks(half, hn::LowerHalf(half, v), to, stride);
    StoreBlocks(half, hn::UpperHalf(half, v), to + kBlocks * stride, stride);
  }
}

// As many rows as a vector has lanes, by as many columns as a block has: squares, one in each block. Rounds of
// interleaving the first half of the vectors with the second transpose them.
template <Move kMove, bool kStream, class D>
HWY_INLINE void MoveSquares(D d, char* tensor, std::ptrdiff_t col_stride, char* tile, std::ptrdiff_t tile_stride) {
  using U = hn::TFromD<D>;
  constexpr size_t kN = 16 / sizeof(U);
  const auto column = [&](size_t i) {
    return reinterpret_cast<U*>(tensor + static_cast<std::ptrdiff_t>(i) * col_stride);
  };
  const auto row = [&](size_t i) { return tile + static_cast<std::ptrdiff_t>(i) * tile_stride; };
  hn::Vec<D> v[kN];
  for (size_t i = 0; i < kN; ++i) {
    v[i] = kMove == Move::gather ? hn::LoadU(d, column(i)) : LoadBlocks(d, row(i), kN * tile_stride);
  }
  for (size_t round = 1; round < kN; round *= 2) {
    hn::Vec<D> w[kN];
    for (size_t i = 0; i < kN / 2; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + kN / 2]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kN / 2]);
    }
    for (size_t i = 0; i < kN; ++i) v[i] = w[i];
  }
  for (size_t i = 0; i < kN; ++i) {
    if constexpr (kMove == Move::gather) {
      StoreBlocks(d, v[i], row(i), kN * tile_stride);
    } else {
      kStream ? hn::Stream(v[i], d, column(i)) : hn::StoreU(v[i], d, column(i));
    }
  }
}

// A plane whose rows lie side by side: squares, then what they leave at the right and at the bottom.
template <Move kMove, bool kStream, class U>
HWY_INLINE void MoveTransposed(const Plane& p, char* tile, size_t tile_stride) {
  const hn::ScalableTag<U> d;
  const hn::Full128<U> d128;
  constexpr size_t kN = 16 / sizeof(U), kLanesD = hn::MaxLanes(d);
  const size_t rows = p.rows / kN * kN, cols = p.cols / kN * kN;
  const auto stride = static_cast<std::ptrdiff_t>(tile_stride);
  for (size_t c = 0; c < cols; c += kN) {
    char* tensor = p.data + static_cast<std::ptrdiff_t>(c) * p.col_stride;
    char* squares = tile + c * sizeof(U);
    size_t r = 0;
    for (; r + kLanesD <= rows; r += kLanesD) {
      MoveSquares<kMove, kStream>(d, tensor + r * sizeof(U), p.col_stride, squares + r * tile_stride, stride);
    }
    for (; r < rows; r += kN) {
      MoveSquares<kMove, kStream>(d128, tensor + r * sizeof(U), p.col_stride, squares + r * tile_stride, stride);
    }
  }
  MoveElements<kMove, U>({p.data, p.row_stride, p.col_stride, rows, p.cols}, 0, cols, tile, tile_stride);
  MoveElements<kMove, U>(p, rows, 0, tile, tile_stride);
}

#else

template <Move kMove, bool kStream, class U>
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

// `stream`: past the caches, where whole lines are written.
template <Move kMove, class U>
HWY_NOINLINE void MovePlane(const Plane& p, bool stream, char* tile, size_t tile_stride) {
  constexpr auto kBytes = static_cast<std::ptrdiff_t>(sizeof(U));
  if (p.col_stride == kBytes) {
    MoveDense<kMove>(p, sizeof(U), tile, tile_stride);
  } else if (p.row_stride == kBytes) {
    const auto places = reinterpret_cast<uintptr_t>(p.data) | static_cast<uintptr_t>(p.col_stride) | p.rows * sizeof(U);
    if (kMove == Move::scatter && stream && places % 64 == 0) {
      MoveTransposed<kMove, true, U>(p, tile, tile_stride);
    } else {
      MoveTransposed<kMove, false, U>(p, tile, tile_stride);
    }
  } else {
    MoveElements<kMove, U>(p, 0, 0, tile, tile_stride);
  }
}

// Rows [row, row + rows) and columns [col, col + cols) of a tensor, plane by plane.
template <Move kMove>
HWY_NOINLINE void MoveTile(char* data, DType dtype, const Axes& row_axes, const Axes& col_axes, size_t row, size_t rows,
                           size_t col, size_t cols, bool stream, char* tile, size_t tile_stride) {
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
           stream, tile + r * tile_stride + c * bytes, tile_stride);
    }
  }
}

// One row's worth, from a vector.
HWY_INLINE void GatherVector(const Vector<const void*>& v, size_t first, size_t n, void* to) {
  char* data = const_cast<char*>(static_cast<const char*>(v.data));
  MoveTile<Move::gather>(data, v.dtype, Axes(), v.axes, 0, 1, first, n, false, static_cast<char*>(to), 0);
}

// Scratch for parts of a matrix: block by block of one row, as they are asked for, or, while held, several rows of a
// block at once.
template <class Pointer>
class Tile {
 public:
  Tile() = default;
  Tile(const Matrix<Pointer>& m, bool stream, char* memory, size_t row_bytes)
      : m_(&m), stream_(stream), memory_(memory), row_bytes_(row_bytes) {}

  // While held, the calls below concern the held part alone.
  void Hold(size_t row, size_t rows, size_t col, size_t cols) {
    Cover(row, rows, col, cols);
    held_ = true;
  }
  void Release() { held_ = false; }
  void Gather() const { MoveAll<Move::gather>(); }
  void Scatter() const { MoveAll<Move::scatter>(); }

  bool IsHeld() const { return held_; }
  // The place of an element of the part that is covered.
  HWY_INLINE char* At(size_t row, size_t col) const {
    return memory_ + (row - row_) * row_bytes_ + (col - col_) * bytes_of(m_->dtype);
  }

  // n elements of a row, gathered.
  const char* Load(size_t row, size_t col, size_t n) {
    char* memory = Reserve(row, col, n);
    if (!held_) Gather();
    return memory;
  }
  // Room for n elements of a row, which Deliver() scatters unless they are held.
  char* Reserve(size_t row, size_t col, size_t n) {
    if (!held_) Cover(row, 1, col, n);
    return At(row, col);
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
    char* data = const_cast<char*>(static_cast<const char*>(m_->data));
    MoveTile<kMove>(data, m_->dtype, m_->rows, m_->cols, row_, rows_, col_, cols_, stream_, memory_, row_bytes_);
  }

  const Matrix<Pointer>* m_ = nullptr;
  bool stream_ = false;
  char* memory_ = nullptr;
  size_t row_bytes_ = 0;
  size_t row_ = 0, rows_ = 0, col_ = 0, cols_ = 0;
  bool held_ = false;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
