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
  using namespace plain;
  RowGroup<A> group;
  for (std::size_t i = 0; i < count; ++i) {
    MomentTree<A> tree({moment_nodes_, is_centred()});
    sum_blocks<T>(kernels_, p_.kind, tree, whole_row_.get(), first + i, p_.cols, 0, blocks_of(p_.cols));
    set_moments(group, i, tree.finish());
  }
  group.clear_from(count);
  kernels_.in<A>().finish(group, count, static_cast<double>(p_.cols), p_.eps);
  for (std::size_t i = 0; i < count; ++i) {
    const RowScalars row = scalars_of(group, i);
    const auto m2 = Number<A>::From(kOne, group.m2_hi[i], group.m2_lo[i]);
    scalars[i] = {};
    scalars[i].mean_hi = row.mean_hi;
    scalars[i].mean_lo = row.mean_lo;
    scalars[i].rstd = row.rstd;
    scalars[i].rstd_lo = RstdLowOf(kOne, MeanOf(kOne, m2, static_cast<double>(p_.cols)), p_.eps, row.rstd);
    if constexpr (kWide) scalars[i].scaled = needs_scaling(first + i, row);
    if (row.extreme) scale_x(first + i, &scalars[i]);
  }
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
  finish_group<T>(kernels_, group, count, p_.cols, p_.eps, is_centred(),
                  [&](std::size_t i) { return x.block(first + i, 0, p_.cols); });
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

// A row outside the safe range; in f64 arithmetic, scaled.
template <class T>
[[gnu::noinline]] void BackwardRows<T>::scale_x(std::size_t row, GradientScalars* s) {
  Source<A> source = whole_row_.wide();
  const A largest = largest_magnitude<A>(source, row, p_.cols);
  s->mean_hi = s->mean_lo = s->rstd_lo = 0;
  if (!(largest <= std::numeric_limits<A>::max())) {
    s->mean_hi = s->rstd = std::numeric_limits<double>::quiet_NaN();
  } else if (largest == A{0}) {
    set_rstd(rstd_of_constant<A>(p_.eps), 0, s);
  } else {
    const ScaledRow scaled = sum_scaled<A>(kernels_, p_.kind, source, row, p_.cols, largest, p_.eps, moment_nodes_);
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
