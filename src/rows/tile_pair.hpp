// The tiles of x and y in a forward pass, as planned, and what is prefetched meanwhile. tile.hpp moves them.
#pragma once

#include "plan/scratch.hpp"
#include "rows/tile.hpp"

namespace evenorm::internal {

// Tiles for those of x and y whose rows are not dense.
class TilePair {
 public:
  TilePair(const Kernels& kernels, const Problem& p, const TilePlan& plan, CacheUse cache, const Scratch& scratch)
      : problem_(p),
        plan_(plan),
        gathers_x_(plan.x_bytes != 0),
        scatters_y_(plan.y_bytes != 0),
        prefetches_(cache.prefetch_x && gathers_x_ && p.x.cols.count() == 1 &&
                    p.x.rows.inner().stride == static_cast<std::ptrdiff_t>(bytes_of(p.x.dtype))) {
    if (gathers_x_) x_ = Tile<const void*>(kernels, p.x, false, scratch.at<char>(plan.x), plan.x_bytes);
    if (scatters_y_) y_ = Tile<void*>(kernels, p.y, cache.stream_y, scratch.at<char>(plan.y), plan.y_bytes);
  }
  TilePair(const TilePair&) = delete;
  TilePair& operator=(const TilePair&) = delete;

  std::size_t rows() const { return plan_.rows; }  // 0 if both tensors have dense rows
  // All columns, or a multiple of kTileStep that is at most a block.
  std::size_t cols() const { return plan_.cols; }
  bool hold_whole_rows() const { return plan_.rows == 0 || plan_.cols == problem_.cols; }
  Tile<const void*>* x() { return gathers_x_ ? &x_ : nullptr; }
  Tile<void*>* y() { return scatters_y_ ? &y_ : nullptr; }

  void load_x(const Part& part) {
    if (!gathers_x_) return;
    x_.hold(part);
    x_.gather();
  }
  void hold_y(const Part& part) { y_.hold(part); }
  void store_y() {
    if (scatters_y_) y_.scatter();
  }
  void release() {
    x_.release();
    y_.release();
  }

  // Announces the next part that load_x() will be called for. prefetch_lines() prefetches it line by line.
  void will_load_x(const Part& part) {
    ahead_ = {};
    if (!prefetches_ || part.row >= problem_.rows) return;
    const Matrix<const void*>& x = problem_.x;
    const char* start = static_cast<const char*>(x.data) + x.rows.offset(part.row) + x.cols.offset(part.col);
    ahead_ = {start, start, start + part.rows * bytes_of(x.dtype), part.cols};
  }
  bool prefetches() const { return prefetches_; }
  void prefetch_lines(std::size_t n) {
    for (; n != 0 && ahead_.cols != 0; --n) {
      __builtin_prefetch(ahead_.next);
      ahead_.next += 64;
      if (ahead_.next >= ahead_.end) {
        const std::ptrdiff_t stride = problem_.x.cols.inner().stride;
        ahead_ = {ahead_.start + stride, ahead_.start + stride, ahead_.end + stride, ahead_.cols - 1};
      }
    }
  }

 private:
  // The rest of the current column to prefetch, and the number of columns from it on.
  struct Ahead {
    const char* start = nullptr;
    const char* next = nullptr;
    const char* end = nullptr;
    std::size_t cols = 0;
  };

  const Problem& problem_;
  const TilePlan& plan_;
  bool gathers_x_, scatters_y_;
  bool prefetches_;  // x is channels-first and large enough to be prefetched
  Ahead ahead_;
  Tile<const void*> x_;
  Tile<void*> y_;
};

}  // namespace evenorm::internal
