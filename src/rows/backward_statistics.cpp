// The statistics that a backward pass finds anew, as the forward pass finds them, and which rows are scaled.
#include <algorithm>
#include <limits>

#include "rows/backward.hpp"

namespace evenorm::internal {
namespace {

double load_statistic(const Vector<const void*>& from, std::size_t row) {
  return load_one(reinterpret_cast<const double*>(static_cast<const char*>(from.data) + from.axes.offset(row)));
}

void set_rstd(const WideNumber& rstd, int exponent, GradientScalars* s) {
  s->rstd = rstd.hi;
  s->rstd_lo = rstd.lo;
  s->rstd_exponent = exponent;
}

}  // namespace

// mean, rstd, and whether the row is scaled, and how.
template <class T>
void BackwardRows<T>::find_statistics(std::size_t first, std::size_t count, GradientScalars* scalars) {
  if (!kWide && p_.rstd.data != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      scalars[i] = {};
      if (is_centred()) scalars[i].mean_hi = load_statistic(p_.mean, first + i);
      scalars[i].rstd = load_statistic(p_.rstd, first + i);
    }
    return;
  }
  RowGroup<A> group;
  if (p_.moments != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      finish_one(group, 0, node_of<A>(p_.moments[first + i]), p_.eps);
      if (p_.moments[first + i].exponent != 0) group.flag[0] = 1;
      set_statistics(group, 0, first + i, scalars + i);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    MomentTree<A> tree({moment_nodes_, is_centred()});
    sum_blocks<T>(kernels_, p_.kind, tree, whole_row_.get(), first + i, p_.cols, 0, blocks_of(p_.cols));
    set_moments(group, i, tree.finish());
  }
  group.clear_from(count);
  kernels_.in<A>().finish(group, count, static_cast<double>(p_.cols), p_.eps);
  for (std::size_t i = 0; i < count; ++i) set_statistics(group, i, first + i, scalars + i);
}

template <class T>
void BackwardRows<T>::set_statistics(const RowGroup<A>& group, std::size_t at, std::size_t row, GradientScalars* s) {
  using namespace plain;
  const RowScalars found = scalars_of(group, at);
  const auto m2 = Number<A>::From(kOne, group.m2_hi[at], group.m2_lo[at]);
  *s = {};
  s->mean_hi = found.mean_hi;
  s->mean_lo = found.mean_lo;
  s->rstd = found.rstd;
  s->rstd_lo = RstdLowOf(kOne, MeanOf(kOne, m2, static_cast<double>(p_.whole_cols)), p_.eps, found.rstd);
  if constexpr (kWide) s->scaled = needs_scaling(row, found);
  if (found.extreme) scale_x(row, s);
}

// Those of short rows that are dense and of type T, in f32 arithmetic: given, of up to kMaxShortRows, or found, of up
// to kMaxGroup. False where one is extreme.
template <class T>
bool BackwardRows<T>::find_short_statistics(std::size_t first, std::size_t count, double* mean, double* rstd) {
  if (p_.rstd.data != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      mean[i] = is_centred() ? load_statistic(p_.mean, first + i) : 0;
      rstd[i] = load_statistic(p_.rstd, first + i);
    }
    return true;
  }
  RowGroup<A> group;
  Source<T>& x = x_[0].get();
  const auto sum_rows = kernels_.of<T>().sum_rows[index_of(p_.kind)];
  for (std::size_t i = 0, n; i < count; i += n) {
    n = x.even_rows(first + i, count - i);
    sum_rows({{x.block(first + i, 0, p_.cols), x.step()}, n, p_.cols, &group, i, 0});
  }
  finish_group<T>(kernels_, group, count, p_.cols, p_.eps, is_centred(), x, first);
  std::copy_n(group.mean_hi, count, mean);
  std::copy_n(group.rstd, count, rstd);
  return !group.any_flag(count);
}

template <class T>
[[gnu::noinline]] void BackwardRows<T>::find_gamma_range(ColumnRange used) {
  if constexpr (kWide) {
    MagnitudeRange range;
    for (std::size_t first = used.first; first < used.end; first += kBlock) {
      const std::size_t n = std::min(kBlock, used.end - first);
      kernels_.include_magnitudes(gamma_.block(first, n), n, &range);
    }
    has_plain_gamma_ = range.is_within(1 / kLargestGammaF64, kLargestGammaF64);
  }
}

template <class T>
[[gnu::noinline]] bool BackwardRows<T>::has_plain_elements(std::size_t row) {
  MagnitudeRange of_x, of_dy;
  if constexpr (kWide) {
    for (std::size_t col = 0; col < p_.cols; col += kPiece) {
      const std::size_t n = std::min(kPiece, p_.cols - col);
      kernels_.include_magnitudes(x_[0].get().block(row, col, n), n, &of_x);
      kernels_.include_magnitudes(dy_[0].get().block(row, col, n), n, &of_dy);
    }
  }
  return of_x.is_within(kLeastXF64, std::numeric_limits<double>::max()) &&
         of_dy.is_within(1 / kLargestF64, kLargestF64);
}

template <class T>
bool BackwardRows<T>::needs_scaling(std::size_t row, const RowScalars& s) {
  const bool plain_rstd = s.rstd == 0 || (s.rstd >= 1 / kLargestF64 && s.rstd <= kLargestF64);
  return s.extreme || !plain_rstd || !has_plain_gamma_ || !has_plain_elements(row);
}

// A row outside the safe range, or one that is not finite.
template <class T>
[[gnu::noinline]] void BackwardRows<T>::scale_x(std::size_t row, GradientScalars* s) {
  Source<A> source = whole_row_.wide();
  const Moments moments = p_.moments != nullptr
                              ? p_.moments[row]
                              : extreme_moments<A>(kernels_, p_.kind, source, row, p_.cols, moment_nodes_);
  s->mean_hi = s->mean_lo = s->rstd_lo = 0;
  if (!is_finite(moments)) {
    s->mean_hi = s->rstd = std::numeric_limits<double>::quiet_NaN();
  } else if (internal::is_zero(moments)) {
    set_rstd(rstd_of_constant<A>(p_.eps), 0, s);
  } else {
    const ScaledRow scaled = finish_scaled<A>(moments, p_.eps);
    if constexpr (!kWide) {  // f32's factors stay in f64's range
      s->mean_hi = scaled.mean;
      return set_rstd(scaled.rstd, 0, s);
    }
    s->x_exponent = scaled.map_exponent;
    s->mean_hi = scaled.scalars.mean_hi;
    s->mean_lo = scaled.scalars.mean_lo;
    scaled.by_eps ? set_rstd(scaled.rstd, 0, s)
                  : set_rstd({scaled.scalars.rstd, scaled.rstd_lo}, -scaled.map_exponent, s);
  }
}

#define EVENORM_INSTANTIATE(T)                                                                      \
  template void BackwardRows<T>::find_statistics(std::size_t, std::size_t, GradientScalars*);       \
  template bool BackwardRows<T>::find_short_statistics(std::size_t, std::size_t, double*, double*); \
  template void BackwardRows<T>::find_gamma_range(ColumnRange);                                     \
  template bool BackwardRows<T>::has_plain_elements(std::size_t);                                   \
  template bool BackwardRows<T>::needs_scaling(std::size_t, const RowScalars&);                     \
  template void BackwardRows<T>::scale_x(std::size_t, GradientScalars*);
EVENORM_INSTANTIATE(double)
EVENORM_INSTANTIATE(float)
EVENORM_INSTANTIATE(bfloat16)
EVENORM_INSTANTIATE(float16)
#undef EVENORM_INSTANTIATE

}  // namespace evenorm::internal
