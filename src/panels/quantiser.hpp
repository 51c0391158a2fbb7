// An i8 y: from normalised rows in scratch, their largest magnitude, and the integers. Knows nothing of norms.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/kernels.hpp"
#include "panels/panel.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// Takes some rows at once, block by block. If memory holds whole rows, they are written after their last block. A
// longer row is normalised twice: first for its largest magnitude, then for the integers. After its last block
// wants_again() is true.
template <class A>
class Quantiser {
 public:
  Quantiser(const Kernels& kernels, const Problem& p, bool holds_rows)
      : kernels_(kernels.in<A>()), p_(p), holds_rows_(holds_rows) {}

  bool wants_again() const { return again_; }
  bool is_measuring() const { return !holds_rows_ && p_.given_scale == 0 && !again_; }

  // values: those of a part, of at most kMaxGroup rows, `step` bytes apart.
  [[gnu::noinline]] void take(const Part& part, const A* values, std::ptrdiff_t step) {
    const bool is_last = part.col + part.cols == p_.cols;
    if (p_.given_scale != 0) {
      std::fill_n(factors_, part.rows, 1 / p_.given_scale);
      std::fill_n(any_, part.rows, true);
      return store(part, values, step);
    }
    if (again_) {
      store(part, values, step);
      again_ = !is_last;
      return;
    }
    if (part.col == 0) std::fill_n(largest_, part.rows, A{0});
    kernels_.largest_finite({values, step}, part.rows, part.cols, largest_);
    if (!is_last) return;
    set_factors(part.row, part.rows);
    again_ = !holds_rows_;
    if (holds_rows_) store({part.row, part.rows, 0, p_.cols}, values - part.col, step);
  }

 private:
  // Computes scale and factor of the rows from `row` on, from the largest magnitude of each, or NaN. All quotients come
  // first, also of unused places, so that the compiler divides four at once.
  void set_factors(std::size_t row, std::size_t rows) {
    constexpr auto kLargest = static_cast<float>(kLargestInt8);
    float most[kMaxGroup], scales[kMaxGroup], factors[kMaxGroup];
    for (std::size_t i = 0; i < kMaxGroup; ++i) {
      most[i] = static_cast<float>(largest_[i]);
      scales[i] = most[i] / kLargest;
      factors[i] = kLargest / most[i];
    }
    for (std::size_t i = 0; i < rows; ++i) {
      constexpr float kMost = std::numeric_limits<float>::max();  // the factor of rows whose largest magnitude is tiny
      const bool finite = most[i] <= kMost;
      const float factor = finite && most[i] != 0 ? std::min(factors[i], kMost) : 0;
      // Not plain: rows of zeros, rows that are not finite, and very small or large ones.
      const bool plain = factor >= kLeastFactor && factor <= kMostFactor;
      factors_[i] = factor;
      any_[i] = !plain;
      store_one(finite ? scales[i] : std::numeric_limits<float>::quiet_NaN(),
                static_cast<char*>(p_.scale.data) + p_.scale.axes.offset(row + i));
    }
  }
  void store(const Part& part, const A* values, std::ptrdiff_t step) const {
    const EvenRows<const A> from{values, step};
    for (std::size_t i = 0, n; i < part.rows; i += n) {
      n = even_run(p_.y.rows, part.row + i, part.rows - i);
      const auto to = rows_in_place<std::int8_t>(p_.y, part.row + i, part.col);
      kernels_.quantise({{from.at(i), step}, to, n, part.cols, factors_ + i, any_ + i});
    }
  }

  // Within these limits no product loses digits to the range.
  static constexpr float kLeastFactor = 0x1p-100f, kMostFactor = 0x1p100f;

  const ArithmeticKernels<A>& kernels_;
  const Problem& p_;
  bool holds_rows_;
  bool again_ = false;
  // The rows that are being written.
  A largest_[kMaxGroup] = {};
  float factors_[kMaxGroup] = {};
  bool any_[kMaxGroup] = {};
};

}  // namespace evenorm::internal
