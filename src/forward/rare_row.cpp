#include "forward/rare_row.hpp"

#include <cmath>
#include <limits>

namespace evenorm::internal {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr RareScalars kNotFinite{{kNan, 0, kNan, false, true}, 0, kNan, 0, kNan, false};

}  // namespace

RareScalars rare_scalars(const Kernels& kernels, Kind kind, const RowReader& x, const Partition& part, double eps,
                         double* block, MomentNode* nodes) {
  double largest = 0;
  for (std::size_t first = 0; first < part.cols; first += kBlock) {
    const std::size_t n = std::min(kBlock, part.cols - first);
    x(first, n, block);
    kernels.in<double>().largest_finite({block, 0}, 1, n, &largest);
  }
  if (largest != largest) return kNotFinite;
  constexpr int kLeast = 2 - std::numeric_limits<double>::max_exponent;
  const int exponent = largest == 0 ? 0 : std::max(std::ilogb(largest), kLeast);
  const double factor = std::ldexp(1.0, -exponent);
  MomentRowTree<double> tree({nodes, kind == Kind::layer}, part);
  for (std::size_t b = 0; b < part.blocks(); ++b) {
    const auto [first, n] = part.block(b);
    x(first, n, block);
    for (std::size_t i = 0; i < n; ++i) block[i] *= factor;
    tree.push(moments_of_block<double>(kernels, kind, block, n));
  }
  RowGroup<double> group;
  const double scaled_eps = std::ldexp(eps, -2 * exponent);
  finish_one(group, 0, tree.finish(), scaled_eps);
  RowScalars scaled = scalars_of(group, 0);
  const bool is_small = scaled_eps > kLargestScaledEps && std::isfinite(group.m2[0]);  // beside eps
  const double var = plain::MeanOf(plain::kOne, group.m2[0], static_cast<double>(part.cols));
  const bool by_eps = is_small || var == 0;
  const double rstd = by_eps ? plain::RstdOf(plain::kOne, 0.0, eps) : std::ldexp(scaled.rstd, -exponent);
  if (is_small) scaled.rstd = std::ldexp(rstd, exponent);
  return {scaled, exponent, std::ldexp(scaled.mean, exponent), std::ldexp(scaled.mean_lo, exponent), rstd, by_eps};
}

namespace {

// Statistics of f32 are found in f64, which holds them. In f64 arithmetic, processes that share a row cannot scale it.
template <class A>
RareScalars scalars_of_row(const Kernels& kernels, const Problem& p, const RowReader& x, double* block,
                           MomentNode* nodes, std::size_t row, const RowGroup<A>& group, std::size_t at) {
  const double mean = group.mean[at], mean_lo = group.mean_lo[at], m2 = group.m2[at], rstd = group.rstd[at];
  if constexpr (std::is_same_v<A, double>) {
    if (p.moments == nullptr) return rare_scalars(kernels, p.kind, x, partition(p), p.eps, block, nodes);
    if (!has_vanished(p.moments[row])) return kNotFinite;
  }
  if (!std::isfinite(mean) || !std::isfinite(m2)) return kNotFinite;
  const Count count = p.moments != nullptr ? p.moments[row].count : static_cast<double>(p.cols);
  const double var = plain::MeanOf(plain::kOne, m2, count);
  const bool near_zero = std::is_same_v<A, float> && plain::IsNearZero(plain::kOne, mean, var);
  return {{mean, mean_lo, rstd, near_zero, true}, 0, mean, mean_lo, rstd, false};
}

}  // namespace

template <class A>
void run_rare_row(const Kernels& kernels, const Problem& p, const RowReader& read, Parameter<A, 1>& gamma,
                  Parameter<A, 0>& beta, double* block, MomentNode* nodes, std::size_t row, const RowGroup<A>& group,
                  std::size_t at) {
  const RareScalars s = scalars_of_row(kernels, p, read, block, nodes, row, group, at);
  store_statistic(p.mean, row, s.mean);
  store_statistic(p.rstd, row, s.rstd);
  const auto scalars = norm_scalars_of<double>(s.row);
  const double factor = std::ldexp(1.0, -s.exponent);
  Convert* widen = kernels.convert[index_of(dtype_of<A>)][index_of(DType::f64)];
  Convert* narrow = kernels.convert[index_of(DType::f64)][index_of(dtype_of<A>)];
  const Panel y(kernels, p.y, DType::f64, access_of(p.y, DType::f64));
  Quantiser<A> quantiser(kernels, p, false);
  const bool is_i8 = p.y.dtype == DType::i8;
  double x[kRarePiece], values[kRarePiece], gammas[kRarePiece], betas[kRarePiece];
  A rounded[kRarePiece];
  do {
    const bool last = !is_i8 || !quantiser.is_measuring();
    for (std::size_t first = 0, n; first < p.cols; first += n) {
      n = std::min(kRarePiece, p.cols - first);
      const Part part{row, 1, first, n};
      read(first, n, x, last);
      for (std::size_t i = 0; s.exponent != 0 && i < n; ++i) x[i] *= factor;
      widen(gamma.block(first, n), gammas, n);
      widen(beta.block(first, n), betas, n);
      double* const to = y.at(part, EvenRows<double>{values, 0}).first;
      kernels.of<double>().normalise_rows({{x, 0}, {to, 0}, 1, n, {gammas, betas}, &scalars, 0, false});
      canonicalise_nans(to, n);
      if (is_i8) {
        narrow(values, rounded, n);
        quantiser.take(part, rounded, 0);
      } else {
        y.close(part, EvenRows<double>{values, 0});
      }
    }
  } while (quantiser.wants_again());
}

template void run_rare_row(const Kernels&, const Problem&, const RowReader&, Parameter<double, 1>&,
                           Parameter<double, 0>&, double*, MomentNode*, std::size_t, const RowGroup<double>&,
                           std::size_t);
template void run_rare_row(const Kernels&, const Problem&, const RowReader&, Parameter<float, 1>&, Parameter<float, 0>&,
                           double*, MomentNode*, std::size_t, const RowGroup<float>&, std::size_t);

}  // namespace evenorm::internal
