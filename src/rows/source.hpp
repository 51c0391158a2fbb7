// Where a row's blocks come from. Blocks that are in memory in the pass's type are used in place. Others pass through
// scratch in L1: strided blocks are gathered, other types converted, and residuals added.
#pragma once

#include "rows/residual.hpp"
#include "rows/tile.hpp"

namespace evenorm::internal {

// x by blocks, as T. A 16-bit T is the type of x.
template <class T>
class Source {
 public:
  using A = Arithmetic<T>;

  // tile: where x is gathered; null if its rows are dense. scratch: kBlock elements, used only if blocks are converted
  // or sums.
  template <class Pointer>
  Source(const Kernels& kernels, const Matrix<Pointer>& x, Tile<const void*>* tile, A* scratch)
      : data_(static_cast<const char*>(x.data)),
        rows_(&x.rows),
        bytes_(bytes_of(x.dtype)),
        tile_(tile),
        scratch_(scratch) {
    convert_ = x.dtype == dtype_of<T> ? nullptr : kernels.convert[index_of(x.dtype)][index_of(dtype_of<T>)];
    staged_ = convert_ != nullptr || tile_ != nullptr;
    in_tile_ = convert_ == nullptr && tile_ != nullptr;
  }

  bool is_staged() const { return staged_; }
  // True if blocks pass through scratch that holds only one.
  bool passes() const {
    if (held_ != nullptr) return residual_ != nullptr && !has_terms();
    return staged_ && !(in_tile_ && tile_->is_held());
  }
  // even_rows(): how many of n rows have blocks of their own at once, evenly spaced. step(): their distance in bytes.
  std::size_t even_rows(std::size_t row, std::size_t n) const {
    if (passes()) return 1;
    if (held_ != nullptr) return held_->even_rows(row, residual_ != nullptr ? residual_->even_rows(row, n) : n);
    return in_tile_ ? n : even_run(*rows_, row, n);
  }
  std::ptrdiff_t step() const {
    if (held_ != nullptr) return held_->step();
    return in_tile_ ? tile_->step() : rows_->inner().stride;
  }
  // True if blocks are sums that a kernel computes from terms(), into the memory of begin(). ahead(): see SumRows.
  bool has_terms() const { return residual_ != nullptr && residual_->is_same(); }
  TermRows<T> terms(std::size_t row, std::size_t first) const {
    return has_terms() ? residual_->terms(row, first) : TermRows<T>{};
  }
  std::size_t ahead() const { return ahead_; }

  // Makes blocks those of the sum; x must have dense rows. ahead: the prefetch distance of its terms in bytes, or 0.
  // held: where the sums stay; null: in scratch.
  void add_residual(const Residual<T>& residual, std::size_t ahead, const HeldSums<T>* held = nullptr) {
    residual_ = &residual;
    rows_in_one_ = held != nullptr && !residual.is_same() && residual.has_rows_in_one();
    ahead_ = ahead;
    read_held(held);
  }
  // Makes blocks those of a sum that another source computed.
  void read_held(const HeldSums<T>* held) {
    held_ = held;
    staged_ = true;
    in_tile_ = false;
  }

  const T* block(std::size_t row, std::size_t first, std::size_t n) {
    if (!staged_) return reinterpret_cast<const T*>(data_ + rows_->offset(row)) + first;
    if (in_tile_ && tile_->is_held()) return reinterpret_cast<const T*>(tile_->at(row, first));
    return staged(row, first, n);
  }

  // The same for a kernel that computes sums from terms().
  const T* begin(std::size_t row, std::size_t first, std::size_t n) {
    return has_terms() ? made(row, first) : block(row, first, n);
  }
  // Adds all of these rows of `cols` columns at once, if they are contiguous. made() is then where each row is.
  bool make_rows(std::size_t row, std::size_t rows, std::size_t cols) {
    if (!rows_in_one_ || !held_->has_rows_in_one(row, rows, cols)) return false;
    add_to(row, 0, rows * cols, held_->block(row, 0));
    return true;
  }

  T* made(std::size_t row, std::size_t first) {
    return held_ != nullptr ? held_->block(row, first) : reinterpret_cast<T*>(scratch_);
  }

 private:
  void add_to(std::size_t row, std::size_t first, std::size_t n, T* to) {
    residual_->add(row, first, n, to);
    if (ahead_ != 0) residual_->prefetch(row, first, n, ahead_);
  }
  [[gnu::noinline]] const T* staged(std::size_t row, std::size_t first, std::size_t n) {
    if (residual_ != nullptr || held_ != nullptr) {
      T* sum = made(row, first);
      if (residual_ != nullptr) add_to(row, first, n, sum);
      return sum;
    }
    const char* from = tile_ != nullptr ? tile_->load(row, first, n) : data_ + rows_->offset(row) + first * bytes_;
    if (convert_ == nullptr) return reinterpret_cast<const T*>(from);
    convert_(from, scratch_, n);
    return reinterpret_cast<const T*>(scratch_);
  }

  const char* data_;
  const Axes* rows_;
  std::size_t bytes_;
  Tile<const void*>* tile_;
  Convert* convert_ = nullptr;
  bool staged_;   // blocks are not in x
  bool in_tile_;  // blocks are in the tile, in their final form
  const Residual<T>* residual_ = nullptr;
  const HeldSums<T>* held_ = nullptr;
  bool rows_in_one_ = false;  // rows are held, and several may be added at once
  std::size_t ahead_ = 0;
  A* scratch_;
};

// A Source with memory of its own for kCols columns.
template <class T, std::size_t kCols>
class OwnSource {
 public:
  using A = Arithmetic<T>;

  OwnSource(const Kernels& kernels, const Matrix<const void*>& m)
      : tile_(kernels, m, false, has_dense_rows(m) ? nullptr : gathered_, 0),
        source_(kernels, m, tile_.if_used(), converted_) {}
  OwnSource(const OwnSource&) = delete;
  OwnSource& operator=(const OwnSource&) = delete;

  Source<T>& get() { return source_; }
  A* scratch() { return converted_; }

 private:
  alignas(kLine) std::byte gathered_[kCols * sizeof(A)];
  alignas(kLine) A converted_[kCols];
  Tile<const void*> tile_;
  Source<T> source_;
};

}  // namespace evenorm::internal
