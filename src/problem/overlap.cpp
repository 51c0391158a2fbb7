// Refuses buffers that overlap. y and the sum may be x or the residual itself, and dx may be dy, x or dsum itself.
// Otherwise an output may not overlap another buffer, or itself. The check is exact for tensors with equal strides;
// other tensors are refused if their ranges of bytes meet.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <new>
#include <span>
#include <string>

#include "evenorm/sharded.hpp"
#include "problem/validate.hpp"

namespace evenorm::internal {
namespace {

// An output that is a replacement may be a source itself.
enum class Use : unsigned char { source, input, replacement, output };

using AxesPair = std::array<const Axes*, 2>;  // null: no axes

// A tensor's range of bytes, [begin, end), and the layout of its elements in that range.
struct Region {
  const char* name;
  std::intptr_t begin, end;
  std::intptr_t element;  // in bytes
  DType dtype;
  AxesPair axes;
  Use use;

  template <class Visit>
  void for_axes(const Visit& visit) const {
    for (const Axes* some : axes) {
      for (std::size_t i = 0; some != nullptr && i < some->count(); ++i) visit((*some)[i]);
    }
  }
};

// The axes of a Matrix, Broadcast or Vector.
template <class AnyTensor>
AxesPair axes_of(const AnyTensor& t) {
  if constexpr (requires { t.rows; }) {
    return {&t.rows, &t.cols};
  } else if constexpr (requires { t.sets; }) {
    return {&t.elements(), t.sets ? &*t.sets : nullptr};
  } else {
    return {&t.axes};
  }
}

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
    std::sort(axes.data(), axes.data() + count, [](const Axis& a, const Axis& b) {
      return a.stride != b.stride ? a.stride > b.stride : a.size > b.size;
    });
    for (; merged && count != 0 && axes[count - 1].stride == length; --count) {
      length *= static_cast<std::ptrdiff_t>(axes[count - 1].size);
    }
  }

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

  bool has_axes_of(const Runs& other) const {
    return std::equal(axes.data(), axes.data() + count, other.axes.data(), other.axes.data() + other.count);
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
    const Runs a_runs(a, merged), b_runs(b, merged);
    if (a_runs.count == 0 || !a_runs.has_axes_of(b_runs) || !a_runs.is_nested() || !b_runs.is_nested()) continue;
    int steps = 4096;
    return meet(a_runs, b_runs, b.begin - a.begin, 0, steps);
  }
  return true;
}

[[gnu::noinline]] bool is_nested(const Region& region) { return Runs(region, true).is_nested(); }

void check_apart(const Region& output, const Region& other) {
  if (output.end <= other.begin || other.end <= output.begin || !may_meet(output, other)) return;
  throw Error(std::string(output.name) + " may overlap " + other.name);
}

void check_present(const char* name, const void* data) {
  if (data == nullptr) throw Error(std::string(name) + " is null");
}

// True if the two tensors have the same elements in the same order.
bool is_in_place(const Region& a, const Region& b) {
  return a.begin == b.begin && a.dtype == b.dtype && *a.axes[0] == *b.axes[0] && *a.axes[1] == *b.axes[1];
}

// The buffers of one pass: first the sources, then the other inputs, then the outputs. Absent tensors are skipped.
class Buffers {
 public:
  template <class AnyTensor>
  void add(const char* name, const AnyTensor& t, Use use) {
    if (t.data != nullptr) add_region(name, t.data, bytes_of(t.dtype), use, t.dtype, axes_of(t));
  }
  void add(const char* name, std::span<const std::byte> bytes, Use use) {
    if (bytes.data() != nullptr) add_region(name, bytes.data(), bytes.size(), use);
  }

 private:
  // Adds a region of one element of `bytes` bytes, repeated along the axes. Checks that an output overlaps neither
  // itself nor a buffer before it.
  void add_region(const char* name, const void* data, std::size_t bytes, Use use, DType dtype = {},
                  const AxesPair& axes = {}) {
    constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
    const auto begin = reinterpret_cast<std::intptr_t>(data),
               element = static_cast<std::intptr_t>(std::min(bytes, kMost));
    const std::intptr_t end = moved(name, begin, element);
    Region& region = *new (&regions_[count_]) Region{name, begin, end, element, dtype, axes, use};  // not by a copy
    region.for_axes([&](const Axis& axis) {
      const std::ptrdiff_t last = static_cast<std::ptrdiff_t>(axis.size - 1) * axis.stride;
      std::intptr_t& limit = last < 0 ? region.begin : region.end;
      limit = moved(name, limit, last);
    });
    if (use == Use::replacement || use == Use::output) {
      if (!is_nested(region)) throw Error(std::string(name) + " may overlap itself");
      for (const Region& other : std::span(regions_).first(count_)) {
        const bool may_replace = use == Use::replacement && other.use == Use::source;
        if (!(may_replace && is_in_place(region, other))) check_apart(region, other);
      }
    }
    ++count_;
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
  buffers.add("moments", std::as_bytes(std::span(moments, p.rows)), Use::output);
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
