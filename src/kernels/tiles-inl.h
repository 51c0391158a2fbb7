// The tiles that a row function works on, as they are planned: rows and columns of x and y that are in scratch at once;
// and what is fetched meanwhile. Included once per target.
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

// Those of x and y whose rows are not dense.
class Tiles {
 public:
  Tiles(const Problem& p, const TilePlan& plan, const Scratch& scratch)
      : problem_(p),
        plan_(plan),
        gathers_x_(plan.x_bytes != 0),
        scatters_y_(plan.y_bytes != 0),
        fetches_(p.fetch_x && gathers_x_ && p.x.cols.count() == 1 &&
                 p.x.rows.inner().stride == static_cast<std::ptrdiff_t>(bytes_of(p.x.dtype))) {
    if (gathers_x_) x_ = Tile<const void*>(p.x, false, scratch.at<char>(plan.x), plan.x_bytes);
    if (scatters_y_) y_ = Tile<void*>(p.y, p.stream_y, scratch.at<char>(plan.y), plan.y_bytes);
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  size_t Rows() const { return plan_.rows; }  // 0 where both tensors have dense rows
  size_t Cols() const { return plan_.cols; }  // all of them, or a multiple of kMapStep that is no more than a block
  bool HoldWholeRows() const { return plan_.rows == 0 || plan_.cols == problem_.cols; }
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
  // What of a column is fetched next, and how many columns there are from it on.
  struct Ahead {
    const char* start = nullptr;
    const char* next = nullptr;
    const char* end = nullptr;
    size_t cols = 0;
  };

  const Problem& problem_;
  const TilePlan& plan_;
  bool gathers_x_, scatters_y_;
  bool fetches_;  // columns of x lie side by side, far from each other
  Ahead ahead_;
  Tile<const void*> x_;
  Tile<void*> y_;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
