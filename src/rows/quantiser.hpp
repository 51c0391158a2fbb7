// An i8 y: the normalised row in scratch, its largest magnitude, and the integers. Knows nothing of norms.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/kernels.hpp"
#include "plan/scratch_plan.hpp"
#include "problem/layout.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// The sink of an i8 y. block() is where blocks are to be written; done() takes them, of several short rows or of one
// row. A row that fits into scratch is written after its last block. A longer row is normalised twice: first for its
// largest magnitude, then for the integers. After its last block wants_again() is true.
template <class A>
class Quantiser {
 public:
  Quantiser(const Kernels& kernels, const Problem& p, const ForwardScratch& plan, Scratch& scratch)
      : kernels_(kernels.in<A>()),
        p_(p),
        values_(scratch.at<A>(plan.values)),
        holds_row_(plan.holds_row),
        rows_(plan.value_rows),
        step_(static_cast<std::ptrdiff_t>(plan.value_bytes)) {}

  // values: room for a block of a row, or fewer columns if no more are written at once.
  Quantiser(const Kernels& kernels, const Problem& p, A* values)
      : kernels_(kernels.in<A>()), p_(p), values_(values), holds_row_(false), rows_(1), step_(0) {}

  bool is_on() const { return values_ != nullptr; }
  A* block(std::size_t first) const { return holds_row_ ? values_ + first : values_; }
  // even_rows(): how many of n rows from `row` on go together. rows(): the most that may. step(): the distance between
  // them in scratch, in bytes.
  std::size_t even_rows(std::size_t row, std::size_t n) const { return even_run(p_.y.rows, row, std::min(n, rows_)); }
  std::size_t rows() const { return rows_; }
  std::ptrdiff_t step() const { return step_; }

  [[gnu::noinline]] void done(std::size_t row, std::size_t rows, std::size_t first, std::size_t n) {
    const bool is_last = first + n == p_.cols;
    if (p_.given_scale != 0) {
      std::fill_n(factors_, rows, 1 / p_.given_scale);
      std::fill_n(any_, rows, true);
      return store(block(first), row, rows, first, n);
    }
    if (again_) {
      store(values_, row, rows, first, n);
      again_ = !is_last;
      return;
    }
    if (first == 0) std::fill_n(largest_, rows, A{0});
    kernels_.largest_finite({block(first), step_}, rows, n, largest_);
    if (!is_last) return;
    set_factors(row, rows);
    again_ = !holds_row_;
    if (holds_row_) store(values_, row, rows, 0, p_.cols);
  }
  bool wants_again() const { return again_; }
  bool is_measuring() const { return is_on() && !holds_row_ && p_.given_scale == 0 && !again_; }

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
  void store(const A* values, std::size_t row, std::size_t rows, std::size_t col, std::size_t n) const {
    std::int8_t* to = static_cast<std::int8_t*>(p_.y.data) + p_.y.rows.offset(row) + static_cast<std::ptrdiff_t>(col);
    kernels_.quantise({{values, step_}, {to, p_.y.rows.inner().stride}, rows, n, factors_, any_});
  }

  // Within these limits no product loses digits to the range.
  static constexpr float kLeastFactor = 0x1p-100f, kMostFactor = 0x1p100f;

  const ArithmeticKernels<A>& kernels_;
  const Problem& p_;
  A* values_;
  bool holds_row_;
  std::size_t rows_;
  std::ptrdiff_t step_;
  bool again_ = false;
  // The rows that are being written.
  A largest_[kMaxGroup] = {};
  float factors_[kMaxGroup] = {};
  bool any_[kMaxGroup] = {};
};

}  // namespace evenorm::internal
