#include "plan/channels_last.hpp"

#include <numeric>

#include "plan/scratch_plan.hpp"

namespace evenorm::internal {
namespace {

constexpr std::size_t kMostGroups = 1u << 30u;  // a ChannelsPlan holds no more

// True if all columns of a channel share an element.
bool is_by_channel(const SetVector& v, std::size_t positions) {
  return v.data == nullptr || (v.axes.inner().stride == 0 && v.axes.inner().size % positions == 0);
}

template <class Pointer>
ChannelsLast place_of(const Matrix<Pointer>& m) {
  const std::size_t bytes = bytes_of(m.dtype);
  ChannelsLast c;
  if (m.cols.count() == 0 || m.cols.count() > 2) return c;
  const bool has_channels = m.cols.count() == 2;
  if (has_channels) c.channels = m.cols[0].size;
  if (has_channels && m.cols[0].stride != static_cast<std::ptrdiff_t>(bytes)) return c;
  c.positions = m.cols.inner().size;
  c.unit = kLine / std::gcd(kLine, c.channels * bytes);
  c.groups = has_channels ? 1 : 0;
  std::size_t step = 1;
  for (std::size_t i = m.rows.count(); i-- > 0; step *= m.rows[i].size) {
    if (m.rows[i].stride != static_cast<std::ptrdiff_t>(c.channels * bytes)) continue;
    c.groups = m.rows[i].size;
    c.step = step;
  }
  const bool fits = c.positions >= kLeastPositions && c.groups <= kMostGroups;
  if (!fits || c.groups * c.channels * bytes < kLine) c.groups = 0;
  return c;
}

}  // namespace

ChannelsLast channels_last(const Problem& p) noexcept {
  const ChannelsLast c = place_of(p.x);
  if (c.groups == 0 || place_of(p.y) != c || p.x.dtype != p.y.dtype || arithmetic_type(p) == DType::f64) return {};
  const bool fills_lines = c.groups * c.channels * bytes_of(p.x.dtype) % kLine == 0 || p.x.data != p.y.data;
  const bool by_channel = is_by_channel(p.gamma, c.positions) && is_by_channel(p.beta, c.positions);
  return fills_lines && by_channel && !is_fused(p) && p.moments == nullptr ? c : ChannelsLast{};
}

ChannelsLast channels_last(const GradientProblem& p) noexcept {
  const ChannelsLast c = place_of(p.x);
  if (c.groups == 0 || place_of(p.dy) != c || p.x.dtype != p.dy.dtype || arithmetic_type(p) == DType::f64) return {};
  const bool has_dx = p.dx.data == nullptr || (place_of(p.dx) == c && p.dx.dtype == p.x.dtype && !is_in_place(p));
  const bool by_channel = p.gamma.data != nullptr && summed_run(p) == c.positions && c.positions % kLanes == 0;
  return has_dx && by_channel && p.dsum.data == nullptr && p.moments == nullptr ? c : ChannelsLast{};
}

}  // namespace evenorm::internal
