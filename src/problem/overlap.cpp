// Refuses buffers that overlap. y and the sum may be x or the residual itself, and dx may be dy, x or dsum itself.
// Otherwise an output may not overlap another buffer, or itself. The check is exact for tensors with equal strides;
// other tensors are refused if their ranges of bytes meet.
#include <array>
#include <cstdlib>
#include <limits>
#include <string>

#include "evenorm/sharded.hpp"
#include "problem/validate.hpp"

namespace evenorm::internal {
namespace {

// A tensor's range of bytes, [begin, end), and the layout of its elements in that range.
struct Region {
  const char* name;
  std::intptr_t begin, end;
  DType dtype;
  const Axes* axes[2];
};

const Axes& no_axes() {
  static const Axes none;
  return none;
}

// Returns address + bytes. Throws Error if that overflows.
std::intptr_t moved(const char* name, std::intptr_t address, std::ptrdiff_t bytes) {
  if (!__builtin_add_overflow(address, bytes, &address)) return address;
  throw Error(std::string(name) + " would end beyond the address space");
}

template <class Pointer>
Region make_region(const char* name, Pointer data, DType dtype, const Axes& first, const Axes& second) {
  const auto address = reinterpret_cast<std::intptr_t>(data);
  Region region{
      name, address, moved(name, address, static_cast<std::ptrdiff_t>(bytes_of(dtype))), dtype, {&first, &second}};
  const auto extend = [&](const Axes& axes) {
    for (std::size_t i = 0; i < axes.count(); ++i) {
      const std::ptrdiff_t last = static_cast<std::ptrdiff_t>(axes[i].size - 1) * axes[i].stride;
      std::intptr_t& limit = last < 0 ? region.begin : region.end;
      limit = moved(name, limit, last);
    }
  };
  extend(first);
  extend(second);
  return region;
}

template <class Pointer>
Region region_of(const char* name, const Matrix<Pointer>& m) {
  return make_region(name, m.data, m.dtype, m.rows, m.cols);
}

template <class Pointer>
Region region_of(const char* name, const Vector<Pointer>& v) {
  return make_region(name, v.data, v.dtype, v.axes, no_axes());
}
const Axes& axes_or_none(const std::optional<Axes>& sets) { return sets.has_value() ? *sets : no_axes(); }
Region region_of(const char* name, const SetVector& v) {
  return make_region(name, v.data, v.dtype, v.axes, axes_or_none(v.sets));
}
Region region_of(const char* name, const SetGradient& v) {
  return make_region(name, v.data, v.dtype, v.elements(), axes_or_none(v.sets));
}

// An array of `count` elements of `bytes` bytes each.
Region region_of(const char* name, const void* data, std::size_t count, std::size_t bytes) {
  Region region = make_region(name, data, DType::f32, no_axes(), no_axes());
  std::ptrdiff_t all = 0;
  const bool too_many = __builtin_mul_overflow(count, bytes, &all);
  region.end = moved(name, region.begin, too_many ? std::numeric_limits<std::ptrdiff_t>::max() : all);
  return region;
}

Region region_of(const char* name, std::span<const std::byte> bytes) {
  return region_of(name, bytes.data(), bytes.size(), 1);
}

Region region_of(const char* name, const Moments* moments, std::size_t rows) {
  return region_of(name, moments, rows, sizeof(Moments));
}

// A region as contiguous runs of `length` bytes, which step along axes of positive strides, the widest stride first.
// merged: a run is as long as possible. Otherwise each run is one element.
struct Runs {
  std::intptr_t length;
  std::array<Axis, 2 * Axes::kCapacity> axes;
  std::size_t count = 0;

  Runs(const Region& region, bool merged) : length(static_cast<std::intptr_t>(bytes_of(region.dtype))) {
    for (const Axes* from : region.axes) {
      for (std::size_t i = 0; i < from->count(); ++i) insert({(*from)[i].size, std::abs((*from)[i].stride)});
    }
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
    return count == other.count &&
           std::equal(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(count), other.axes.begin());
  }

