// Where results go: block() tells where to write n elements, done() sees to it that they get to y: where they are, if
// layout and type fit; else converted, scattered or quantised from scratch in L1. Knows nothing of what is written.
#pragma once

#include "rows/quantiser.hpp"
#include "rows/tile.hpp"

namespace evenorm::internal {

template <class T>
class Sink {
 public:
  using A = Arithmetic<T>;

  // tile: from where y is scattered; null where its rows are dense. scratch: kBlock elements, used only where blocks
  // are converted.
  Sink(const Kernels& kernels, const Matrix<void*>& y, Tile<void*>* tile, A* scratch)
      : y_(y), tile_(tile), scratch_(scratch) {
    if constexpr (kCanConvert) {
      const bool converts = y.dtype != dtype_of<T> && y.dtype != DType::i8;
      convert_ = converts ? kernels.convert[index_of(dtype_of<T>)][index_of(y.dtype)] : nullptr;
    }
    staged_ = convert_ != nullptr || tile_ != nullptr;
    in_tile_ = convert_ == nullptr && tile_ != nullptr;
  }

  bool is_staged() const { return staged_; }
  // Do blocks pass through scratch that holds but one?
  bool passes() const { return staged_ && !(in_tile_ && tile_->is_held()); }
  // How many of n rows have blocks of their own at once, evenly apart; and how far, in bytes.
  std::size_t even_rows(std::size_t row, std::size_t n) const {
    if (quantiser_ != nullptr) return quantiser_->even_rows(row, n);
    if (passes()) return 1;
    return in_tile_ ? n : even_run(y_.rows, row, n);
  }
  // Can a kernel go from each of these rows to the next? Where rows_in_turn() is not 0, in groups of as many rows at
  // most, all of them mapped to the same place, each until done() was called.
  bool are_even(std::size_t row, std::size_t n) const {
    return quantiser_ != nullptr ? even_run(y_.rows, row, n) == n : !passes() && even_rows(row, n) == n;
  }
  std::size_t rows_in_turn() const { return quantiser_ != nullptr ? quantiser_->rows() : 0; }
  std::ptrdiff_t step() const {
    if (quantiser_ != nullptr) return quantiser_->step();
    return in_tile_ ? tile_->step() : y_.rows.inner().stride;
  }
  // Blocks go to y by way of `quantiser`, which is on.
  void set_quantiser(Quantiser<A>* quantiser) {
    quantiser_ = quantiser;
    staged_ = true;
  }
  // After the last block of a row: do all of them have to be written again?
  bool wants_again() const { return quantiser_ != nullptr && quantiser_->wants_again(); }
  bool is_measuring() const { return quantiser_ != nullptr && quantiser_->is_measuring(); }  // before that

  T* block(std::size_t row, std::size_t first, std::size_t n) {
    if (!staged_) return reinterpret_cast<T*>(to(row, first));
    if (in_tile_ && tile_->is_held()) return reinterpret_cast<T*>(tile_->at(row, first));
    return staged(row, first, n);
  }
  // The blocks of several rows: only of those that are evenly apart.
  void done(std::size_t row, std::size_t rows, std::size_t first, std::size_t n) {
    if (staged_ && !(in_tile_ && tile_->is_held())) deliver(row, rows, first, n);
  }

 private:
  [[gnu::noinline]] T* staged(std::size_t row, std::size_t first, std::size_t n) {
    if constexpr (kCanConvert) {
      if (quantiser_ != nullptr) return quantiser_->block(first);
      if (convert_ != nullptr) return scratch_;
    }
    return reinterpret_cast<T*>(tile_->reserve(row, first, n));
  }
  [[gnu::noinline]] void deliver(std::size_t row, std::size_t rows, std::size_t first, std::size_t n) {
    if (quantiser_ != nullptr) return quantiser_->done(row, rows, first, n);
    if (convert_ != nullptr) convert_(scratch_, tile_ != nullptr ? tile_->reserve(row, first, n) : to(row, first), n);
    if (tile_ != nullptr) tile_->deliver();
  }
  char* to(std::size_t row, std::size_t first) { return const_cast<char*>(place_in_row(y_, row, first)); }

  static constexpr bool kCanConvert = std::is_same_v<T, A>;

  const Matrix<void*>& y_;
  Tile<void*>* tile_;
  Convert* convert_ = nullptr;
  bool staged_;   // are blocks elsewhere than in y?
  bool in_tile_;  // and in the tile just as they should be?
  Quantiser<A>* quantiser_ = nullptr;
  A* scratch_;
};

// NaNs of one canonical form: payloads and signs differ between targets.
template <class T>
void canonicalise_nans(T* y, std::size_t n);

}  // namespace evenorm::internal
