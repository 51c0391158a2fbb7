// Where a row's blocks come from. Blocks that are in memory in the pass's type are used in place. Others pass through
// scratch in L1: strided blocks are gathered, other types converted, and residuals added.
#pragma once

#include "rows/panel.hpp"
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
  std::size_t even_rows(std::size_t row, std::size_t n) const { return staged_ ? 1 : even_run(*rows_, row, n); }
  std::ptrdiff_t step() const { return rows_->inner().stride; }

  const T* block(std::size_t row, std::size_t first, std::size_t n) {
    if (!staged_) return reinterpret_cast<const T*>(data_ + rows_->offset(row)) + first;
    if (in_tile_ && tile_->is_held()) return reinterpret_cast<const T*>(tile_->at(row, first));
    return staged(row, first, n);
  }

 private:
  [[gnu::noinline]] const T* staged(std::size_t row, std::size_t first, std::size_t n) {
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
