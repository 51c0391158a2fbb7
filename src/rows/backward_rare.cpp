// Rare rows of the backward pass, by the f64 kernels, some columns at a time: rows that leave the range of f32, and
// rows of f64 that are scaled by a power of two.
#include <cmath>
#include <cstring>
#include <limits>

#include "rows/backward.hpp"

namespace evenorm::internal {

// work(piece, at) of a piece's columns from column `at` on, as f64, with x 2^-exponent in place of x.
template <class T>
template <class Work>
void BackwardRows<T>::widened(const GradientPiece<T>& piece, int exponent, const Work& work) {
  Convert* widen = kernels_.convert[index_of(dtype_of<T>)][index_of(DType::f64)];
  Convert* widen_gamma = kernels_.convert[index_of(dtype_of<A>)][index_of(DType::f64)];
  const double factor = std::ldexp(1.0, -exponent);
  double x[kRarePiece], dy[kRarePiece], gamma[kRarePiece];
  for (std::size_t at = 0, n; at < piece.n; at += n) {
    n = std::min(kRarePiece, piece.n - at);
    widen(piece.x + at, x, n);
    widen(piece.dy + at, dy, n);
    widen_gamma(piece.gamma + at, gamma, n);
    for (std::size_t i = 0; exponent != 0 && i < n; ++i) x[i] *= factor;
    work(GradientPiece<double>{x, dy, gamma, n}, at);
  }
}

// A block of a rare row, or one of which a sum in f32 is not finite or has lost digits.
template <class T>
GradientNode BackwardRows<T>::sum_rare_block(std::size_t row, const GradientScalars& s, ColumnRange range) {
  const double centre = s.rare ? s.mean : static_cast<double>(static_cast<A>(s.mean));
  GradientLanes lanes;
  for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t col) {
    widened(piece, s.exponent, [&](const GradientPiece<double>& wide, std::size_t at) {
      kernels_.of<double>().sum_gradients(wide, centre, col + at == range.first, &lanes);
    });
  });
  return joined(lanes);
}

// The dx of a rare row, or of one whose dx alone is rare: of all columns, or of those that f32 arithmetic left not
// finite. columns: where a rare row adds its terms: in f64 arithmetic to chains, else to the sums themselves.
template <class T>
void BackwardRows<T>::dx_of_rare_piece(const GradientScalars& s, const DxScalarsOfRows<A>& scalars,
                                       const GradientPiece<T>& piece, const GradientColumns<A>& columns, Chain chain,
                                       T* dx) {
  DxScalarsOfRows<double> rare;
  const bool has_means = store_dx_scalars(s, rare);
  const double factor = std::ldexp(1.0, -s.exponent);
  widened(piece, s.exponent, [&](const GradientPiece<double>& wide, std::size_t at) {
    double found[kRarePiece];
    const auto kernel = kernels_.of<double>().dx_of_piece;
    const GradientColumns<A> to = from_column(columns, at);
    if constexpr (kWide) {
      kernel(wide, found, rare, to, to.are_wanted() ? chain : Chain::none, false);
    } else {
      kernel(wide, found, rare, {nullptr, nullptr, to.sums}, to.are_wanted() ? Chain::whole : Chain::none, false);
    }
    if (!has_means) std::fill_n(found, wide.n, std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; s.exponent != 0 && i < wide.n; ++i) found[i] *= factor;
    canonicalise_nans(found, wide.n);
    if constexpr (!kWide) {
      if (!s.rare_dx) {
        const GradientPiece<T> part{piece.x + at, piece.dy + at, piece.gamma + at, wide.n};
        return replace_not_finite(scalars, part, found, dx + at);
      }
    }
    A rounded[kRarePiece];
    kernels_.convert[index_of(DType::f64)][index_of(dtype_of<A>)](found, rounded, wide.n);
    kernels_.convert[index_of(dtype_of<A>)][index_of(dtype_of<T>)](rounded, dx + at, wide.n);
  });
}

// Replaces what f32 arithmetic left not finite, before it is rounded to T.
template <class T>
void BackwardRows<T>::replace_not_finite(const DxScalarsOfRows<A>& scalars, const GradientPiece<T>& piece,
                                         const double* found, T* dx) {
  A x[kRarePiece], dy[kRarePiece], values[kRarePiece];
  Convert* widen = kernels_.convert[index_of(dtype_of<T>)][index_of(dtype_of<A>)];
  widen(piece.x, x, piece.n);
  widen(piece.dy, dy, piece.n);
  kernels_.of<A>().dx_of_piece({x, dy, piece.gamma, piece.n}, values, scalars, {}, Chain::none, false);
  for (std::size_t i = 0; i < piece.n; ++i) {
    if (!std::isfinite(values[i])) values[i] = static_cast<A>(found[i]);
  }
  kernels_.convert[index_of(dtype_of<A>)][index_of(dtype_of<T>)](values, dx, piece.n);
}

// Sums over rows that left the range of f32 on the way: anew, with the terms of all rows in f64.
template <class T>
void BackwardRows<T>::repair_columns(const GradientScalars* scalars, RowBlock rows, ColumnRange range,
                                     const ColumnSums& sums) {
  if (sums.values == nullptr || kWide) return;
  const std::size_t cols = range.end - range.first;
  const GradientColumns<A> all = columns_at<A>(sums, range.first);
  double* const places[] = {all.sums.dgamma, all.sums.dbeta};
  const auto are_finite = kernels_.in<double>().are_finite;
  if (are_finite(places[0], cols) && are_finite(places[1], cols)) return;
  A* const is_wrong[] = {all.dgamma_chain, all.dbeta_chain};
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t c = 0; c < cols; ++c) {
      is_wrong[i][c] = std::isfinite(places[i][c]) ? A{0} : A{1};
      if (is_wrong[i][c] != 0) places[i][c] = 0;
    }
  }
  for (std::size_t row = rows.first; row < rows.end; ++row) {
    GradientScalars s{};
    scalars == nullptr ? find_statistics(row, 1, &s) : static_cast<void>(s = scalars[row]);
    DxScalarsOfRows<double> of_row;
    store_dx_scalars(s, of_row);
    for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t col) {
      widened(piece, 0, [&](const GradientPiece<double>& wide, std::size_t at) {
        double dx[kRarePiece], terms[2][kRarePiece] = {};
        kernels_.of<double>().dx_of_piece(wide, dx, of_row, {nullptr, nullptr, {terms[0], terms[1]}}, Chain::whole,
                                          false);
        for (std::size_t i = 0; i < 2; ++i) {
          for (std::size_t c = 0, to = col + at - range.first; c < wide.n; ++c, ++to) {
            if (is_wrong[i][to] != 0) places[i][to] += terms[i][c];
          }
        }
      });
    });
  }
}

template class BackwardRows<double>;
template class BackwardRows<float>;
template class BackwardRows<bfloat16>;
template class BackwardRows<float16>;

}  // namespace evenorm::internal
