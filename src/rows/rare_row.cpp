#include "rows/rare_row.hpp"

#include <cmath>
#include <limits>

namespace evenorm::internal {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr RareScalars kNotFinite{{kNan, 0, kNan, false, true}, 0, kNan, 0, kNan, false};

}  // namespace

RareScalars rare_scalars(const Kernels& kernels, Kind kind, Source<double>& x, std::size_t row, const Partition& part,
                         double eps, double* block, MomentNode* nodes) {
  double largest = 0;
  for (std::size_t first = 0; first < part.cols; first += kBlock) {
    const std::size_t n = std::min(kBlock, part.cols - first);
    kernels.in<double>().largest_finite({x.block(row, first, n), 0}, 1, n, &largest);
  }
  if (largest != largest) return kNotFinite;
  constexpr int kLeast = 2 - std::numeric_limits<double>::max_exponent;
  const int exponent = largest == 0 ? 0 : std::max(std::ilogb(largest), kLeast);
  const double factor = std::ldexp(1.0, -exponent);
  MomentRowTree<double> tree({nodes, kind == Kind::layer}, part);
  for (std::size_t b = 0; b < part.blocks(); ++b) {
    const auto [first, n] = part.block(b);
    const double* values = x.block(row, first, n);
    for (std::size_t i = 0; i < n; ++i) block[i] = load_one(values + i) * factor;
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
RareScalars scalars_of_row(const Kernels& kernels, const Problem& p, Source<A>& x, A* block, MomentNode* nodes,
                           std::size_t row, const RowGroup<A>& group, std::size_t at) {
  const double mean = group.mean[at], mean_lo = group.mean_lo[at], m2 = group.m2[at], rstd = group.rstd[at];
  if constexpr (std::is_same_v<A, double>) {
    if (p.moments == nullptr) return rare_scalars(kernels, p.kind, x, row, partition(p), p.eps, block, nodes);
    if (!has_vanished(p.moments[row])) return kNotFinite;
  }
  if (!std::isfinite(mean) || !std::isfinite(m2)) return kNotFinite;
  const Count count = p.moments != nullptr ? p.moments[row].count : static_cast<double>(p.cols);
  const double var = plain::MeanOf(plain::kOne, m2, count);
  const bool near_zero = std::is_same_v<A, float> && plain::IsNearZero(plain::kOne, mean, var);
  return {{mean, mean_lo, rstd, near_zero, true}, 0, mean, mean_lo, rstd, false};
}

// Normalises some columns in f64, and rounds them to B.
template <class A, class B>
void write(const Kernels& kernels, const NormOutput<A>& output, std::size_t row, std::size_t first, std::size_t n,
           const double* x, const NormScalarsOfRows<double>& scalars, Sink<B>& sink, double* y) {
  double gamma[kRarePiece], beta[kRarePiece];
  Convert* widen = kernels.convert[index_of(dtype_of<A>)][index_of(DType::f64)];
  widen(output.gamma.block(first, n), gamma, n);
  widen(output.beta.block(first, n), beta, n);
  double* const to = std::is_same_v<B, double> ? reinterpret_cast<double*>(sink.block(row, first, n)) : y;
  kernels.of<double>().normalise_rows({{x, 0}, {to, 0}, 1, n, {gamma, beta}, &scalars, 0, false});
  canonicalise_nans(to, n);
  if constexpr (!std::is_same_v<B, double>) {
    kernels.convert[index_of(DType::f64)][index_of(dtype_of<B>)](y, sink.block(row, first, n), n);
  }
  sink.done(row, 1, first, n);
}

}  // namespace

// In each piece y comes last, because y, like the sum, may overwrite x or the residual.
template <class A>
void run_rare_row(const Kernels& kernels, const Problem& p, Source<A>& source, const Residual<A>* sum,
                  const NormOutput<A>& output, A* block, MomentNode* nodes, std::size_t row, const RowGroup<A>& group,
                  std::size_t at) {
  const RareScalars s = scalars_of_row(kernels, p, source, block, nodes, row, group, at);
  store_statistic(p.mean, row, s.mean);
  store_statistic(p.rstd, row, s.rstd);
  const auto scalars = norm_scalars_of<double>(s.row);
  const double factor = std::ldexp(1.0, -s.exponent);
  double x[kRarePiece], y[kRarePiece];
  A values[kRarePiece];
  const auto write_pieces = [&](auto& sink) {
    for (std::size_t first = 0, n; first < p.cols; first += n) {
      n = std::min(kRarePiece, p.cols - first);
      const A* from = source.block(row, first, n);
      kernels.convert[index_of(dtype_of<A>)][index_of(DType::f64)](from, x, n);
      for (std::size_t i = 0; s.exponent != 0 && i < n; ++i) x[i] *= factor;
      if (sum != nullptr && !sink.is_measuring()) sum->store_sum(row, first, n, from);
      write(kernels, output, row, first, n, x, scalars, sink, y);
    }
  };
  if (p.y.dtype == DType::i8) {
    Sink<A> sink(kernels, p.y, output.tile, values);
    Quantiser<A> quantiser(kernels, p, values);
    sink.set_quantiser(&quantiser);
    do write_pieces(sink);
    while (sink.wants_again());
  } else {
    Sink<double> sink(kernels, p.y, output.tile, y);
    write_pieces(sink);
  }
}

template void run_rare_row(const Kernels&, const Problem&, Source<double>&, const Residual<double>*,
                           const NormOutput<double>&, double*, MomentNode*, std::size_t, const RowGroup<double>&,
                           std::size_t);
template void run_rare_row(const Kernels&, const Problem&, Source<float>&, const Residual<float>*,
                           const NormOutput<float>&, float*, MomentNode*, std::size_t, const RowGroup<float>&,
                           std::size_t);

}  // namespace evenorm::internal
