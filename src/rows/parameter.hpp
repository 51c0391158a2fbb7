// gamma or beta by blocks, in the arithmetic's type. They are gathered and converted once or at each use, as planned.
// An absent parameter is a block of constants.
#pragma once

#include <array>

#include "plan/scratch.hpp"
#include "rows/tile.hpp"

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
  // used: the columns that block() will be called for. raw: kRawColumns elements of v's type, needed if v is both
  // gathered and converted.
  Parameter(const Kernels& kernels, const Vector<const void*>& v, bool plus_one, std::size_t cols, ColumnRange used,
            const ParameterPlan& plan, const Scratch& scratch, void* raw)
      : kernels_(kernels),
        v_(v),
        plus_one_(plus_one),
        whole_(plan.whole),
        values_(scratch.at<A>(plan.values)),
        raw_(raw) {
    if (values_ != nullptr) {
      const bool dense = v.axes.is_dense(bytes_of(v.dtype));
      convert_ = dense || v.dtype != dtype_of<A> ? kernels.convert[index_of(v.dtype)][index_of(dtype_of<A>)] : nullptr;
      gather_ = !dense;
      if (whole_) fill(0, cols, values_);
    }
    finite_ = check_finite(used);
  }

  bool is_finite() const { return finite_; }  // in the columns `used`

  const A* block(std::size_t first, std::size_t n) {
    if (v_.data == nullptr) return kConstantBlock<A, kNeutral>.data();
    if (values_ == nullptr) return static_cast<const A*>(v_.data) + first;
    if (whole_) return values_ + first;
    fill(first, n, values_);
    return values_;
  }

 private:
  [[gnu::noinline]] void fill(std::size_t first, std::size_t n, A* to) {
    if (!gather_) {
      convert_(static_cast<const char*>(v_.data) + first * bytes_of(v_.dtype), to, n);
    } else if (convert_ == nullptr) {
      gather_vector(kernels_, v_, first, n, to);
    } else {
      for (std::size_t i = 0; i < n; i += kRawColumns) {
        const std::size_t count = std::min(kRawColumns, n - i);
        gather_vector(kernels_, v_, first + i, count, raw_);
        convert_(raw_, to + i, count);
      }
    }
    if (!plus_one_) return;
    for (std::size_t i = 0; i < n; ++i) to[i] += A{1};
  }

  bool check_finite(ColumnRange used) {
    if (v_.data == nullptr) return true;
    for (std::size_t first = used.first; first < used.end; first += kBlock) {
      const std::size_t n = std::min(kBlock, used.end - first);
      if (!kernels_.in<A>().are_finite(block(first, n), n)) return false;
    }
    return true;
  }

  const Kernels& kernels_;
  const Vector<const void*>& v_;
  bool plus_one_;
  bool whole_;
  bool gather_ = false;
  bool finite_;
  Convert* convert_ = nullptr;
  A* values_;
  void* raw_;
};

}  // namespace evenorm::internal
