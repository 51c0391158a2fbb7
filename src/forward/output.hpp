// Where a forward pass writes y: in place, or in memory, from which it is converted, scattered or quantised.
#pragma once

#include <optional>

#include "forward/input.hpp"
#include "panels/canonical.hpp"
#include "panels/quantiser.hpp"
#include "plan/forward_plan.hpp"

namespace evenorm::internal {

template <class T>
class Output {
 public:
  using A = Arithmetic<T>;

  // only_numbers: neither the parameters nor statistics can turn a number into a NaN.
  Output(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, Scratch& scratch, bool only_numbers)
      : plan_(plan),
        scratch_(scratch),
        y_(kernels, p.y, plan.type, plan.y, plan.cache.stream_y),
        only_numbers_(only_numbers) {
    if (p.y.dtype == DType::i8) quantiser_.emplace(kernels, p, plan.scratch.y.whole);
  }

  std::size_t even(std::size_t row, std::size_t n) const { return y_.even(row, n); }
  bool streams() const { return plan_.stream && only_numbers_; }
  // True if parts that are in place have to be closed, too.
  bool closes() const { return !y_.is_in_place() || !only_numbers_; }

  // Where a part is to be written, and what happens when it is.
  EvenRows<T> at(const Part& part, std::size_t slot) const {
    return y_.at(part, place_in<T>(plan_.scratch.y, scratch_, slot, part.col));
  }
  void close(const Part& part, std::size_t slot) { close_rows(part, at(part, slot)); }
  void close_rows(const Part& part, const EvenRows<T>& rows) {
    for (std::size_t i = 0; !only_numbers_ && i < part.rows; ++i) canonicalise_nans(rows.at(i), part.cols);
    quantiser_.has_value() ? quantise(part, rows) : y_.close(part, rows);
  }
  // Reads back a row that is already written, so that close_rows() writes it again.
  void reopen(const Part& part, const EvenRows<T>& rows) const { y_.open(part, rows); }

  // wants_again(): true after the last block of rows if all of their blocks have to be written again. is_measuring():
  // true before that, when blocks are only measured.
  bool wants_again() const { return quantiser_.has_value() && quantiser_->wants_again(); }
  bool is_measuring() const { return quantiser_.has_value() && quantiser_->is_measuring(); }

 private:
  void quantise(const Part& part, const EvenRows<T>& rows) {
    if constexpr (std::is_same_v<T, A>) {
      if (part.rows <= kMaxGroup) return quantiser_->take(part, rows.first, rows.step);
      for (std::size_t i = 0; i < part.rows; i += kMaxGroup) {
        const Part some{part.row + i, std::min(kMaxGroup, part.rows - i), part.col, part.cols};
        quantiser_->take(some, rows.at(i), rows.step);
      }
    }
  }

  const ForwardPlan& plan_;
  Scratch& scratch_;
  Panel y_;
  bool only_numbers_;
  std::optional<Quantiser<A>> quantiser_;
};

}  // namespace evenorm::internal
