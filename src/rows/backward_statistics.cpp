// The statistics that a backward pass is given, or finds anew, as the forward pass finds them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "rows/backward.hpp"

namespace evenorm::internal {
namespace {

void load_numbers(const Vector<const void*>& from, std::size_t first, std::size_t count, double* to) {
  const char* data = static_cast<const char*>(from.data);
  if (from.axes.is_dense(sizeof(double))) {
    std::memcpy(to, data + first * sizeof(double), count * sizeof(double));
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = load_one(reinterpret_cast<const double*>(data + from.axes.offset(first + i)));
    }
  }
}

// In f64 arithmetic the mean's low part counts only beside a mean that is larger than the standard deviation.
bool needs_low(double mean, double rstd) { return !(std::abs(mean) * rstd <= 1); }

}  // namespace

// Loads the statistics that are given. Returns false if there are none, or if an f64 row among them has to be found
// anew, because a given mean has no low part, or because the row is rare. What is found has the same bits.
template <class T>
bool BackwardRows<T>::load_statistics(std::size_t first, std::size_t count, double* means, double* rstds) const {
  if (p_.rstd.data == nullptr) return false;
  std::fill_n(means, count, 0.0);
  if (is_centred()) load_numbers(p_.mean, first, count, means);
  load_numbers(p_.rstd, first, count, rstds);
  for (std::size_t i = 0; i < count; ++i) {
    if (kWide && (needs_low(means[i], rstds[i]) || !(rstds[i] == 0 || kRstdRange<A>.has(rstds[i])))) return false;
    rstds[i] = usable_rstd(rstds[i]);
  }
  return true;
}

template <class T>
void BackwardRows<T>::find_statistics(std::size_t first, std::size_t count, GradientScalars* scalars) {
  double means[kMaxGroup], rstds[kMaxGroup];
  if (load_statistics(first, count, means, rstds)) {
    for (std::size_t i = 0; i < count; ++i) {
      scalars[i] = {};
      scalars[i].mean = means[i];
      scalars[i].rstd = rstds[i];
      scalars[i].rare = !kWide && rstds[i] != 0 && !kRstdRange<A>.has(rstds[i]);
    }
    return;
  }
  RowGroup<A> group;
  OwnSource<T, kBlock> x(kernels_, p_.x);
  if (p_.moments != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      finish_one(group, 0, node_of<A>(p_.moments[first + i]), p_.eps);
      set_statistics(group, 0, x, first + i, scalars + i);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    set_moments(group, i,
                sum_blocks<T>(kernels_, p_.kind, moment_nodes_, partition(p_),
                              [&](std::size_t col, std::size_t n) { return x.get().block(first + i, col, n); }));
  }
  group.clear_from(count);
  kernels_.in<A>().finish(group, count, static_cast<double>(p_.cols), p_.eps);
  for (std::size_t i = 0; i < count; ++i) set_statistics(group, i, x, first + i, scalars + i);
}

// A row over several processes cannot be scaled.
template <class T>
void BackwardRows<T>::set_statistics(const RowGroup<A>& group, std::size_t at, OwnSource<T, kBlock>& x, std::size_t row,
                                     GradientScalars* s) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  *s = {};
  s->mean = group.mean[at];
  s->rstd = group.rstd[at];
  if constexpr (kWide) {
    s->mean_lo = group.mean_lo[at];
    if (p_.moments != nullptr) {
      if (group.flag[at] != 0 && !has_vanished(p_.moments[row])) s->mean = s->rstd = kNan;
    } else if (group.flag[at] != 0 || !(s->rstd == 0 || kRstdRange<A>.has(s->rstd))) {
      const RareScalars rare =
          rare_scalars(kernels_, p_.kind, RowReader([&](std::size_t col, std::size_t n, double* to, bool) {
                         std::memcpy(to, x.get().block(row, col, n), n * sizeof(double));
                       }),
                       partition(p_), p_.eps, x.scratch(), moment_nodes_);
      if (group.flag[at] != 0) s->mean = rare.mean, s->mean_lo = rare.mean_lo, s->rstd = rare.rstd;
      s->rstd = usable_rstd(s->rstd);
      if (!(s->rstd == 0 || kRstdRange<A>.has(s->rstd) || rare.by_eps)) {
        s->mean = rare.row.mean, s->mean_lo = rare.row.mean_lo, s->rstd = rare.row.rstd;
        s->exponent = rare.exponent;
      }
    }
    if (!needs_low(s->mean, s->rstd)) s->mean_lo = 0;
  } else if (!std::isfinite(group.mean[at]) || !std::isfinite(group.m2[at])) {
    s->mean = s->rstd = kNan;
  }
  s->rstd = usable_rstd(s->rstd);
  s->rare = kWide ? s->exponent != 0 : s->rstd != 0 && !kRstdRange<A>.has(s->rstd);
}

// Those of short rows that are dense and of type T: given, of up to kMaxShortRows (f64: kMaxGroup), or found, of up to
// kMaxGroup. False where one may be rare.
template <class T>
bool BackwardRows<T>::find_short_statistics(std::size_t first, std::size_t count, RowStatistics& to) {
  std::fill_n(to.mean_lo, count, 0.0);
  if (load_statistics(first, count, to.mean, to.rstd)) return true;
  RowGroup<A> group;
  Source<T>& x = x_.get();
  kernels_.of<T>().sum_rows[index_of(p_.kind)]({{x.block(first, 0, p_.cols), x.step()}, count, p_.cols, &group, 0, 0});
  finish_group<T>(kernels_, group, count, p_.cols, p_.eps, is_centred(), {x.block(first, 0, p_.cols), x.step()});
  if (group.any_flag(count)) return false;
  std::copy_n(group.mean, count, to.mean);
  for (std::size_t i = 0; i < count; ++i) {
    if (kWide && !kRstdRange<A>.has(group.rstd[i])) return false;
    if (kWide && needs_low(group.mean[i], group.rstd[i])) to.mean_lo[i] = group.mean_lo[i];
    to.rstd[i] = usable_rstd(group.rstd[i]);
  }
  return true;
}

template class BackwardRows<double>;
template class BackwardRows<float>;
template class BackwardRows<bfloat16>;
template class BackwardRows<float16>;

}  // namespace evenorm::internal
