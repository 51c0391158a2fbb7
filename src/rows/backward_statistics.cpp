// The statistics that a backward pass is given, or finds anew, as the forward pass finds them.
#include <algorithm>
#include <cstring>
#include <limits>

#include "rows/backward.hpp"

namespace evenorm::internal {
namespace {

double load_statistic(const Vector<const void*>& from, std::size_t row) {
  return load_one(reinterpret_cast<const double*>(static_cast<const char*>(from.data) + from.axes.offset(row)));
}

void load_statistics(const Vector<const void*>& from, std::size_t first, std::size_t count, double* to) {
  if (from.axes.is_dense(sizeof(double))) {
    std::memcpy(to, static_cast<const char*>(from.data) + first * sizeof(double), count * sizeof(double));
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = load_statistic(from, first + i);
  }
}

void set_rstd(const WideNumber& rstd, int exponent, GradientScalars* s) {
  s->rstd = rstd.hi;
  s->rstd_lo = rstd.lo;
  s->rstd_exponent = exponent;
}

}  // namespace

template <class T>
void BackwardRows<T>::find_statistics(std::size_t first, std::size_t count, GradientScalars* scalars) {
  if (!kWide && p_.rstd.data != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      scalars[i] = {};
      if (is_centred()) scalars[i].mean_hi = load_statistic(p_.mean, first + i);
      scalars[i].rstd = usable_rstd(load_statistic(p_.rstd, first + i));
      scalars[i].wide = has_wide_rstd<A>(scalars[i].rstd);
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
  if (found.out_of_range) scale_x(row, s);
  if (usable_rstd(s->rstd) == 0) set_rstd({0, 0}, 0, s);
  s->wide = (kWide && found.out_of_range) || has_wide_rstd<A>(s->rstd);
}

// Those of short rows that are dense and of type T: given, of up to kMaxShortRows, or found, of up to kMaxGroup. False
// where one is out of range.
template <class T>
bool BackwardRows<T>::find_short_statistics(std::size_t first, std::size_t count, RowStatistics& to) {
  const bool is_given = !kWide && p_.rstd.data != nullptr;
  RowGroup<A> group;
  if (!is_given) {
    Source<T>& x = x_.get();
    kernels_.of<T>().sum_rows[index_of(p_.kind)](
        {{x.block(first, 0, p_.cols), x.step()}, count, p_.cols, &group, 0, 0});
    finish_group<T>(kernels_, group, count, p_.cols, p_.eps, is_centred(), x, first);
    if (group.any_flag(count)) return false;
  }
  std::fill_n(to.mean_hi, count, 0.0);
  if (is_given && is_centred()) load_statistics(p_.mean, first, count, to.mean_hi);
  if (is_given) load_statistics(p_.rstd, first, count, to.rstd);
  if (!is_given) std::copy_n(group.mean_hi, count, to.mean_hi), std::copy_n(group.rstd, count, to.rstd);
  for (std::size_t i = 0; i < count; ++i) {
    to.rstd[i] = usable_rstd(to.rstd[i]);
    to.mean_lo[i] = kWide ? group.mean_lo[i] : 0;
    to.rstd_lo[i] = 0;
    if constexpr (kWide) {
      using namespace plain;
      const auto m2 = Number<A>::From(kOne, group.m2_hi[i], group.m2_lo[i]);
      to.rstd_lo[i] = RstdLowOf(kOne, MeanOf(kOne, m2, static_cast<double>(p_.cols)), p_.eps, to.rstd[i]);
    }
  }
  return true;
}

// A row outside the safe range, or one that is not finite.
template <class T>
[[gnu::noinline]] void BackwardRows<T>::scale_x(std::size_t row, GradientScalars* s) {
  Source<A> source = whole_row_.wide();
  const Moments moments = p_.moments != nullptr
                              ? p_.moments[row]
                              : out_of_range_moments<A>(kernels_, p_.kind, source, row, p_.cols, moment_nodes_);
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
    s->x_exponent = scaled.normalise_exponent;
    s->mean_hi = scaled.scalars.mean_hi;
    s->mean_lo = scaled.scalars.mean_lo;
    scaled.by_eps ? set_rstd(scaled.rstd, 0, s)
                  : set_rstd({scaled.scalars.rstd, scaled.rstd_lo}, -scaled.normalise_exponent, s);
  }
}

template class BackwardRows<double>;
template class BackwardRows<float>;
template class BackwardRows<bfloat16>;
template class BackwardRows<float16>;

}  // namespace evenorm::internal
