// One row of the backward pass: its sums, its scalars, dx, and what it adds to the columns; in wide numbers where the
// arithmetic's type cannot hold what is on the way.
#include <cmath>
#include <cstring>
#include <limits>

#include "rows/backward.hpp"

namespace evenorm::internal {
namespace {

// (hi + lo) 2^exponent, which has a low part in f64 arithmetic; 0 is +0.
void store_scaled(double hi, double lo, int exponent, double* to, std::size_t low) {
  if (low != 0) to[low] = std::ldexp(lo, exponent);
  to[0] = std::ldexp(hi, exponent) + 0.0;
}

template <class T>
bool are_zero(const T* values, std::size_t n) {
  MagnitudeBits<T> any = 0;
  for (std::size_t i = 0; i < n; ++i) any |= magnitude_bits(values + i);
  return any == 0;
}

// A row's sum of g (x - mean).
template <class A>
plain::Number<A> about_mean(const GradientScalars& s, const GradientSums& sums) {
  using namespace plain;
  using W = Number<A>;
  return SumAboutMean(kOne, W::From(kOne, sums.sums.g_hi, sums.sums.g_lo),
                      W::From(kOne, sums.sums.gd_hi, sums.sums.gd_lo), RestOfMean<A>(kOne, s.mean_hi, s.mean_lo));
}

// A block's lanes, as many as are wide, to one number.
template <class A>
WideNumber joined(const double* sums) {
  using namespace plain;
  Number<A> lanes[kLanes / 2];
  for (std::size_t l = 0; l < kLanes / 2; ++l) lanes[l] = Number<A>::From(kOne, sums[l], sums[GradientLanes::kLow + l]);
  for (std::size_t step = kLanes / 4; step != 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) lanes[l] = Add(kOne, lanes[l], lanes[l + step]);
  }
  return to_memory(lanes[0]);
}

}  // namespace

template <class T>
template <class Work>
void BackwardRows<T>::for_pieces(std::size_t row, ColumnRange range, const Work& work) {
  for (std::size_t col = range.first, n; col < range.end; col += n) {
    n = std::min(piece_, range.end - col);
    const A* gamma = weighs_ ? gamma_.block(col, n) : kConstantBlock<A, 1>.data();
    work({x_.get().block(row, col, n), dy_.get().block(row, col, n), gamma, n, ahead_}, col);
  }
}

// work(x, dy, gamma, n, at) of a piece's columns in the arithmetic's type.
template <class T>
template <class Work>
void BackwardRows<T>::widened(const GradientPiece<T>& piece, const Work& work) {
  if constexpr (std::is_same_v<T, A>) {
    work(piece.x, piece.dy, piece.gamma, piece.n, std::size_t{0});
  } else {
    constexpr std::size_t kAtOnce = 64;
    Convert* widen = kernels_.convert[index_of(dtype_of<T>)][index_of(DType::f32)];
    A x[kAtOnce], dy[kAtOnce];
    for (std::size_t i = 0, n; i < piece.n; i += n) {
      n = std::min(kAtOnce, piece.n - i);
      widen(piece.x + i, x, n);
      widen(piece.dy + i, dy, n);
      work(x, dy, piece.gamma + i, n, i);
    }
  }
}

template <class T>
GradientSums BackwardRows<T>::sum_row(std::size_t row, const GradientScalars& s, const GradientNode* runs) {
  if (weighs_runs() || row_sums_ != nullptr) {
    const GradientSums sums = sum_runs(row, s, runs);
    if (weighs_runs() && !s.wide && std::isfinite(sums.sums.g_hi) && std::isfinite(sums.sums.gd_hi)) return sums;
  }
  return sum_by_blocks(row, s, {0, p_.cols});
}

template <class T>
GradientSums BackwardRows<T>::sum_by_blocks(std::size_t row, const GradientScalars& s, ColumnRange range) {
  GradientSumsTree<A> tree({sum_nodes_});
  for (std::size_t block = range.first; block < range.end; block += kBlock) {
    tree.push(sum_block(row, s, {block, std::min(block + kBlock, range.end)}));
  }
  return tree.finish();
}

