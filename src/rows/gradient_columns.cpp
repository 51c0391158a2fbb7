// From sums over rows to dgamma and dbeta, rounded once.
#include "rows/gradient_columns.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace evenorm::internal {
namespace {

void store_sums(const Kernels& kernels, const SetGradient& to, std::size_t set, bool accumulate, const double* sums,
                std::size_t first, std::size_t count) {
  if (to.data == nullptr) return;
  char* const elements = static_cast<char*>(to.data) + offset_of_set(to.sets, set);
  constexpr std::size_t kAtOnce = 128;
  Convert* narrow = kernels.convert[index_of(DType::f64)][index_of(to.dtype)];
  Convert* widen = kernels.convert[index_of(to.dtype)][index_of(DType::f64)];
  const bool dense = to.elements().is_dense(bytes_of(to.dtype));
  for (std::size_t done = 0, n; done < count; done += n) {
    n = std::min(kAtOnce, count - done);
    double values[kAtOnce];
    double there[kAtOnce];  // of what is accumulated to
    std::byte rounded[kAtOnce * sizeof(double)];
    const auto place = [&](std::size_t i) { return elements + to.elements().offset(first + done + i); };
    for (std::size_t i = 0; accumulate && i < n; i += dense ? n : 1) widen(place(i), there + i, dense ? n : 1);
    if (!kernels.add_to_columns(sums + done, accumulate ? there : nullptr, n, values)) {
      for (double& value : std::span(values, n)) {
        if (!std::isfinite(value)) value = std::numeric_limits<double>::quiet_NaN();
      }
    }
    narrow(values, dense ? static_cast<void*>(place(0)) : rounded, n);
    if (dense) continue;
    for (std::size_t i = 0; i < n; ++i) std::memcpy(place(i), rounded + i * bytes_of(to.dtype), bytes_of(to.dtype));
  }
}

// The sum of n numbers, `stride` apart: number i belongs to lane i mod 16, and distant lanes are joined first.
double sum_lanes(const double* sums, std::size_t n, std::size_t stride) {
  double lanes[kLanes] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i % kLanes] += sums[i * stride];
  for (std::size_t step = kLanes / 2; step != 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  }
  return lanes[0];
}

// Adds up the columns that share an element of a gradient, or runs of them, axis by axis from the innermost. The
// elements of the gradient take the first places of the columns. Returns their number.
std::size_t join_shared_columns(const Axes& axes, bool are_runs, double* sums, std::size_t cols) {
  std::size_t inner = 1, outer = cols;
  for (std::size_t axis = axes.count() - (are_runs ? 1 : 0); axis-- > 0;) {
    const std::size_t n = axes[axis].size;
    outer /= n;
    if (axes[axis].stride != 0) {
      inner *= n;
      continue;
    }
    for (std::size_t i = 0; i < outer * inner; ++i) {
      sums[i] = sum_lanes(sums + i / inner * n * inner + i % inner, n, inner);
    }
  }
  return inner;
}

}  // namespace

void finish_columns(const Kernels& kernels, const GradientProblem& p, std::size_t set, const ColumnSums& sums,
                    std::size_t count) {
  const auto finish = [&](const SetGradient& to, double* values) {
    const std::size_t n =
        to.has_shared_columns() ? join_shared_columns(to.axes, summed_run(p) != 1, values, count) : count;
    store_sums(kernels, to, set, p.accumulate, values, sums.first, n);
  };
  finish(p.dgamma, sums.values);
  finish(p.dbeta, sums.values + sums.stride);
}

}  // namespace evenorm::internal
