// Where results go. block() is where to write n elements; done() delivers them to y. They are written in place if
// layout and type fit. Otherwise they are converted, scattered or quantised from scratch in L1.
#pragma once

#include "rows/tile.hpp"

namespace evenorm::internal {

template <class T>
class Sink {
 public:
  using A = Arithmetic<T>;

  // tile: the tile that y is scattered from; null if y's rows are dense. scratch: kBlock elements, used only if blocks
  // are converted.
  Sink(const Kernels& kernels, const Matrix<void*>& y, Tile<void*>* tile, A* scratch)
      : y_(y), tile_(tile), scratch_(scratch) {
    const bool converts = y.dtype != dtype_of<T> && y.dtype != DType::i8;
    convert_ = converts ? kernels.convert[index_of(dtype_of<T>)][index_of(y.dtype)] : nullptr;
    staged_ = convert_ != nullptr || tile_ != nullptr;
    in_tile_ = convert_ == nullptr && tile_ != nullptr;
  }

  bool is_staged() const { return staged_; }
  // True if blocks pass through scratch that holds only one.
  bool passes() const { return staged_ && !(in_tile_ && tile_->is_held()); }
  // even_rows(): how many of n rows have blocks of their own at once, evenly spaced. step(): their distance in bytes.
  std::size_t even_rows(std::size_t row, std::size_t n) const {
    if (passes()) return 1;
    return in_tile_ ? n : even_run(y_.rows, row, n);
  }
  std::ptrdiff_t step() const { return in_tile_ ? tile_->step() : y_.rows.inner().stride; }
  T* block(std::size_t row, std::size_t first, std::size_t n) {
    if (!staged_) return reinterpret_cast<T*>(to(row, first));
    if (in_tile_ && tile_->is_held()) return reinterpret_cast<T*>(tile_->at(row, first));
    return staged(row, first, n);
  }
  // Several rows are allowed only if they are evenly spaced.
  void done(std::size_t row, [[maybe_unused]] std::size_t rows, std::size_t first, std::size_t n) {
    if (staged_ && !(in_tile_ && tile_->is_held())) deliver(row, rows, first, n);
  }

 private:
  [[gnu::noinline]] T* staged(std::size_t row, std::size_t first, std::size_t n) {
    if (convert_ != nullptr) return reinterpret_cast<T*>(scratch_);
    return reinterpret_cast<T*>(tile_->reserve(row, first, n));
  }
  [[gnu::noinline]] void deliver(std::size_t row, [[maybe_unused]] std::size_t rows, std::size_t first, std::size_t n) {
    if (convert_ != nullptr) convert_(scratch_, tile_ != nullptr ? tile_->reserve(row, first, n) : to(row, first), n);
    if (tile_ != nullptr) tile_->deliver();
  }
  char* to(std::size_t row, std::size_t first) { return const_cast<char*>(place_in_row(y_, row, first)); }

  const Matrix<void*>& y_;
  Tile<void*>* tile_;
  Convert* convert_ = nullptr;
  bool staged_;   // blocks are not in y
  bool in_tile_;  // blocks are in the tile, in their final form
  A* scratch_;
};

}  // namespace evenorm::internal
