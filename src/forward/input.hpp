// What a forward pass normalises, as kernels take it: x, or its sums with the residual.
#pragma once

#include "panels/panel.hpp"
#include "panels/residual.hpp"
#include "plan/forward_plan.hpp"

namespace evenorm::internal {

// Where rows from a column on are in memory: those of slot `slot`.
template <class T>
EvenRows<T> place_in(const RowsMemory& memory, Scratch& scratch, std::size_t slot, std::size_t col) {
  if (!memory.exists()) return {};
  char* first = scratch.at<char>(memory.piece) + slot % memory.slots * memory.rows * memory.row_bytes;
  return {reinterpret_cast<T*>(first) + (memory.whole ? col : 0), static_cast<std::ptrdiff_t>(memory.row_bytes)};
}

// Rows for a kernel that sums them. It adds terms, if there are any, into x.
template <class T>
struct Opened {
  EvenRows<T> x;
  TermRows<T> terms = {};
};

template <class T>
class Input {
 public:
  Input(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, Scratch& scratch)
      : p_(p), plan_(plan), scratch_(scratch), x_(kernels, p.x, plan.type, plan.x), residual_(kernels, p) {}

  // How many of n rows from `row` on can be opened at once.
  std::size_t even(std::size_t row, std::size_t n) const {
    if (plan_.sums.place == Sums::none) return x_.even(row, n);
    if (plan_.sums.kernel_adds) n = even_run(p_.residual.rows, row, even_run(p_.x.rows, row, n));
    if (plan_.sums.copied) n = even_run(p_.sum.rows, row, n);
    return plan_.sums.place == Sums::in_tensor ? even_run(tensor().rows, row, n) : n;
  }
  // True if parts have to be opened before a kernel sums them: x is not in place, or no kernel adds the residual.
  bool opens() const { return plan_.sums.place == Sums::none ? !x_.is_in_place() : !plan_.sums.kernel_adds; }

  // Where a part is for sums, in a slot of memory; and the same, once it is there or its terms are.
  Opened<T> place(const Part& part, std::size_t slot) const {
    if (plan_.sums.place == Sums::none) return {x_.at(part, memory(part, slot))};
    return {place_of_sums(part, slot), plan_.sums.kernel_adds ? residual_.terms(part.row, part.col) : TermRows<T>{}};
  }
  Opened<T> open(const Part& part, std::size_t slot) const {
    const Opened<T> opened = place(part, slot);
    if (plan_.sums.place == Sums::none) {
      x_.open(part, memory(part, slot));
    } else if (!plan_.sums.kernel_adds) {
      add(part, opened.x, plan_.sums.place != Sums::anew);
    }
    return opened;
  }
  // Opens a part for the normalise step. stores: sums that are added anew are also stored.
  EvenRows<T> again(const Part& part, std::size_t slot, bool stores) const {
    if (plan_.sums.place == Sums::none) return x_.open(part, memory(part, slot));
    const EvenRows<T> sums = place_of_sums(part, slot);
    if (plan_.sums.place == Sums::anew) add(part, sums, stores);
    return sums;
  }
  // Where the normalise step copies sums to.
  EvenRows<T> copy(const Part& part) const {
    return plan_.sums.copied ? rows_in_place<T>(p_.sum, part.row, part.col) : EvenRows<T>{};
  }

 private:
  const Matrix<void*>& tensor() const { return p_.sum.data != nullptr ? p_.sum : p_.y; }
  EvenRows<T> memory(const Part& part, std::size_t slot) const {
    return place_in<T>(plan_.scratch.x, scratch_, slot, part.col);
  }
  EvenRows<T> place_of_sums(const Part& part, std::size_t slot) const {
    return plan_.sums.place == Sums::in_tensor ? rows_in_place<T>(tensor(), part.row, part.col) : memory(part, slot);
  }
  void add(const Part& part, const EvenRows<T>& to, bool stores) const {
    for (std::size_t i = 0; i < part.rows; ++i) {
      residual_.add(part.row + i, part.col, part.cols, to.at(i));
      const bool is_there = plan_.sums.place == Sums::in_tensor || plan_.sums.copied;
      if (stores && !is_there) residual_.store_sum(part.row + i, part.col, part.cols, to.at(i));
    }
  }

  const Problem& p_;
  const ForwardPlan& plan_;
  Scratch& scratch_;
  Panel x_;
  Residual<T> residual_;
};

}  // namespace evenorm::internal
