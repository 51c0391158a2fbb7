// The statistics that a backward pass is given, or finds anew, as the forward pass finds them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backward/backward_rows.hpp"
#include "forward/rare_row.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

inline void load_numbers(const Vector<const void*>& from, std::size_t first, std::size_t count, double* to) {
  if (from.axes.is_dense(sizeof(double))) {
    std::memcpy(to, static_cast<const char*>(from.data) + first * sizeof(double), count * sizeof(double));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) to[i] = load_statistic(from, first + i);
}

// In f64 arithmetic the mean's low part counts only beside a mean that is larger than the standard deviation.
inline bool needs_low(double mean, double rstd) { return !(std::abs(mean) * rstd <= 1); }

// Layer norm of a single column has no gradients: its rstd is taken as 0.
inline double usable_rstd(const GradientProblem& p, double rstd) {
  return p.kind == Kind::layer && p.whole_cols == 1 && rstd == rstd ? 0 : rstd;
}

// Loads the statistics that are given. Returns false if there are none, or if an f64 row among them has to be found
// anew, because a given mean has no low part, or because the row is rare. What is found has the same bits.
template <class A>
bool load_statistics(const GradientProblem& p, std::size_t first, std::size_t count, double* means, double* rstds) {
  if (p.rstd.data == nullptr) return false;
  std::fill_n(means, count, 0.0);
  if (p.kind == Kind::layer) load_numbers(p.mean, first, count, means);
  load_numbers(p.rstd, first, count, rstds);
  for (std::size_t i = 0; i < count; ++i) {
    const bool may_lack_digits = needs_low(means[i], rstds[i]) || is_rare_rstd<A>(rstds[i]);
    if (std::is_same_v<A, double> && may_lack_digits) return false;
    rstds[i] = usable_rstd(p, rstds[i]);
  }
  return true;
}

// The statistics of a row of f64, whose moments are known. A row over several processes cannot be scaled.
inline void set_wide_statistics(BackwardRows<double>& rows, std::size_t row, const RowGroup<double>& group,
                                GradientScalars& s) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const GradientProblem& p = rows.p;
  const bool out_of_range = group.flag[0] != 0;
  s = {group.mean[0], group.mean_lo[0], group.rstd[0]};
  if (p.moments != nullptr) {
    if (out_of_range && !has_vanished(p.moments[row])) s.mean = s.rstd = kNan;
  } else if (out_of_range || is_rare_rstd<double>(s.rstd)) {
    const auto read = [&](std::size_t first, std::size_t n, double* to, bool) {
      const double* from = rows.x.open({row, 1, first, n}, EvenRows<double>{to}).first;
      if (from != to) std::memcpy(to, from, n * sizeof(double));
    };
    const RareScalars rare = rare_scalars(rows.kernels, p.kind, RowReader(read), partition(p), p.eps,
                                          rows.scratch.block, rows.scratch.moment_nodes);
    if (out_of_range) s = {rare.mean, rare.mean_lo, rare.rstd};
    s.rstd = usable_rstd(p, s.rstd);
    if (is_rare_rstd<double>(s.rstd) && !rare.by_eps) {
      s = {rare.row.mean, rare.row.mean_lo, rare.row.rstd};
      s.exponent = rare.exponent;
    }
  }
  if (!needs_low(s.mean, s.rstd)) s.mean_lo = 0;
  s.rstd = usable_rstd(p, s.rstd);
  if (s.exponent != 0) s.rare = Rare::row;
}

// A row's mean and rstd, and whether the row is rare; of new scalars.
template <class T>
void find_statistics(BackwardRows<T>& rows, std::size_t row, GradientScalars& s) {
  using A = Arithmetic<T>;
  const GradientProblem& p = rows.p;
  if (!load_statistics<A>(p, row, 1, &s.mean, &s.rstd)) {
    RowGroup<A> group;
    const auto block = [&](std::size_t first, std::size_t n) {
      return rows.x.open({row, 1, first, n}, EvenRows<T>{rows.scratch.block}).first;
    };
    const MomentNode moments =
        p.moments != nullptr ? node_of<A>(p.moments[row])
                             : sum_blocks<T>(rows.kernels, p.kind, rows.scratch.moment_nodes, partition(p), block);
    finish_one(group, 0, moments, p.eps);
    if constexpr (std::is_same_v<A, double>) return set_wide_statistics(rows, row, group, s);
    const bool are_finite = std::isfinite(group.mean[0]) && std::isfinite(group.m2[0]);
    s.mean = are_finite ? group.mean[0] : std::numeric_limits<double>::quiet_NaN();
    s.rstd = are_finite ? usable_rstd(p, group.rstd[0]) : s.mean;
  }
  if (is_rare_rstd<A>(s.rstd)) s.rare = Rare::row;
}

// Those of evenly spaced short rows of type T: given, of up to kMaxShortRows (f64: kMaxGroup), or found, of up to
// kMaxGroup. Returns false if one of them may be rare, needs a second pass, or is given and has to be found anew.
template <class T>
bool find_short_statistics(const BackwardRows<T>& rows, std::size_t first, std::size_t count, RowStatistics& to) {
  using A = Arithmetic<T>;
  const GradientProblem& p = rows.p;
  std::fill_n(to.mean_lo, count, 0.0);
  if (p.rstd.data != nullptr) return load_statistics<A>(p, first, count, to.mean, to.rstd);
  RowGroup<A> group;
  const EvenRows<const T> x = rows.x.at({first, count, 0, p.cols}, EvenRows<const T>{});
  rows.kernels.template of<T>().sum_rows[index_of(p.kind)]({x, count, p.cols, &group, 0, 0});
  group.clear_from(count);
  const bool second_pass = rows.kernels.template in<A>().finish_sums(group, count, p.cols, p.eps, rows.is_centred());
  if (second_pass || group.any_flag(count)) return false;
  std::copy_n(group.mean, count, to.mean);
  for (std::size_t i = 0; i < count; ++i) {
    if (rows.kWide && is_rare_rstd<A>(group.rstd[i])) return false;
    if (rows.kWide && needs_low(group.mean[i], group.rstd[i])) to.mean_lo[i] = group.mean_lo[i];
    to.rstd[i] = usable_rstd(p, group.rstd[i]);
  }
  return true;
}

}  // namespace evenorm::internal
