// Refuses buffers that overlap. y and the sum may be x or the residual itself, and dx may be dy, x or dsum itself.
// Otherwise an output may not overlap another buffer, or itself. The check is exact for tensors with equal strides;
// other tensors are refused if their ranges of bytes meet.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "evenorm/sharded.hpp"
#include "problem/validate.hpp"

namespace evenorm::internal {
namespace {

// An output that is a replacement may be a source itself.
enum class Use : unsigned char { source, input, replacement, output };

// A tensor's range of bytes, [begin, end), and the layout of its elements in that range.
struct Region {
  const char* name;
  std::intptr_t begin, end;
  std::intptr_t element;  // in bytes
  DType dtype;
  AxesPair axes;
  Use use;

  // Visits the axes, from the innermost to the outermost.
  template <class Visit>
  void for_axes(const Visit& visit) const {
    for (const Axes* some : axes) {
      for (std::size_t i = some == nullptr ? 0 : some->count(); i-- > 0;) visit((*some)[i]);
    }
  }
};

// Returns address + bytes. Throws Error if that overflows.
std::intptr_t moved(const char* name, std::intptr_t address, std::ptrdiff_t bytes) {
  if (!__builtin_add_overflow(address, bytes, &address)) return address;
  throw Error(std::string(name) + " would end beyond the address space");
}

// A region as contiguous runs of `length` bytes, which step along axes of positive strides, the widest stride first.
// merged: a run is as long as possible. Otherwise each run is one element.
struct Runs {
  std::intptr_t length;
  std::array<Axis, 2 * Axes::kCapacity> axes;
  std::size_t count = 0;

  Runs(const Region& region, bool merged) : length(region.element) {
    region.for_axes([&](const Axis& axis) { axes[count++] = {axis.size, std::abs(axis.stride)}; });
    std::ranges::sort(used(), std::greater{}, [](const Axis& axis) { return std::pair(axis.stride, axis.size); });
    for (; merged && count != 0 && axes[count - 1].stride == length; --count) {
      length *= static_cast<std::ptrdiff_t>(axes[count - 1].size);
    }
  }

  std::span<Axis> used() { return std::span(axes).first(count); }

  // The bytes that the axes from number `first` on span.
  std::intptr_t extent(std::size_t first) const {
    std::intptr_t bytes = length;
    for (std::size_t i = first; i < count; ++i) bytes += static_cast<std::ptrdiff_t>(axes[i].size - 1) * axes[i].stride;
    return bytes;
  }

  // True if each axis steps over everything inside it. Then no two elements overlap.
  bool is_nested() const {
    for (std::size_t i = 0; i < count; ++i) {
      if (axes[i].stride < extent(i + 1)) return false;
    }
    return true;
  }
};

// Decides whether two regions with the same nested axes overlap, if b begins `distance` bytes after a. They do if there
// are integers m_i, |m_i| < size_i, such that `distance` and the sum of m_i * stride_i differ by less than the length
// of a run. What is inside an axis spans no more than its stride, so only two values of each m_i are possible. Also
// true if there are no steps left.
bool meet(const Runs& a, const Runs& b, std::intptr_t distance, std::size_t axis, int& steps) {
  if (distance <= -b.extent(axis) || distance >= a.extent(axis)) return false;
  if (axis == a.count || steps-- == 0) return true;
  const std::intptr_t stride = a.axes[axis].stride, size = static_cast<std::intptr_t>(a.axes[axis].size);
  const std::intptr_t below = distance / stride - (distance % stride < 0 ? 1 : 0);
  for (const std::intptr_t m : {below, below + 1}) {
    if (std::abs(m) < size && meet(a, b, distance - m * stride, axis + 1, steps)) return true;
  }
  return false;
}

// True unless the regions, whose ranges meet, are known not to overlap. Not inlined, and neither is is_nested(): the
// runs take 3 KiB of a stack that may be small.
[[gnu::noinline]] bool may_meet(const Region& a, const Region& b) {
  for (const bool merged : {true, false}) {
    Runs a_runs(a, merged), b_runs(b, merged);
    if (a_runs.count == 0 || !std::ranges::equal(a_runs.used(), b_runs.used())) continue;
    if (!a_runs.is_nested() || !b_runs.is_nested()) continue;
    int steps = 4096;
    return meet(a_runs, b_runs, b.begin - a.begin, 0, steps);
  }
  return true;
}

[[gnu::noinline]] bool is_nested(const Region& region) { return Runs(region, true).is_nested(); }

void check_present(const char* name, const void* data) {
  if (data == nullptr) throw Error(std::string(name) + " is null");
}

// True if the two tensors have the same elements in the same order.
bool is_in_place(const Region& a, const Region& b) {
  return a.begin == b.begin && a.dtype == b.dtype && *a.axes[0] == *b.axes[0] && *a.axes[1] == *b.axes[1];
}

// Refuses an output that might overlap another buffer, if their ranges meet.
void check_apart(const Region& output, const Region& other) {
  const bool may_replace = output.use == Use::replacement && other.use == Use::source;
  if ((may_replace && is_in_place(output, other)) || !may_meet(output, other)) return;
  throw Error(std::string(output.name) + " may overlap " + other.name);
}

// The buffers of one pass: first the sources, then the other inputs, then the outputs. Absent tensors are skipped.
class Buffers {
 public:
  template <class AnyTensor>
  void add(const char* name, const AnyTensor& t, Use use) {
    add_region(name, t.data, bytes_of(t.dtype), use, t.dtype, t.layout());
  }
  void add(const char* name, std::span<const std::byte> bytes, Use use) {
    constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
    add_region(name, bytes.data(), std::min(bytes.size(), kMost), use, {}, {});
  }

