// gamma or beta by blocks, in the arithmetic's type. They are gathered and converted once or at each use, as planned.
// An absent parameter is a block of constants.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernels/kernels.hpp"
#include "plan/scratch_plan.hpp"

namespace evenorm::internal {

// Hidden, because GCC would otherwise export it from every binary that contains a static evenorm.
template <class A, int kValue>
[[gnu::visibility("hidden")]] inline constexpr auto kConstantBlock = [] {
  std::array<A, kBlock> block{};
  block.fill(A{kValue});
  return block;
}();

// Columns [first, end) of a row; first is the start of a block.
struct ColumnRange {
  std::size_t first, end;
};

// kNeutral: the value of an absent parameter.
template <class A, int kNeutral>
class Parameter {
 public:
  // used: the columns that block() will be called for. values: room for all columns or for a block, unless v is used in
  // place.
  Parameter(const Kernels& kernels, const SetVector& v, std::size_t set, bool plus_one, std::size_t cols,
            ColumnRange used, std::span<A> values)
      : kernels_(kernels),
        v_(v),
        data_(v.of_set(set)),
        plus_one_(plus_one),
        whole_(cols <= values.size()),
        values_(is_used_in_place(v, plus_one, dtype_of<A>) ? nullptr : values.data()) {
    if (values_ != nullptr) {
      if (v.axes.is_dense(bytes_of(v.dtype))) convert_ = kernels.convert[index_of(v.dtype)][index_of(dtype_of<A>)];
      shares_ = v.axes.count() != 0 && v.axes.inner().stride == 0;
      if (whole_) fill(0, cols, values_);
    }
    finite_ = check_finite(used);
  }

  bool is_finite() const { return finite_; }  // in the columns `used`

  // The value of a column. The parameter is present.
  A at(std::size_t col) const { return value(element(col)); }

  // True if columns [first, first + n) have one element.
  bool is_constant(std::size_t first, std::size_t n) const {
    return data_ == nullptr || (shares_ && !whole_ && end_of_run(first) >= first + n);
  }

  const A* block(std::size_t first, std::size_t n) {
    if (data_ == nullptr) return kConstantBlock<A, kNeutral>.data();
    if (values_ == nullptr) return static_cast<const A*>(data_) + first;
    if (whole_) return values_ + first;
    fill(first, n, values_);
    return values_;
  }

 private:
  // The end of the neighbours of column `col` that share its element.
  std::size_t end_of_run(std::size_t col) const {
    const std::size_t length = v_.axes.inner().size;
    return (col / length + 1) * length;
  }
  const void* element(std::size_t col) const { return static_cast<const char*>(data_) + v_.axes.offset(col); }
  A value(const void* element) const {
    A value;
    if (v_.dtype == dtype_of<A>) {
      value = load_one(static_cast<const A*>(element));
    } else {
      kernels_.convert[index_of(v_.dtype)][index_of(dtype_of<A>)](element, &value, 1);
    }
    return plus_one_ ? value + A{1} : value;
  }

  void fill_runs(std::size_t first, std::size_t n, A* to) {
    for (std::size_t col = first, end; col < first + n; col = end) {
      end = std::min(end_of_run(col), first + n);
      const void* shared = element(col);
      if (shared == filled_ && end - col == n && n <= filled_columns_) return;  // it is what `to` has
      kernels_.in<A>().fill(value(shared), end - col, to + (col - first));
      filled_ = end - col == n ? shared : nullptr;
      filled_columns_ = n;
    }
  }

  [[gnu::noinline]] void fill(std::size_t first, std::size_t n, A* to) {
    if (shares_) return fill_runs(first, n, to);
    if (convert_ == nullptr) {
      for (std::size_t i = 0; i < n; ++i) to[i] = at(first + i);
      return;
    }
    convert_(static_cast<const char*>(data_) + first * bytes_of(v_.dtype), to, n);
    if (!plus_one_) return;
    for (std::size_t i = 0; i < n; ++i) to[i] += A{1};
  }

  bool check_finite(ColumnRange used) {
    if (data_ == nullptr) return true;
    if (shares_) {
      for (std::size_t col = used.first; col < used.end; col = end_of_run(col)) {
        if (!std::isfinite(value(element(col)))) return false;
      }
      return true;
    }
    for (std::size_t first = used.first; first < used.end; first += kBlock) {
      const std::size_t n = std::min(kBlock, used.end - first);
      if (!kernels_.in<A>().are_finite(block(first, n), n)) return false;
    }
    return true;
  }

  const Kernels& kernels_;
  const SetVector& v_;
  const void* data_;  // of the set in use
  bool plus_one_;
  bool whole_;
  bool shares_ = false;           // neighbouring columns share elements
  const void* filled_ = nullptr;  // the element that fills a block alone
  std::size_t filled_columns_ = 0;
  bool finite_;
  Convert* convert_ = nullptr;  // unless elements are gathered one by one
  A* values_;
};

}  // namespace evenorm::internal
