#include "plan/lines.hpp"

#include <cstdlib>
#include <limits>
#include <numeric>

#include "plan/scratch_plan.hpp"

namespace evenorm::internal {
namespace {

// The place of rows whose lines have so many positions.
template <class Pointer>
std::optional<LinePlace> place_of(const Matrix<Pointer>& m, std::size_t cols, std::size_t positions) {
  const std::size_t bytes = bytes_of(m.dtype), lines = cols / positions;
  LinePlace place{lines, positions, !m.cols.is_dense(bytes)};
  if (place.across) {
    if (m.cols.inner().size != positions || m.cols.count() != (lines == 1 ? 1 : 2)) return {};
    if (lines != 1 && m.cols[0].stride != static_cast<std::ptrdiff_t>(bytes)) return {};
    place.unit = kCacheLine / std::gcd(kCacheLine, lines * bytes);
  }
  // Rows are numbered along the axis with the least distance, if all their lines are evenly spaced.
  std::ptrdiff_t least = std::numeric_limits<std::ptrdiff_t>::max();
  for (std::size_t i = m.rows.count(), step = 1; i-- > 0; step *= m.rows[i].size) {
    const auto [size, stride] = m.rows[i];
    if (std::abs(stride) >= least) continue;
    least = std::abs(stride);
    const bool follows = stride == static_cast<std::ptrdiff_t>((place.across ? lines : cols) * bytes);
    const bool even = follows || (lines == 1 && !place.across);
    place.sample_rows = even ? size : 1;
    place.row_step = even ? step : 1;
  }
  if (place.across && place.sample_rows * lines * bytes < kCacheLine) return {};
  return place;
}

}  // namespace

std::optional<LinePlace> line_place(const Problem& p) noexcept {
  if (p.rows == 0 || p.x.dtype != p.y.dtype || arithmetic_type(p) == DType::f64) return {};
  if (is_fused(p) || p.moments != nullptr) return {};
  const bool has_runs = p.shared >= kLeastRun;
  if (!has_runs && has_dense_rows(p.x)) return {};
  std::optional<LinePlace> place = place_of(p.x, p.cols, has_runs ? p.shared : p.cols);
  if (!place || place_of(p.y, p.cols, place->positions) != place) return {};
  // Kernels take whole cache lines across memory, so they write some lines twice if a sample does not end with one.
  const bool has_rest = place->sample_rows * place->row_lines * bytes_of(p.x.dtype) % kCacheLine != 0;
  if (place->across && has_rest && p.x.data == p.y.data) return {};
  place->by_position = !has_runs && (p.gamma.data != nullptr || p.beta.data != nullptr);
  const bool has_one_set = rows_of_set(p) % (place->sample_rows * place->row_step) == 0;
  return place->by_position && !has_one_set ? std::nullopt : place;
}

std::optional<LinePlace> line_place(const GradientProblem& p) noexcept {
  if (p.shared < kLeastRun || p.rows == 0 || p.x.dtype != p.dy.dtype || arithmetic_type(p) == DType::f64) return {};
  if (p.dsum.data != nullptr || p.moments != nullptr || is_in_place(p)) return {};
  const std::optional<LinePlace> place = place_of(p.x, p.cols, p.shared);
  if (place_of(p.dy, p.cols, p.shared) != place) return {};
  const bool has_dx = p.dx.data != nullptr;
  if (has_dx && (p.dx.dtype != p.x.dtype || place_of(p.dx, p.cols, p.shared) != place)) return {};
  return place;
}

}  // namespace evenorm::internal
