// From sums over rows to dgamma and dbeta, rounded once.
#include "rows/gradient_columns.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "rows/wide.hpp"

namespace evenorm::internal {
namespace {

template <class A>
void store_sums(const Kernels& kernels, const SetGradient& to, bool accumulate, const double* sums, std::size_t low,
                std::size_t first, std::size_t count) {
  if (to.data == nullptr) return;
  constexpr std::size_t kAtOnce = 128;
  Convert* narrow = kernels.convert[index_of(DType::f64)][index_of(to.dtype)];
  Convert* widen = kernels.convert[index_of(to.dtype)][index_of(DType::f64)];
  const bool dense = to.elements().is_dense(bytes_of(to.dtype));
  for (std::size_t done = 0, n; done < count; done += n) {
    n = std::min(kAtOnce, count - done);
    double values[kAtOnce];
    double there[kAtOnce];  // of what is accumulated to
    std::byte rounded[kAtOnce * sizeof(double)];
    const auto place = [&](std::size_t i) {
      return static_cast<char*>(to.data) + to.elements().offset(first + done + i);
    };
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

// The sum of n numbers, `stride` apart, times `scale`: number i belongs to lane i mod 16, and distant lanes are joined
// first. sums + low has the low parts in f64 arithmetic.
template <class A>
WideNumber sum_lanes(const double* sums, std::size_t low, std::size_t n, std::size_t stride, double scale) {
  using namespace plain;
  Number<A> lanes[kLanes];
  std::fill_n(lanes, kLanes, Number<A>::Zero(kOne));
  for (std::size_t i = 0; i < n; ++i) {
    const double* place = sums + i * stride;
    const auto number = from_memory<A>({place[0] * scale, place[low] * scale});
    lanes[i % kLanes] = Add(kOne, lanes[i % kLanes], number);
  }
  for (std::size_t step = kLanes / 2; step != 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) lanes[l] = Add(kOne, lanes[l], lanes[l + step]);
  }
  return to_memory(lanes[0]);
}

// The same with scale 1. Sums that leave the range of f64 on the way are computed again, scaled.
template <class A>
WideNumber sum_shared(const double* sums, std::size_t low, std::size_t n, std::size_t stride) {
  const WideNumber sum = sum_lanes<A>(sums, low, n, stride, 1);
  if (std::isfinite(sum.hi) || low == 0) return sum;
  const WideNumber scaled = sum_lanes<A>(sums, low, n, stride, 0x1p-64);
  return {scaled.hi * 0x1p64, scaled.lo * 0x1p64};
}

// Adds up the columns that share an element of a gradient, or runs of them, axis by axis from the innermost. The
// elements of the gradient take the first places of the columns. Returns their number.
template <class A>
std::size_t join_shared_columns(const Axes& axes, bool are_runs, double* sums, std::size_t low, std::size_t cols) {
  std::size_t inner = 1, outer = cols;
  for (std::size_t axis = axes.count() - (are_runs ? 1 : 0); axis-- > 0;) {
    const std::size_t n = axes[axis].size;
    outer /= n;
    if (axes[axis].stride != 0) {
      inner *= n;
      continue;
    }
    for (std::size_t i = 0; i < outer * inner; ++i) {
      const double* first = sums + i / inner * n * inner + i % inner;
      const WideNumber sum = sum_shared<A>(first, low, n, inner);
      sums[i] = sum.hi;
      if (low != 0) sums[i + low] = sum.lo;
    }
  }
  return inner;
}

}  // namespace

template <class A>
void finish_columns(const Kernels& kernels, const GradientProblem& p, const ColumnSums& sums, std::size_t count) {
  const std::size_t low = std::is_same_v<A, double> ? 2 * sums.stride : 0;
  const auto finish = [&](const SetGradient& to, double* values) {
    const std::size_t n =
        to.has_shared_columns() ? join_shared_columns<A>(to.axes, summed_run(p) != 1, values, low, count) : count;
    store_sums<A>(kernels, to, p.accumulate, values, low, sums.first, n);
  };
  finish(p.dgamma, sums.values);
  finish(p.dbeta, sums.values + sums.stride);
}
template void finish_columns<double>(const Kernels&, const GradientProblem&, const ColumnSums&, std::size_t);
template void finish_columns<float>(const Kernels&, const GradientProblem&, const ColumnSums&, std::size_t);

}  // namespace evenorm::internal
