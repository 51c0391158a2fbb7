#include "plan/lines.hpp"

#include <cstdlib>
#include <numeric>

#include "plan/scratch_plan.hpp"

namespace evenorm::internal {
namespace {

// The place of rows whose lines have so many positions.
template <class Pointer>
LinePlace place_of(const Matrix<Pointer>& m, std::size_t cols, std::size_t positions) {
  const auto bytes = static_cast<std::ptrdiff_t>(bytes_of(m.dtype));
  const std::size_t lines = cols / positions;
  const auto lies_across = [&] {
    if (m.cols.inner().size != positions || m.cols.count() != (lines == 1 ? 1 : 2)) return false;
    return lines == 1 || m.cols[0].stride == bytes;
  };
  LinePlace place;
  place.across = !m.cols.is_dense(bytes_of(m.dtype));
  if (place.across && !lies_across()) return place;
  place.positions = positions;
  std::size_t step = 1;
  std::ptrdiff_t least = 0;
  for (std::size_t i = m.rows.count(); i-- > 0; step *= m.rows[i].size) {
    const std::ptrdiff_t distance = std::abs(m.rows[i].stride);
    if (i + 1 != m.rows.count() && distance >= least) continue;
    least = distance;
    place.groups = m.rows[i].size;
    place.step = step;
    place.follows = m.rows[i].stride == static_cast<std::ptrdiff_t>(place.across ? lines : cols) * bytes;
  }
  place.follows = place.follows || (!place.across && lines == 1);
  if (place.across && !place.follows) place.groups = place.step = 1;
  place.unit = place.across ? kLine / std::gcd(kLine, lines * bytes_of(m.dtype)) : 1;
  place.lines = lines;
  return place;
}

}  // namespace

LinePlace line_place(const Problem& p) noexcept {
  if (p.rows == 0 || p.x.dtype != p.y.dtype || arithmetic_type(p) == DType::f64) return {};
  if (is_fused(p) || p.moments != nullptr) return {};
  const std::size_t positions = p.shared < kLeastRun ? p.cols : p.shared;
  LinePlace x = place_of(p.x, p.cols, positions);
  if (place_of(p.y, p.cols, positions) != x) return {};
  if (!x.across) return p.shared < kLeastRun ? LinePlace{} : x;
  const std::size_t bytes = x.groups * x.lines * bytes_of(p.x.dtype);
  const bool fills_lines = bytes % kLine == 0 || p.x.data != p.y.data;
  x.by_position = p.shared < kLeastRun && (p.gamma.data != nullptr || p.beta.data != nullptr);
  const bool has_one_set = !x.by_position || rows_of_set(p) % (x.groups * x.step) == 0;
  return bytes >= kLine && fills_lines && has_one_set ? x : LinePlace{};
}

LinePlace line_place(const GradientProblem& p) noexcept {
  if (p.shared < kLeastRun || p.rows == 0 || p.x.dtype != p.dy.dtype || arithmetic_type(p) == DType::f64) return {};
  if (p.dsum.data != nullptr || p.moments != nullptr) return {};
  const LinePlace x = place_of(p.x, p.cols, p.shared);
  if (place_of(p.dy, p.cols, p.shared) != x) return {};
  if (p.dx.data != nullptr) {
    if (is_in_place(p) || p.dx.dtype != p.x.dtype || place_of(p.dx, p.cols, p.shared) != x) return {};
  }
  return !x.across || x.groups * x.lines * bytes_of(p.x.dtype) >= kLine ? x : LinePlace{};
}

}  // namespace evenorm::internal