 private:
  void insert(Axis axis) {
    std::size_t place = count++;
    const auto is_wider = [&](const Axis& other) {
      return axis.stride != other.stride ? axis.stride > other.stride : axis.size > other.size;
    };
    for (; place != 0 && is_wider(axes[place - 1]); --place) axes[place] = axes[place - 1];
    axes[place] = axis;
  }
};

// Decides whether two regions with the same nested axes overlap, if b begins `distance` bytes after a. They do if there
// are integers m_i, |m_i| < size_i, such that `distance` and the sum of m_i * stride_i differ by less than the length
// of a run. Since the axes are nested, only two or three values of each m_i are possible.
class InterleavedSearch {
 public:
  InterleavedSearch(const Runs& a, const Runs& b) : a_(a), b_(b) {}

  // Also true if the search takes too long.
  bool meets(std::intptr_t distance, std::size_t axis = 0) {
    if (steps_++ == kMaxSteps) return true;
    if (axis == a_.count) return -b_.length < distance && distance < a_.length;
    const std::intptr_t stride = a_.axes[axis].stride, most = static_cast<std::intptr_t>(a_.axes[axis].size) - 1;
    const std::intptr_t inside = a_.extent(axis + 1) - a_.length;
    const std::intptr_t low = distance - inside - a_.length, high = distance + inside + b_.length;
    const std::intptr_t from = std::max(-most, low / stride - 1), to = std::min(most, high / stride + 1);
    for (std::intptr_t m = from; m <= to; ++m) {
      const std::intptr_t rest = distance - m * stride;
      const bool reachable = -b_.length - inside < rest && rest < a_.length + inside;
      if (reachable && meets(rest, axis + 1)) return true;
    }
    return false;
  }

 private:
  static constexpr int kMaxSteps = 4096;

  const Runs& a_;
  const Runs& b_;
  int steps_ = 0;
};

// True unless the regions, whose ranges meet, are known not to overlap.
[[gnu::noinline]] bool may_meet(const Region& a, const Region& b) {
  for (const bool merged : {true, false}) {
    const Runs a_runs(a, merged), b_runs(b, merged);
    if (a_runs.count == 0 || !a_runs.has_axes_of(b_runs) || !a_runs.is_nested() || !b_runs.is_nested()) continue;
    return InterleavedSearch(a_runs, b_runs).meets(b.begin - a.begin);
  }
  return true;
}

void check_apart(const Region& output, const Region& other) {
  if (output.end <= other.begin || other.end <= output.begin || !may_meet(output, other)) return;
  throw Error(std::string(output.name) + " may overlap " + other.name);
}

// True if each axis, in the tensor's own order, steps forwards over everything inside it.
bool is_nested_as_it_is(const Region& region) {
  auto extent = static_cast<std::ptrdiff_t>(bytes_of(region.dtype));
  const auto step_over_what_is_inside = [&](const Axes& axes) {
    for (std::size_t i = axes.count(); i-- > 0;) {
      if (axes[i].stride < extent) return false;
      extent += static_cast<std::ptrdiff_t>(axes[i].size - 1) * axes[i].stride;
    }
    return true;
  };
  return step_over_what_is_inside(*region.axes[1]) && step_over_what_is_inside(*region.axes[0]);
}

[[gnu::noinline]] bool is_nested_in_some_order(const Region& region) { return Runs(region, true).is_nested(); }

void check_apart_in_itself(const Region& output) {
  if (is_nested_as_it_is(output) || is_nested_in_some_order(output)) return;
  throw Error(std::string(output.name) + " may overlap itself");
}

void check_present(const char* name, const void* data) {
  if (data == nullptr) throw Error(std::string(name) + " is null");
}

// True if the two tensors have the same elements in the same order.
bool is_in_place(const Region& a, const Region& b) {
  return a.begin == b.begin && bytes_of(a.dtype) == bytes_of(b.dtype) && *a.axes[0] == *b.axes[0] &&
         *a.axes[1] == *b.axes[1];
}

// Checks the buffers of one pass. Sources are the inputs that an output may replace in place. Absent tensors are
// skipped.
class Buffers {
 public:
  template <class Tensor>
  void add_source(const char* name, const Tensor& tensor) {
    if (tensor.data != nullptr) sources_.add(region_of(name, tensor));
  }
  template <class Tensor>
  void add_input(const char* name, const Tensor& tensor) {
    if (tensor.data != nullptr) inputs_.add(region_of(name, tensor));
  }
  void add_moments(const Moments* moments, std::size_t rows) {
    if (moments != nullptr) inputs_.add(region_of("moments", moments, rows));
  }