 private:
  // Adds a region of one element of `bytes` bytes, repeated along the axes. Checks that an output overlaps neither
  // itself nor a buffer before it.
  void add_region(const char* name, const void* data, std::size_t bytes, Use use, DType dtype, const AxesPair& axes) {
    if (data == nullptr) return;
    const auto begin = reinterpret_cast<std::intptr_t>(data), element = static_cast<std::intptr_t>(bytes);
    Region& region = regions_[count_++] = {name, begin, moved(name, begin, element), element, dtype, axes, use};
    bool steps_over = true;  // each axis over those inside it
    region.for_axes([&](const Axis& axis) {
      steps_over = steps_over && std::abs(axis.stride) >= region.end - region.begin;
      const std::ptrdiff_t last = static_cast<std::ptrdiff_t>(axis.size - 1) * axis.stride;
      std::intptr_t& limit = last < 0 ? region.begin : region.end;
      limit = moved(name, limit, last);
    });
    if (use == Use::source || use == Use::input) return;
    if (!steps_over && !is_nested(region)) throw Error(std::string(name) + " may overlap itself");
    for (const Region& other : std::span(regions_).first(count_ - 1)) {
      if (region.begin < other.end && other.begin < region.end) check_apart(region, other);
    }
  }

  std::array<Region, 11> regions_;
  std::size_t count_ = 0;
};

}  // namespace

void validate_buffers(const Problem& p, const Moments* moments) {
  if (p.rows == 0) return;
  check_present("x", p.x.data);
  check_present("y", p.y.data);
  Buffers buffers;
  buffers.add("x", p.x, Use::source);
  buffers.add("residual", p.residual, Use::source);
  buffers.add("weight", p.gamma, Use::input);
  buffers.add("bias", p.beta, Use::input);
  buffers.add("y", p.y, Use::replacement);
  buffers.add("sum", p.sum, Use::replacement);
  buffers.add("rstd", p.rstd, Use::output);
  buffers.add("mean", p.mean, Use::output);
  buffers.add("scale", p.scale, Use::output);
  if (moments != nullptr) buffers.add("moments", std::as_bytes(std::span(moments, p.rows)), Use::output);
}

// Without rows, only the parameters count: dweight and dbias are still written.
void validate_buffers(const GradientProblem& p, std::span<const std::byte> scratch, bool tensors_fit) {
  if (tensors_fit && scratch.empty()) return;
  const Use dx = tensors_fit ? Use::input : Use::replacement, gradient = tensors_fit ? Use::input : Use::output;
  Buffers buffers;
  if (p.rows != 0) {
    check_present("x", p.x.data);
    check_present("dy", p.dy.data);
    buffers.add("x", p.x, Use::source);
    buffers.add("dy", p.dy, Use::source);
    buffers.add("dsum", p.dsum, Use::source);
    buffers.add("mean", p.mean, Use::input);
    buffers.add("rstd", p.rstd, Use::input);
    buffers.add("moments", std::as_bytes(std::span(p.moments, p.rows)), Use::input);
  }
  buffers.add("weight", p.gamma, Use::input);
  if (p.rows != 0) buffers.add("dx", p.dx, dx);
  buffers.add("dweight", p.dgamma, gradient);
  buffers.add("dbias", p.dbeta, gradient);
  if (scratch.empty()) return;
  check_present("scratch", scratch.data());
  buffers.add("scratch", scratch, Use::output);
}

void check_scratch_size(std::span<const std::byte> scratch, std::size_t needed) {
  if (scratch.size() >= needed) return;
  throw Error("scratch has " + std::to_string(scratch.size()) + " bytes, but this problem needs " +
              std::to_string(needed));
}

}  // namespace evenorm::internal
