// From sums over rows to dgamma and dbeta, rounded once.
#include "backward/gradient_columns.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "panels/panel.hpp"

namespace evenorm::internal {
namespace {

void store_sums(const Kernels& kernels, const SetGradient& to, std::size_t set, bool accumulate, const double* sums,
                std::size_t first, std::size_t count) {
  if (to.data == nullptr) return;
  const Matrix<void*> elements{static_cast<char*>(to.data) + to.sets.offset(set), to.dtype, {}, to.elements()};
  const Panel panel(kernels, elements, DType::f64, access_of(elements, DType::f64));
  constexpr std::size_t kAtOnce = 128;
  for (std::size_t done = 0, n; done < count; done += n) {
    n = std::min(kAtOnce, count - done);
    const Part part{0, 1, first + done, n};
    double values[kAtOnce], there[kAtOnce];
    const double* before = accumulate ? panel.open(part, EvenRows<double>{there}).first : nullptr;
    if (!kernels.add_to_columns(sums + done, before, n, values)) {
      for (double& value : std::span(values, n)) {
        if (!std::isfinite(value)) value = std::numeric_limits<double>::quiet_NaN();
      }
    }
    double* place = panel.at(part, EvenRows<double>{values}).first;
    if (place != values) std::memcpy(static_cast<void*>(place), values, n * sizeof(double));
    panel.close(part, EvenRows<double>{values});
  }
}

// The sum of n numbers, `stride` apart: number i belongs to lane i mod 16, and distant lanes are joined first.
double sum_lanes(const double* sums, std::size_t n, std::size_t stride) {
  double lanes[kLanes] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i % kLanes] += sums[i * stride];
  return join_lanes(lanes);
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

void finish_columns(const Kernels& kernels, const GradientProblem& p, std::size_t set, double* sums, std::size_t first,
                    std::size_t count) {
  const auto finish = [&](const SetGradient& to, double* values) {
    const std::size_t n =
        to.has_shared_columns() ? join_shared_columns(to.axes, summed_run(p) != 1, values, count) : count;
    store_sums(kernels, to, set, p.accumulate, values, first, n);
  };
  finish(p.dgamma, sums);
  finish(p.dbeta, sums + count);
}

}  // namespace evenorm::internal
