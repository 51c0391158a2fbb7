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
  RowBlock<A> block;
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
      : rows_(rows), row_(row), s_(s), task_(task), columns_(task.block.chains_of(row, task.columns)) {
    store_dx_scalars(s, scalars_);
  }

  void run() { s_.rare == Rare::row ? run_rare() : run_usual(); }

 private:
  void run_usual() {
    const bool stream = rows_.plan.stream && !rows_.plan.aside;
    const auto run_piece = [&](const GradientPiece<T>& piece, std::size_t col) {
      const Part part{row_, 1, col, piece.n};
      T* const dx = rows_.plan.aside ? rows_.scratch.dx : rows_.dx.at(part, EvenRows<T>{rows_.scratch.dx}).first;
      const bool finite = rows_.kernels.template of<T>().dx_of_row(piece, dx, scalars_.of(0),
                                                                   from_column(columns_, col - task_.range.first),
                                                                   task_.block.chain(row_, columns_), stream);
      if (!task_.dx) return;
      if (finite && s_.rare == Rare::nothing) return deliver(part, dx);
      run_wide({col, col + piece.n}, {});
    };
    rows_.for_pieces(row_, task_.range, Weights::gamma, rows_.plan.columns, run_piece);
  }

  void run_rare() {
    run_wide(task_.range, columns_);
    if (kWide || !columns_.are_wanted()) return;
    T* const zeros = rows_.scratch.x;  // what the row is in the chains
    std::fill_n(zeros, rows_.scratch.kPiece, T{});
    const std::size_t end = task_.range.end - task_.range.first;
    for (std::size_t c = 0, n; c < end; c += n) {
      n = std::min(rows_.scratch.kPiece, end - c);
      rows_.kernels.template of<T>().dx_of_row({zeros, zeros, kConstantBlock<A, 1>.data(), n}, rows_.scratch.dx, {},
                                               from_column(columns_, c), task_.block.chain(row_, columns_), false);
    }
  }

  // In f64: all of a rare row, or dx of columns, of which f32 arithmetic left some not finite, or all without digits.
  void run_wide(ColumnRange range, const GradientColumns<A>& columns) {
    DxScalarsOfRows<double> scalars;
    const bool has_means = store_dx_scalars(s_, scalars);
    const double factor = std::ldexp(1.0, -s_.exponent);
    const auto kernel = rows_.kernels.template of<double>().dx_of_row;
    Convert* const to_arithmetic = rows_.kernels.convert[index_of(DType::f64)][index_of(dtype_of<A>)];
    Convert* const narrow = rows_.kernels.convert[index_of(dtype_of<A>)][index_of(dtype_of<T>)];
    const auto run_piece = [&](const GradientPiece<double>& wide, const GradientPiece<T>& piece, std::size_t col) {
      double found[kRarePiece];
      A rounded[kRarePiece];
      const GradientColumns<A> to = from_column(columns, col - range.first);
      if constexpr (kWide) {
        kernel(wide, found, scalars.of(0), to, task_.block.chain(row_, to), false);
      } else {
        kernel(wide, found, scalars.of(0), {nullptr, nullptr, to.sums}, to.are_wanted() ? Chain::whole : Chain::none,
               false);
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
    A x[kRarePiece], dy[kRarePiece];
    Convert* widen = rows_.kernels.convert[index_of(dtype_of<T>)][index_of(dtype_of<A>)];
    widen(piece.x, x, piece.n);
    widen(piece.dy, dy, piece.n);
    rows_.kernels.template of<A>().dx_of_row({x, dy, piece.gamma, piece.n}, x, scalars_.of(0), {}, Chain::none, false);
    for (std::size_t i = 0; i < piece.n; ++i) {
      if (std::isfinite(x[i])) dx[i] = x[i];
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
  const GradientColumns<A> columns_;
  DxScalarsOfRows<A> scalars_;
};

}  // namespace evenorm::internal
