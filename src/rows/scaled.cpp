// OutOfRangeRow, which computes and writes out-of-range rows.
#include "rows/scaled.hpp"

namespace evenorm::internal {

template <class A>
void OutOfRangeRow<A>::run(std::size_t row) {
  const Moments moments = p_.moments != nullptr
                              ? p_.moments[row]
                              : out_of_range_moments<A>(kernels_, p_.kind, source_, row, p_.cols, nodes_);
  if (!is_finite(moments)) {
    fill_nan(row);
  } else if (is_zero(moments)) {
    run_zeros(row);
  } else {
    run_scaled(row, moments);
  }
}

template <class A>
void OutOfRangeRow<A>::run_zeros(std::size_t row) {
  const WideNumber rstd = rstd_of_constant<A>(p_.eps);
  normalise(row, {0, {0, 0, rstd.hi, true, false}, 0, rstd, rstd.lo, true});
}

template <class A>
void OutOfRangeRow<A>::run_scaled(std::size_t row, const Moments& moments) {
  const ScaledRow scaled = finish_scaled<A>(moments, p_.eps);
  source_.set_scale(static_cast<A>(std::ldexp(1.0, -scaled.normalise_exponent)));
  normalise(row, scaled);
}

template <class A>
void OutOfRangeRow<A>::normalise(std::size_t row, const ScaledRow& scaled) {
  store_statistic(p_.mean, row, scaled.mean);
  store_statistic(p_.rstd, row, scaled.rstd.hi);
  const auto scalars = norm_scalars_of<A>(scaled.scalars);
  write(row, [&](std::size_t first, std::size_t n, A* y) {
    const A* x = source_.block(row, first, n);
    const A* gamma = output_.gamma.block(first, n);
    kernels_.of<A>().normalise_rows({{x, 0}, {y, 0}, 1, n, {gamma, output_.beta.block(first, n)}, &scalars, 0, false});
    canonicalise_nans(y, n);
  });
}

template <class A>
void OutOfRangeRow<A>::fill_nan(std::size_t row) {
  constexpr A kNan = std::numeric_limits<A>::quiet_NaN();
  store_statistic(p_.mean, row, std::numeric_limits<double>::quiet_NaN());
  store_statistic(p_.rstd, row, std::numeric_limits<double>::quiet_NaN());
  write(row, [&](std::size_t, std::size_t n, A* y) {
    for (std::size_t i = 0; i < n; ++i) store_one(kNan, y + i);
  });
}

template <class A>
template <class Fill>
void OutOfRangeRow<A>::write(std::size_t row, const Fill& fill) {
  do {
    for (std::size_t block = 0; block < blocks_; ++block) {
      const std::size_t first = block * kBlock, n = block_cols(p_.cols, block);
      // Must precede done(), which ends the measuring after the last block of a row.
      const bool stores_sum = residual_ != nullptr && !output_.sink.is_measuring();
      const A* sum = stores_sum ? unscaled_->block(row, first, n) : nullptr;
      fill(first, n, output_.sink.block(row, first, n));
      output_.sink.done(row, 1, first, n);
      if (stores_sum) residual_->store_sum(row, first, n, sum);
    }
  } while (output_.sink.wants_again());
}

template class OutOfRangeRow<double>;
template class OutOfRangeRow<float>;

}  // namespace evenorm::internal
