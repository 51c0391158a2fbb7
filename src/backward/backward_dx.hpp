// dx of single rows, and what they add to sums over rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backward/backward_sums.hpp"
#include "panels/canonical.hpp"

namespace evenorm::internal {

// Some columns of a row block, and what is wanted of them: their sums over rows and dx, or only one of these.
template <class A>
struct BackwardTask {
  RowBlock block;
  ColumnRange range;
  GradientColumns<A> columns;  // from the first of the range on
  bool dx;
};

// The dx step of one row. A row that is rare in f32 arithmetic is in no chain: it is added to the sums themselves.
template <class T>
class DxWriter {
 public:
  using A = Arithmetic<T>;
  static constexpr bool kWide = std::is_same_v<A, double>;

  DxWriter(BackwardRows<T>& rows, std::size_t row, const GradientScalars& s, const BackwardTask<A>& task)
      : rows_(rows), row_(row), s_(s), task_(task) {
    store_dx_scalars(s, scalars_);
  }

  void run() { s_.rare == Rare::row ? run_rare() : run_usual(); }

 private:
  Chain chain(const GradientColumns<A>& columns) const {
    return columns.are_wanted() ? task_.block.chain(row_) : Chain::none;
  }

  void run_usual() {
    const bool stream = rows_.plan.stream && !rows_.plan.aside;
    const auto run_piece = [&](const GradientPiece<T>& piece, std::size_t col) {
      const Part part{row_, 1, col, piece.n};
      T* const memory = rows_.scratch.dx;
      T* const dx = rows_.plan.aside ? memory : rows_.dx.at(part, EvenRows<T>{memory}).first;
      const bool finite = rows_.kernels.template of<T>().dx_of_piece(
          piece, dx, scalars_, from_column(task_.columns, col - task_.range.first), chain(task_.columns), stream);
      if (!task_.dx) return;
      if (finite && s_.rare == Rare::nothing) return deliver(part, dx);
      run_wide({col, col + piece.n}, {});
    };
    rows_.for_pieces(row_, task_.range, Weights::gamma, rows_.plan.columns, run_piece);
  }

  // Chains of f32 may begin or end with such a row, which is not in them.
  void run_rare() {
    const GradientColumns<A>& to = task_.columns;
    const std::size_t n = !kWide && to.are_wanted() ? task_.range.end - task_.range.first : 0;
    if (task_.block.begins_chain(row_)) {
      std::fill_n(to.dgamma_chain, n, A{0});
      std::fill_n(to.dbeta_chain, n, A{0});
    }
    run_wide(task_.range, to);
    for (std::size_t i = 0; task_.block.ends_chain(row_) && i < n; ++i) {
      to.sums.dgamma[i] += static_cast<double>(to.dgamma_chain[i]);
      to.sums.dbeta[i] += static_cast<double>(to.dbeta_chain[i]);
    }
  }

  // In f64: all of a rare row, or dx of columns, of which f32 arithmetic left some not finite, or all without digits.
  void run_wide(ColumnRange range, const GradientColumns<A>& columns) {
    DxScalarsOfRows<double> scalars;
    const bool has_means = store_dx_scalars(s_, scalars);
    const double factor = std::ldexp(1.0, -s_.exponent);
    const auto kernel = rows_.kernels.template of<double>().dx_of_piece;
    Convert* const to_arithmetic = rows_.kernels.convert[index_of(DType::f64)][index_of(dtype_of<A>)];
    Convert* const narrow = rows_.kernels.convert[index_of(dtype_of<A>)][index_of(dtype_of<T>)];
    const auto run_piece = [&](const GradientPiece<double>& wide, const GradientPiece<T>& piece, std::size_t col) {
      double found[kRarePiece];
      A rounded[kRarePiece];
      const GradientColumns<A> to = from_column(columns, col - range.first);
      if constexpr (kWide) {
        kernel(wide, found, scalars, to, chain(to), false);
      } else {
        kernel(wide, found, scalars, {nullptr, nullptr, to.sums}, to.are_wanted() ? Chain::whole : Chain::none, false);
      }
      if (!task_.dx) return;
      if (!has_means) std::fill_n(found, wide.n, std::numeric_limits<double>::quiet_NaN());
      for (std::size_t i = 0; s_.exponent != 0 && i < wide.n; ++i) found[i] *= factor;
      canonicalise_nans(found, wide.n);
      to_arithmetic(found, rounded, wide.n);
      if (s_.rare == Rare::nothing) keep_finite(piece, rounded);
      narrow(rounded, rows_.scratch.dx, wide.n);
      deliver({row_, 1, col, wide.n}, rows_.scratch.dx);
    };
    rows_.for_wide_pieces(row_, range, Weights::gamma, s_.exponent, run_piece);
  }

  // Replaces what is finite in f32 arithmetic by it.
  void keep_finite(const GradientPiece<T>& piece, A* dx) const {
    A x[kRarePiece], dy[kRarePiece], values[kRarePiece];
    Convert* widen = rows_.kernels.convert[index_of(dtype_of<T>)][index_of(dtype_of<A>)];
    widen(piece.x, x, piece.n);
    widen(piece.dy, dy, piece.n);
    rows_.kernels.template of<A>().dx_of_piece({x, dy, piece.gamma, piece.n}, values, scalars_, {}, Chain::none, false);
    for (std::size_t i = 0; i < piece.n; ++i) {
      if (std::isfinite(values[i])) dx[i] = values[i];
    }
  }

  // dx, with the gradient of the sum, to its tensor.
  void deliver(const Part& part, const T* dx) {
    T* const place = rows_.dx.at(part, EvenRows<T>{rows_.scratch.dx}).first;
    if (rows_.p.dsum.data != nullptr) {
      const T* dsum = rows_.dsum.open(part, EvenRows<T>{rows_.scratch.dsum}).first;
      rows_.kernels.template of<T>().add(A{1}, dx, dsum, part.cols, place, rows_.plan.stream);
    } else if (dx != place) {
      std::memcpy(static_cast<void*>(place), dx, part.cols * sizeof(T));
    }
    rows_.dx.close(part, EvenRows<T>{rows_.scratch.dx});
  }

  BackwardRows<T>& rows_;
  const std::size_t row_;
  const GradientScalars& s_;
  const BackwardTask<A>& task_;
  DxScalarsOfRows<A> scalars_;
};

}  // namespace evenorm::internal
