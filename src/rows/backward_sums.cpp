// Sums of rows that are some columns of longer ones, and of scaled rows; and what a row's sums make. The sums of whole
// rows as they are: backward.cpp.
#include <algorithm>
#include <cmath>

#include "rows/backward.hpp"

namespace evenorm::internal {

template <class T>
void BackwardRows<T>::sum_run(std::size_t first, std::size_t count, std::size_t first_col, std::size_t cols,
                              GradientSums* sums) {
  GradientScalars scalars[kRowsAtOnce];
  find_statistics(first, count, scalars);
  const ColumnRange range{first_col, first_col + cols};
  for (std::size_t i = 0, n; i < count; i += n) {
    n = run_length(scalars + i, count - i);
    BlockSums joined[kRowsAtOnce];
    if (!scalars[i].scaled) look_at(first + i, n, scalars + i, range, {}, joined);
    for (std::size_t r = i; r < i + n; ++r) {
      sums[r] = {JoinGradients<A>::node_of(joined[r - i]), 0, 0, false};
      if (kWide && scalars[r].scaled) {
        sums[r] = scaled_sums(first + r, range, &scalars[r]);
      }
    }
  }
}

template <class T>
GradientScalars BackwardRows<T>::finish_sums(std::size_t row, const GradientSums& sums) {
  GradientScalars s;
  find_statistics(row, 1, &s);
  const BlockSums joined = JoinGradients<A>::sums_of(sums.sums);
  if (!sums.scaled) {
    set_means(joined, &s);
    if (!s.scaled && holds_k2(joined, s)) return s;
  }
  if constexpr (kWide) set_scaled_means(sums, &s);
  return s;
}

template <class T>
[[gnu::noinline]] void BackwardRows<T>::sum_scaled_gradients(std::size_t row, GradientScalars* s) {
  if constexpr (kWide) set_scaled_means(scaled_sums(row, {0, p_.cols}, s), s);
}

// Leaves the exponents of its sums in s.
template <class T>
[[gnu::noinline]] GradientSums BackwardRows<T>::scaled_sums(std::size_t row, ColumnRange range, GradientScalars* s) {
  ScaledGradient::W g{0, 0}, gd{0, 0};
  if constexpr (kWide) {
    const ScaledGradient gradient(*s);  // sees the exponents once they are there
    s->c1_exponent = s->c2_exponent = kExponentOfZero;
    for_pieces(row, range, [&](const A* x, const A* dy, const A* gamma, std::size_t n) {
      gradient.find_exponents(x, dy, gamma, n, &s->c1_exponent, &s->c2_exponent);
    });
    for_pieces(row, range,
               [&](const A* x, const A* dy, const A* gamma, std::size_t n) { gradient.sum(x, dy, gamma, n, &g, &gd); });
  }
  return {{g.hi, g.lo, gd.hi, gd.lo}, s->c1_exponent, s->c2_exponent, true};
}

template <class T>
void BackwardRows<T>::set_scaled_means(const GradientSums& sums, GradientScalars* s) {
  const auto scaled = [](double value, int exponent) { return std::ldexp(value, -exponent); };
  const auto own_exponent = [](double value) { return value == 0 || !std::isfinite(value) ? 0 : std::ilogb(value); };
  const int g = own_exponent(sums.sums.g_hi), gd = own_exponent(sums.sums.gd_hi);
  s->scaled_map = true;
  set_means({{scaled(sums.sums.g_hi, g), scaled(sums.sums.g_lo, g)},
             {scaled(sums.sums.gd_hi, gd), scaled(sums.sums.gd_lo, gd)}},
            s);
  s->c1_exponent = sums.g_exponent + g;
  s->c2_exponent = sums.gd_exponent + gd + s->rstd_exponent;
}

template <class T>
template <class Work>
void BackwardRows<T>::for_pieces(std::size_t row, ColumnRange range, const Work& work) {
  for (std::size_t col = range.first; col < range.end; col += kPiece) {
    const std::size_t n = std::min(kPiece, range.end - col);
    work(x_[0].get().block(row, col, n), dy_[0].get().block(row, col, n), gamma_.block(col, n), n);
  }
}

#define EVENORM_INSTANTIATE(T)                                                                               \
  template void BackwardRows<T>::sum_run(std::size_t, std::size_t, std::size_t, std::size_t, GradientSums*); \
  template GradientScalars BackwardRows<T>::finish_sums(std::size_t, const GradientSums&);                   \
  template void BackwardRows<T>::set_scaled_means(const GradientSums&, GradientScalars*);                    \
  template void BackwardRows<T>::sum_scaled_gradients(std::size_t, GradientScalars*);
EVENORM_INSTANTIATE(double)
EVENORM_INSTANTIATE(float)
EVENORM_INSTANTIATE(bfloat16)
EVENORM_INSTANTIATE(float16)
#undef EVENORM_INSTANTIATE

}  // namespace evenorm::internal