template <class T>
GradientSums BackwardRows<T>::sum_block(std::size_t row, const GradientScalars& s, ColumnRange range) {
  bool may_be_zero = false;
  if (!s.wide) {
    GradientLanes lanes;
    for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t col) {
      kernels_.of<T>().sum_gradients(piece, static_cast<A>(s.mean_hi), col == range.first, &lanes);
    });
    const WideNumber g = joined<A>(lanes.g), gd = joined<A>(lanes.gd);
    const bool has_digits = weighs_ || std::abs(gd.hi) >= kLeastOfRun<A>;
    if (has_digits && std::isfinite(g.hi) && std::isfinite(gd.hi)) return {{g.hi, g.lo, gd.hi, gd.lo}};
    may_be_zero = gd.hi == 0;  // else x may not be finite
  }
  WideGradient<A> wide(s);
  for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t) {
    if (may_be_zero && are_zero(piece.dy, piece.n)) return;
    widened(piece,
            [&](const A* x, const A* dy, const A* gamma, std::size_t n, std::size_t) { wide.add(x, dy, gamma, n); });
  });
  return wide.sums();
}

template <class T>
void BackwardRows<T>::finish(const GradientSums& sums, GradientScalars* s) {
  using namespace plain;
  using W = Number<A>;
  if (!is_wide(*s, sums)) {
    const auto means = GradientMeansOf(
        kOne, is_centred(), WideSums<W>{W::From(kOne, sums.sums.g_hi, sums.sums.g_lo), about_mean<A>(*s, sums)},
        W::From(kOne, s->rstd, s->rstd_lo), static_cast<double>(p_.whole_cols));
    s->c1_hi = means.c1.hi, s->c1_lo = means.c1.Low(kOne);
    s->c2_hi = means.c2.hi, s->c2_lo = means.c2.Low(kOne);
  }
  DxScalarsOfRows<A> scalars;
  s->wide_dx = s->wide || has_exponents(sums) || !store_dx_scalars(*s, scalars);
  if constexpr (kWide) {
    if (s->wide_dx) WideGradient<A>(*s).finish(is_centred(), p_.whole_cols, sums, s);
  }
}

// False if dx must be computed in wider numbers.
template <class T>
bool BackwardRows<T>::store_dx_scalars(const GradientScalars& s, DxScalarsOfRows<A>& scalars) const {
  using namespace plain;
  using W = Number<A>;
  StoreNormScalars<A>(kOne, s.mean_hi, s.mean_lo, s.rstd, false, scalars.centre, scalars.offset, scalars.rstd);
  const GradientMeans<W> means{W::From(kOne, s.c1_hi, s.c1_lo), W::From(kOne, s.c2_hi, s.c2_lo)};
  return StoreDxScalars<A>(kOne, RestOfMean<A>(kOne, s.mean_hi, s.mean_lo), W::From(kOne, s.rstd, s.rstd_lo), means, 0,
                           scalars);
}

template <class T>
GradientSums BackwardRows<T>::sum_part(std::size_t row, std::size_t first_col, std::size_t cols) {
  GradientScalars s;
  find_statistics(row, 1, &s);
  return sum_by_blocks(row, s, {first_col, first_col + cols});
}

template <class T>
GradientScalars BackwardRows<T>::finish_sums(std::size_t row, const GradientSums& sums) {
  GradientScalars s;
  find_statistics(row, 1, &s);
  finish(sums, &s);
  return s;
}

template <class T>
bool BackwardRows<T>::finish_runs(std::size_t row, GradientScalars& s, const GradientNode* runs,
                                  DxScalarsOfRows<A>& scalars, A* gamma) {
  finish(sum_row(row, s, runs), &s);
  store_dx_scalars(s, scalars);
  for (std::size_t col = 0; col < p_.cols; col += p_.run) *gamma++ = gamma_.at(col);
  return !s.wide_dx;
}

