// From sums over rows to dgamma and dbeta, rounded once.
#include "rows/gradient_columns.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace evenorm::internal {
namespace {

template <class A>
void store_sums(const Kernels& kernels, const Vector<void*>& to, bool accumulate, const double* sums, std::size_t low,
                std::size_t first, std::size_t count) {
  if (to.data == nullptr) return;
  constexpr std::size_t kAtOnce = 128;
  Convert* narrow = kernels.convert[index_of(DType::f64)][index_of(to.dtype)];
  Convert* widen = kernels.convert[index_of(to.dtype)][index_of(DType::f64)];
  const bool dense = to.axes.is_dense(bytes_of(to.dtype));
  for (std::size_t done = 0, n; done < count; done += n) {
    n = std::min(kAtOnce, count - done);
    double values[kAtOnce];
    double there[kAtOnce];  // of what is accumulated to
    std::byte rounded[kAtOnce * sizeof(double)];
    const auto place = [&](std::size_t i) { return static_cast<char*>(to.data) + to.axes.offset(first + done + i); };
    for (std::size_t i = 0; accumulate && i < n; i += dense ? n : 1) widen(place(i), there + i, dense ? n : 1);
    if (!kernels.in<A>().round_columns(sums + done, low, accumulate ? there : nullptr, n, values)) {
      for (double& value : std::span(values, n)) {
        if (!std::isfinite(value)) value = std::numeric_limits<double>::quiet_NaN();
      }
    }
    narrow(values, dense ? static_cast<void*>(place(0)) : rounded, n);
    if (dense) continue;
    for (std::size_t i = 0; i < n; ++i) std::memcpy(place(i), rounded + i * bytes_of(to.dtype), bytes_of(to.dtype));
  }
}

}  // namespace

template <class A>
void finish_columns(const Kernels& kernels, const GradientProblem& p, const ColumnSums& sums, std::size_t count) {
  const std::size_t low = std::is_same_v<A, double> ? 2 * sums.stride : 0;
  store_sums<A>(kernels, p.dgamma, p.accumulate, sums.values, low, sums.first, count);
  store_sums<A>(kernels, p.dbeta, p.accumulate, sums.values + sums.stride, low, sums.first, count);
}
template void finish_columns<double>(const Kernels&, const GradientProblem&, const ColumnSums&, std::size_t);
template void finish_columns<float>(const Kernels&, const GradientProblem&, const ColumnSums&, std::size_t);

}  // namespace evenorm::internal