  // Checks that an output overlaps neither itself, nor an input, nor an earlier output. may_be_in_place: it may be a
  // source itself.
  template <class Tensor>
  void check(const char* name, const Tensor& tensor, bool may_be_in_place) {
    if (tensor.data == nullptr) return;
    const Region output = region_of(name, tensor);
    check_apart_in_itself(output);
    for (const Region& source : sources_) {
      if (!(may_be_in_place && is_in_place(output, source))) check_apart(output, source);
    }
    check_apart_from_inputs(output);
    outputs_.add(output);
  }
  // Adds an output that has been checked already.
  template <class Tensor>
  void add_output(const char* name, const Tensor& tensor) {
    if (tensor.data != nullptr) outputs_.add(region_of(name, tensor));
  }
  // Checks that memory overlaps no tensor added so far.
  void check_memory(const Region& memory) const {
    for (const Region& source : sources_) check_apart(memory, source);
    check_apart_from_inputs(memory);
  }

 private:
  struct Regions {
    std::array<Region, 6> regions;
    std::size_t count = 0;

    void add(const Region& region) { regions[count++] = region; }
    const Region* begin() const { return regions.data(); }
    const Region* end() const { return regions.data() + count; }
  };

  void check_apart_from_inputs(const Region& region) const {
    for (const Region& input : inputs_) check_apart(region, input);
    for (const Region& other : outputs_) check_apart(region, other);
  }

  Regions sources_, inputs_, outputs_;
};

}  // namespace

void validate_buffers(const Problem& p) {
  if (p.rows == 0) return;
  check_present("x", p.x.data);
  check_present("y", p.y.data);
  Buffers buffers;
  buffers.add_source("x", p.x);
  buffers.add_source("residual", p.residual);
  buffers.add_input("weight", p.gamma);
  buffers.add_input("bias", p.beta);
  buffers.check("y", p.y, true);
  buffers.check("sum", p.sum, true);
  buffers.check("rstd", p.rstd, false);
  buffers.check("mean", p.mean, false);
  buffers.check("scale", p.scale, false);
}

void validate_moments(const Problem& p, const Moments* written) {
  if (p.rows == 0 || written == nullptr) return;
  Buffers buffers;
  buffers.add_source("x", p.x);
  buffers.add_input("weight", p.gamma);
  buffers.add_input("bias", p.beta);
  buffers.add_output("y", p.y);
  buffers.add_output("mean", p.mean);
  buffers.add_output("rstd", p.rstd);
  buffers.check_memory(region_of("moments", written, p.rows));
}

namespace {

// Without rows, only the parameters count: dweight and dbias are still written.
Buffers inputs_of(const GradientProblem& p) {
  Buffers buffers;
  if (p.rows != 0) {
    buffers.add_source("x", p.x);
    buffers.add_source("dy", p.dy);
    buffers.add_source("dsum", p.dsum);
    buffers.add_input("mean", p.mean);
    buffers.add_input("rstd", p.rstd);
    buffers.add_moments(p.moments, p.rows);
  }
  buffers.add_input("weight", p.gamma);
  return buffers;
}

void check_scratch(const Buffers& buffers, std::span<const std::byte> scratch) {
  if (scratch.empty()) return;
  check_present("scratch", scratch.data());
  buffers.check_memory(region_of("scratch", scratch));
}

}  // namespace

void validate_buffers(const GradientProblem& p, std::span<const std::byte> scratch) {
  if (p.rows != 0) {
    check_present("x", p.x.data);
    check_present("dy", p.dy.data);
  }
  Buffers buffers = inputs_of(p);
  if (p.rows != 0) buffers.check("dx", p.dx, true);
  buffers.check("dweight", p.dgamma, false);
  buffers.check("dbias", p.dbeta, false);
  check_scratch(buffers, scratch);
}

void validate_scratch(const GradientProblem& p, std::span<const std::byte> scratch) {
  Buffers buffers = inputs_of(p);
  if (p.rows != 0) buffers.add_output("dx", p.dx);
  buffers.add_output("dweight", p.dgamma);
  buffers.add_output("dbias", p.dbeta);
  check_scratch(buffers, scratch);
}

void check_scratch_size(std::span<const std::byte> scratch, std::size_t needed) {
  if (scratch.size() >= needed) return;
  throw Error("scratch has " + std::to_string(scratch.size()) + " bytes, but this problem needs " +
              std::to_string(needed));
}

}  // namespace evenorm::internal
