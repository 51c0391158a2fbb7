#include "plan/channels_last.hpp"

#include <numeric>

#include "plan/scratch_plan.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t kMostGroups = 1u << 30u;  // a ChannelsPlan holds no more

bool have_equal_sizes(const Axes& a, const Axes& b) {
  bool equal = a.count() == b.count();
  for (std::size_t i = 0; equal && i < a.count(); ++i) equal = a[i].size == b[i].size;
  return equal;
}

// True if all columns of a channel share an element.
bool is_by_channel(const SetVector& v, std::size_t positions) {
  return v.data == nullptr || (v.axes.inner().stride == 0 && v.axes.inner().size % positions == 0);
}

}  // namespace

ChannelsLast channels_last(const Problem& p) noexcept {
  const std::size_t bytes = bytes_of(p.x.dtype);
  const Axes &x = p.x.cols, &y = p.y.cols;
  if (is_fused(p) || p.moments != nullptr || p.x.dtype != p.y.dtype || arithmetic_type(p) == DType::f64) return {};
  if (!have_equal_sizes(x, y) || !have_equal_sizes(p.x.rows, p.y.rows) || x.count() == 0 || x.count() > 2) return {};
  ChannelsLast c;
  c.positions = x.inner().size;
  if (x.count() == 2) {
    c.channels = x[0].size;
    if (x[0] != Axis{c.channels, static_cast<std::ptrdiff_t>(bytes)} || y[0] != x[0]) return {};
  }
  const auto of_row = static_cast<std::ptrdiff_t>(c.channels * bytes);
  std::size_t step = 1, groups = x.count() == 2 ? 1 : 0;
  for (std::size_t i = p.x.rows.count(); i-- > 0; step *= p.x.rows[i].size) {
    if (p.x.rows[i].stride != of_row || p.y.rows[i].stride != of_row) continue;
    groups = p.x.rows[i].size;
    c.step = step;
  }
  const std::size_t all = groups * c.channels * bytes;
  const bool fills_lines = all >= kLine && (all % kLine == 0 || p.x.data != p.y.data);
  const bool by_channel = is_by_channel(p.gamma, c.positions) && is_by_channel(p.beta, c.positions);
  if (!fills_lines || groups > kMostGroups || !by_channel || c.positions % kLanes != 0 || c.positions < kLeastPositions)
    return {};
  c.groups = groups;
  c.unit = kLine / std::gcd(kLine, c.channels * bytes);
  return c;
}

}  // namespace evenorm::internal