// Sums each run of columns. Returns the sums of the row, weighed run by run: not finite if they have to be found by
// blocks.
template <class T>
GradientSums BackwardRows<T>::sum_runs(std::size_t row, const GradientScalars& s, const GradientNode* known) {
  using namespace plain;
  using W = Number<A>;
  double* const to = row_sums_ != nullptr ? row_sums_ + row * slot_of_row(p_) : nullptr;
  W g = W::Zero(kOne), gd = W::Zero(kOne);
  weighs_ = false;
  for (std::size_t i = 0, col = 0; col < p_.cols; ++i, col += p_.run) {
    const bool is_known = known != nullptr && std::isfinite(known[i].g_hi) && std::isfinite(known[i].gd_hi);
    const GradientSums sums = is_known ? GradientSums{known[i]} : sum_by_blocks(row, s, {col, col + p_.run});
    if (to != nullptr) store_run(s, sums, to + i);
    if (!weighs_runs()) continue;
    const bool apart = sums.g_exponent != 0 || sums.gd_exponent != 0;
    const double weight = apart ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(gamma_.at(col));
    const W gamma = W::From(kOne, weight, 0);
    g = Add(kOne, g, Multiply(kOne, W::From(kOne, sums.sums.g_hi, sums.sums.g_lo), gamma));
    gd = Add(kOne, gd, Multiply(kOne, W::From(kOne, sums.sums.gd_hi, sums.sums.gd_lo), gamma));
  }
  weighs_ = true;
  return {{g.hi, g.Low(kOne), gd.hi, gd.Low(kOne)}};
}

// A run's sums of dy xhat and of dy.
template <class T>
void BackwardRows<T>::store_run(const GradientScalars& s, const GradientSums& sums, double* to) {
  using namespace plain;
  const std::size_t runs = p_.cols / p_.run, low = kWide ? 2 * runs : 0;
  store_scaled(sums.sums.g_hi, sums.sums.g_lo, sums.g_exponent, to + runs, low);
  if constexpr (kWide) {
    if (is_wide(s, sums)) {
      GradientScalars of_run = s;
      WideGradient<A>(s).finish(is_centred(), 1, sums, &of_run);
      return store_scaled(of_run.c2_hi, of_run.c2_lo, of_run.c2_exponent, to, low);
    }
  }
  const auto sum = Multiply(kOne, about_mean<A>(s, sums), Number<A>::From(kOne, s.rstd, s.rstd_lo));
  store_scaled(sum.hi, sum.Low(kOne), 0, to, low);
}

template <class T>
void BackwardRows<T>::dx_of_row(std::size_t row, const GradientScalars& s, ColumnRange range, const ColumnSums& sums,
                                bool ends, Want want) {
  DxScalarsOfRows<A> scalars;
  store_dx_scalars(s, scalars);
  const ChainPlace place{!open_, ends};
  for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t col) {
    dx_of_piece(row, s, scalars, piece, columns_at<A>(sums, col), place, col, want);
  });
  if (sums.values == nullptr) return;
  if (s.wide && open_ && ends) end_chains(columns_at<A>(sums, range.first), range.end - range.first);
  open_ = !ends && (open_ || !s.wide);
}

template <class T>
void BackwardRows<T>::dx_of_piece(std::size_t row, const GradientScalars& s, const DxScalarsOfRows<A>& scalars,
                                  const GradientPiece<T>& piece, const GradientColumns<A>& columns,
                                  const ChainPlace& place, std::size_t col, Want want) {
  T* to = want != Want::columns && p_.dx.data != nullptr ? sink_.block(row, col, piece.n) : nullptr;
  T* dx = aside_ != nullptr ? aside_ : to;
  const bool finite =
      !s.wide && kernels_.of<T>().dx_of_piece(piece, dx, scalars, columns, place, stream_ && dx == to) && !s.wide_dx;
  if (s.wide && columns.sums.dgamma != nullptr) {
    const WideGradient<A> wide(s);
    widened(piece, [&](const A* x, const A* dy, const A*, std::size_t n, std::size_t at) {
      wide.add_to_columns(x, dy, n, from_column(columns, at), true);
    });
  }
  if (to == nullptr) return;
  if (!finite) dx_of_wide_piece(s, scalars, piece, dx);
  if constexpr (std::is_same_v<T, A>) deliver(row, col, piece.n, dx, to);  // else it is where it should be
}

