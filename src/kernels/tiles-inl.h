// The tiles that a row function works on: how many rows and columns of x and y are in scratch at once, and what is
// fetched meanwhile. Included once per target.
#if defined(EVENORM_KERNELS_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_TILES_INL_H_
#undef EVENORM_KERNELS_TILES_INL_H_
#else
#define EVENORM_KERNELS_TILES_INL_H_
#endif

#include "kernels/row_functions.hpp"
#include "kernels/scratch.hpp"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Those of x and y whose rows are not dense. Elements of one size share one tile: results take the place of what they
// were made from.
class Tiles {
 public:
  static constexpr size_t kMaxRows = 32;  // where a tile is less than whole rows: a line of 16-bit elements

  // Takes scratch for whole rows, or else for pieces of a block, leaving `beside_row` bytes for each row.
  Tiles(const Problem& p, Scratch& scratch, size_t beside_row)
      : problem_(p),
        gathers_x_(!has_dense_rows(p.x)),
        scatters_y_(!has_dense_rows(p.y)),
        shared_(gathers_x_ && scatters_y_ && bytes_of(p.x.dtype) == bytes_of(p.y.dtype)),
        fetches_(p.fetch_x && gathers_x_ && p.x.cols.count() == 1 && HasRowsSideBySide(p.x)) {
    if (!gathers_x_ && !scatters_y_) return;
    Divide(scratch.left() - kRounding, beside_row);
    char* x_memory = scratch.take<char>(XMemory());
    char* y_memory = shared_ ? x_memory : scratch.take<char>(YMemory());
    x_ = Tile<const void*>(p.x, false, x_memory, x_bytes_);
    y_ = Tile<void*>(p.y, p.stream_y, y_memory, y_bytes_);
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  size_t Rows() const { return rows_; }  // 0 where both tensors have dense rows
  size_t Cols() const { return cols_; }  // all of them, or a multiple of kMapStep that is no more than a block
  bool HoldWholeRows() const { return rows_ == 0 || cols_ == problem_.cols; }
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

  // What LoadX() will be called for next: FetchLines() fetches it line by line.
  void WillLoadX(size_t row, size_t rows, size_t col, size_t cols) {
    ahead_ = {};
    if (!fetches_ || row >= problem_.rows) return;
    const Matrix<const void*>& x = problem_.x;
    const char* start = static_cast<const char*>(x.data) + x.rows.offset(row) + x.cols.offset(col);
    ahead_ = {start, start, start + rows * bytes_of(x.dtype), cols};
  }
  bool Fetches() const { return fetches_; }
  HWY_INLINE void FetchLines(size_t n) {
    for (; n != 0 && ahead_.cols != 0; --n) {
      hwy::Prefetch(ahead_.next);
      ahead_.next += 64;
      if (ahead_.next >= ahead_.end) {
        const std::ptrdiff_t stride = problem_.x.cols.inner().stride;
        ahead_ = {ahead_.start + stride, ahead_.start + stride, ahead_.end + stride, ahead_.cols - 1};
      }
    }
  }

 private:
  static constexpr size_t kRounding = size_t{4} * 64;       // what pieces of scratch are rounded up by
  static constexpr size_t kWholeRounding = size_t{2} * 64;  // of whole rows: two pieces

  // What of a column is fetched next, and how many columns there are from it on.
  struct Ahead {
    const char* start = nullptr;
    const char* next = nullptr;
    const char* end = nullptr;
    size_t cols = 0;
  };

  template <class Pointer>
  static bool HasRowsSideBySide(const Matrix<Pointer>& m) {
    return m.rows.inner().stride == static_cast<std::ptrdiff_t>(bytes_of(m.dtype));
  }

  // Where rows lie side by side, a tile has whole cache lines of a column, if need be of fewer columns: of half lines,
  // every line would be read twice.
  void Divide(size_t bytes, size_t beside_row) {
    const size_t line = 64 / HWY_MIN(bytes_of(problem_.x.dtype), bytes_of(problem_.y.dtype));
    const bool side_by_side = HasRowsSideBySide(problem_.x) || HasRowsSideBySide(problem_.y);
    SetCols(problem_.cols);
    const size_t for_whole = bytes + kRounding - kWholeRounding;
    rows_ = for_whole / RowBytes();
    if (rows_ > line) rows_ = rows_ / line * line;
    if (rows_ >= (side_by_side ? line : 1) && Memory() <= for_whole) return;
    for (rows_ = line; rows_ != 0; rows_ /= 2) {
      for (size_t cols = kBlock; cols != 0; cols -= kPiece) {
        SetCols(cols);
        if (Memory() + rows_ * beside_row <= bytes) return;
      }
    }
    rows_ = 1;  // which always fits: what is taken before leaves more than a block of each tensor
    SetCols(kPiece);
  }

  void SetCols(size_t cols) {
    cols_ = cols;
    x_bytes_ = gathers_x_ ? Apart(cols_ * bytes_of(problem_.x.dtype)) : 0;
    y_bytes_ = scatters_y_ ? Apart(cols_ * bytes_of(problem_.y.dtype)) : 0;
  }
  size_t RowBytes() const { return shared_ ? x_bytes_ : x_bytes_ + y_bytes_; }
  // Whole cache lines, and not a power of two apart, which would put all rows in the same few places of a cache.
  static size_t Apart(size_t bytes) {
    if (bytes < 64) return (bytes + 15) / 16 * 16;
    return (bytes + 63) / 64 * 64 + (bytes % 1024 == 0 ? 64 : 0);
  }

  // Of the tiles, with room for a block of one row, too.
  size_t Memory() const { return XMemory() + (shared_ ? 0 : YMemory()); }
  size_t XMemory() const { return gathers_x_ ? MemoryOf(problem_.x.dtype, x_bytes_) : 0; }
  size_t YMemory() const { return scatters_y_ ? MemoryOf(problem_.y.dtype, y_bytes_) : 0; }
  size_t MemoryOf(DType dtype, size_t row_bytes) const {
    return HWY_MAX(rows_ * row_bytes, HWY_MIN(problem_.cols, kBlock) * bytes_of(dtype));
  }

  static constexpr size_t kPiece = 128;

  const Problem& problem_;
  bool gathers_x_, scatters_y_, shared_;
  bool fetches_;  // columns of x lie side by side, far from each other
  size_t x_bytes_ = 0, y_bytes_ = 0;
  size_t rows_ = 0, cols_ = 0;
  Ahead ahead_;
  Tile<const void*> x_;
  Tile<void*> y_;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