// What the kernel left not finite, or all; of a 16-bit type by way of f32.
template <class T>
void BackwardRows<T>::dx_of_wide_piece(const GradientScalars& s, const DxScalarsOfRows<A>& scalars,
                                       const GradientPiece<T>& piece, T* dx) {
  const WideGradient<A> wide(s);
  widened(piece, [&](const A* x, const A* dy, const A* gamma, std::size_t n, std::size_t at) {
    if constexpr (std::is_same_v<T, A>) {
      wide.write_dx(x, dy, gamma, n, dx + at, s.wide_dx);
    } else {
      A wide_dx[kGradientPiece<A>];
      if (!s.wide_dx) kernels_.of<A>().dx_of_piece({x, dy, gamma, n}, wide_dx, scalars, {}, {}, false);
      wide.write_dx(x, dy, gamma, n, wide_dx, s.wide_dx);
      kernels_.convert[index_of(dtype_of<A>)][index_of(dtype_of<T>)](wide_dx, dx + at, n);
    }
  });
}

template <class T>
void BackwardRows<T>::deliver(std::size_t row, std::size_t col, std::size_t n, const A* dx, A* place) {
  if (p_.dsum.data != nullptr) {
    add_sum(row, col, n, place);
  } else if (dx != place) {
    std::memcpy(static_cast<void*>(place), dx, n * sizeof(A));
  }
  sink_.done(row, 1, col, n);
}

// What is aside and the gradient of the sum, to `place`.
template <class T>
void BackwardRows<T>::add_sum(std::size_t row, std::size_t col, std::size_t n, A* place) {
  if constexpr (std::is_same_v<T, A>) {
    if (p_.dsum.dtype == dtype_of<A> && has_dense_rows(p_.dsum)) {
      const auto* dsum = reinterpret_cast<const A*>(place_in_row(p_.dsum, row, col));
      kernels_.of<A>().add(A{1}, aside_, dsum, n, place, stream_);
    } else {
      add_pieces(row, col, n, place);
    }
  }
}
template <class T>
[[gnu::noinline]] void BackwardRows<T>::add_pieces(std::size_t row, std::size_t col, std::size_t n, A* place) {
  if constexpr (std::is_same_v<T, A>) {
    constexpr std::size_t kAtOnce = 64;
    char gathered[kAtOnce * sizeof(double)];
    A converted[kAtOnce];
    Tile<const void*> tile(kernels_, p_.dsum, false, gathered, 0);
    Source<A> source(kernels_, p_.dsum, has_dense_rows(p_.dsum) ? nullptr : &tile, converted);
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(kAtOnce, n - i);
      kernels_.of<A>().add(A{1}, aside_ + i, source.block(row, col + i, count), count, place + i, false);
    }
  }
}

// Sums over rows that left the range on the way: anew, in wide numbers.
template <class T>
void BackwardRows<T>::repair_columns(const GradientScalars* scalars, RowBlock rows, ColumnRange range,
                                     const ColumnSums& sums) {
  if (sums.values == nullptr) return;
  const std::size_t cols = range.end - range.first;
  const GradientColumns<A> to = columns_at<A>(sums, range.first);
  double* const places[] = {to.sums.dgamma, to.sums.dbeta};
  const auto are_finite = kernels_.in<double>().are_finite;
  const std::size_t low = to.sums.low;
  const auto all_finite = [&](const double* place) {
    return are_finite(place, cols) && (low == 0 || are_finite(place + low, cols));
  };
  if (all_finite(places[0]) && all_finite(places[1])) return;
  A* const chains[] = {to.dgamma_chain, to.dbeta_chain};  // not 0: these columns
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t c = 0; c < cols; ++c) {
      chains[i][c] = std::isfinite(places[i][c]) && std::isfinite(places[i][c + low]) ? A{0} : A{1};
      if (chains[i][c] != 0) places[i][c] = places[i][c + low] = 0;
    }
  }
  for (std::size_t row = rows.first; row < rows.end; ++row) {
    GradientScalars found;
    if (scalars == nullptr) find_statistics(row, 1, &found);
    const WideGradient<A> wide(scalars == nullptr ? found : scalars[row]);
    for_pieces(row, range, [&](const GradientPiece<T>& piece, std::size_t col) {
      const GradientColumns<A> of_piece = columns_at<A>(sums, col);
      widened(piece, [&](const A* x, const A* dy, const A*, std::size_t n, std::size_t at) {
        wide.add_to_columns(x, dy, n, from_column(of_piece, at), false);
      });
    });
  }
}

template class BackwardRows<double>;
template class BackwardRows<float>;
template class BackwardRows<bfloat16>;
template class BackwardRows<float16>;

}  // namespace evenorm::internal
