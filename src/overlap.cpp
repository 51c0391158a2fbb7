// Which buffers may share memory: y and the sum may be x or the residual itself, dx may be dy, dy2, x or dsum
// itself; otherwise outputs touch nothing else, themselves included. Disjoint ranges of bytes pass; slices interleaved
// with equal strides are decided exactly; the rest is refused.
#include <array>
#include <cstdlib>
#include <string>

#include "validate.hpp"

namespace evenorm::internal {
namespace {

// A tensor's bytes, from the first to past the last, and how they are spread over that range.
struct Region {
  std::string_view name;
  bool present;
  std::intptr_t begin, end;
  DType dtype;
  const Axes* axes[2];
};

const Axes& no_axes() {
  static const Axes none;
  return none;
}

template <class Pointer>
Region make_region(std::string_view name, Pointer data, DType dtype, const Axes& first, const Axes& second) {
  const auto address = reinterpret_cast<std::intptr_t>(data);
  Region region{name,  data != nullptr,  address, address + static_cast<std::intptr_t>(bytes_of(dtype)),
                dtype, {&first, &second}};
  for (const Axes* axes : region.axes) {
    for (std::size_t i = 0; i < axes->count(); ++i) {
      const Axis& axis = (*axes)[i];
      const std::ptrdiff_t last = static_cast<std::ptrdiff_t>(axis.size - 1) * axis.stride;
      (last < 0 ? region.begin : region.end) += last;
    }
  }
  return region;
}

template <class Pointer>
Region region_of(std::string_view name, const Matrix<Pointer>& m) {
  return make_region(name, m.data, m.dtype, m.rows, m.cols);
}

template <class Pointer>
Region region_of(std::string_view name, const Vector<Pointer>& v) {
  return make_region(name, v.data, v.dtype, v.axes, no_axes());
}

Region region_of(std::string_view name, std::span<const std::byte> bytes) {
  Region region = make_region(name, bytes.data(), DType::f32, no_axes(), no_axes());
  region.end = region.begin + static_cast<std::intptr_t>(bytes.size());
  return region;
}

// Absent where there are none.
Region region_of_moments(const Moments* moments, std::size_t rows) {
  return region_of("moments",
                   moments == nullptr ? std::span<const std::byte>() : std::as_bytes(std::span(moments, rows)));
}

// The same bytes as runs of `length` bytes, stepping over axes of positive strides, the widest first. Merged: what lies
// in one run, in whatever order, has no axis here. Else the runs are elements.
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

  // The bytes that the axes from `first` on span.
  std::intptr_t extent(std::size_t first) const {
    std::intptr_t bytes = length;
    for (std::size_t i = first; i < count; ++i) bytes += static_cast<std::ptrdiff_t>(axes[i].size - 1) * axes[i].stride;
    return bytes;
  }

  // Does each axis step over all that is inside it? Then no two elements meet.
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

// Do runs with the same, nested axes meet? Those of b lie at a's, `distance` bytes on: they meet
// where some whole numbers m_i of strides, |m_i| < size_i, come nearer to that distance than the runs are long.
// Nested axes leave two or three numbers to try for each, and rarely more than one for the next.
class InterleavedSearch {
 public:
  InterleavedSearch(const Runs& a, const Runs& b) : a_(a), b_(b) {}

  // True as well where the search was given up.
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

bool may_meet(const Region& a, const Region& b) {
  if (a.end <= b.begin || b.end <= a.begin) return false;
  for (const bool merged : {true, false}) {
    const Runs a_runs(a, merged), b_runs(b, merged);
    if (a_runs.count == 0 || !a_runs.has_axes_of(b_runs) || !a_runs.is_nested() || !b_runs.is_nested()) continue;
    return InterleavedSearch(a_runs, b_runs).meets(b.begin - a.begin);
  }
  return true;
}

void check_apart(const Region& output, const Region& other) {
  if (!output.present || !other.present || !may_meet(output, other)) return;
  throw Error(std::string(output.name) + " may overlap " + std::string(other.name));
}

void check_apart_in_itself(const Region& output) {
  if (output.present && !Runs(output, true).is_nested()) throw Error(std::string(output.name) + " may overlap itself");
}

void check_present(std::string_view name, const void* data) {
  if (data == nullptr) throw Error(std::string(name) + " is null");
}

// Does each element lie exactly where the other's does?
bool is_in_place(const Region& a, const Region& b) {
  return a.begin == b.begin && bytes_of(a.dtype) == bytes_of(b.dtype) && *a.axes[0] == *b.axes[0] &&
         *a.axes[1] == *b.axes[1];
}

// The outputs of a forward pass, one after the other: each is apart in itself, from all inputs and from those before.
class Outputs {
 public:
  template <class Tensor>
  void add_source(std::string_view name, const Tensor& tensor) {
    if (tensor.data != nullptr) sources_.add(region_of(name, tensor));
  }
  template <class Tensor>
  void add_input(std::string_view name, const Tensor& tensor) {
    if (tensor.data != nullptr) add_input(region_of(name, tensor));
  }
  void add_input(const Region& region) { inputs_.add(region); }

  // may_be_in_place: it may be a source itself.
  template <class Tensor>
  void check(std::string_view name, const Tensor& tensor, bool may_be_in_place) {
    if (tensor.data == nullptr) return;
    const Region output = region_of(name, tensor);
    check_apart_in_itself(output);
    for (const Region& source : sources_) {
      if (!(may_be_in_place && is_in_place(output, source))) check_apart(output, source);
    }
    for (const Region& input : inputs_) check_apart(output, input);
    for (const Region& other : done_) check_apart(output, other);
    done_.add(output);
  }

 private:
  struct Regions {
    std::array<Region, 6> regions;
    std::size_t count = 0;

    void add(const Region& region) { regions[count++] = region; }
    const Region* begin() const { return regions.data(); }
    const Region* end() const { return regions.data() + count; }
  };

  Regions sources_, inputs_, done_;
};

}  // namespace

void validate_buffers(const Problem& p) {
  if (p.rows == 0) return;
  check_present("x", p.x.data);
  check_present("y", p.y.data);
  Outputs outputs;
  outputs.add_source("x", p.x);
  outputs.add_source("residual", p.residual);
  outputs.add_input("weight", p.gamma);
  outputs.add_input("bias", p.beta);
  outputs.add_input("weight2", p.gamma2);
  outputs.add_input("bias2", p.beta2);
  if (p.moments != nullptr) outputs.add_input(region_of_moments(p.moments, p.rows));
  outputs.check("y", p.y, true);  // it and the sum are written where x and the residual have been read
  outputs.check("sum", p.sum, true);
  outputs.check("y2", p.y2, false);
  outputs.check("rstd", p.rstd, false);
  outputs.check("mean", p.mean, false);
  outputs.check("scale", p.scale, false);
}

void validate_buffers(const Problem& p, std::span<const Moments> parts) {
  const std::size_t needed = p.rows * parts_of(p.cols);
  if (parts.size() != needed) {
    throw Error("parts has " + std::to_string(parts.size()) + " elements, but x has " + std::to_string(needed) +
                " parts");
  }
  if (needed == 0) return;
  check_present("x", p.x.data);
  check_present("parts", parts.data());
  check_apart(region_of("parts", std::as_bytes(parts)), region_of("x", p.x));
}

void validate_moments(const Problem& p, const Moments* written) {
  if (p.rows == 0 || written == nullptr) return;
  const Region moments = region_of_moments(written, p.rows);
  check_apart(moments, region_of("x", p.x));
  check_apart(moments, region_of("y", p.y));
  for (const auto& [name, parameter] : {std::pair("weight", p.gamma), std::pair("bias", p.beta)}) {
    check_apart(moments, region_of(name, parameter));
  }
  check_apart(moments, region_of("mean", p.mean));
  check_apart(moments, region_of("rstd", p.rstd));
}

void validate_message(const Problem& p, std::span<const double> message) {
  if (p.rows == 0) return;
  check_present("x", p.x.data);
  check_present("message", message.data());
  check_apart(region_of("message", std::as_bytes(message)), region_of("x", p.x));
}

void validate_message(const GradientProblem& p, std::span<const double> message) {
  if (p.rows == 0) return;
  check_present("message", message.data());
  const Region sent = region_of("message", std::as_bytes(message));
  check_apart(sent, region_of("x", p.x));
  check_apart(sent, region_of("dy", p.dy));
  check_apart(sent, region_of("weight", p.gamma));
}

namespace {

struct GradientRegions {
  Region x, dy, dsum, mean, rstd, moments, dx, gamma, dgamma, dbeta;
  Region dy2{}, gamma2{}, dgamma2{}, dbeta2{};  // absent where there is but one norm

  GradientRegions(const GradientProblem& p, const GradientProblem* second)
      : x(region_of("x", p.x)),
        dy(region_of("dy", p.dy)),
        dsum(region_of("dsum", second == nullptr ? p.dsum : second->dsum)),
        mean(region_of("mean", p.mean)),
        rstd(region_of("rstd", p.rstd)),
        moments(region_of_moments(p.moments, p.rows)),
        dx(region_of("dx", p.dx)),
        gamma(region_of("weight", p.gamma)),
        dgamma(region_of("dweight", p.dgamma)),
        dbeta(region_of("dbias", p.dbeta)) {
    if (second != nullptr) {
      dy2 = region_of("dy2", second->dy);
      gamma2 = region_of("weight2", second->gamma);
      dgamma2 = region_of("dweight2", second->dgamma);
      dbeta2 = region_of("dbias2", second->dbeta);
    }
    // Without rows, dweight and dbias are written all the same.
    for (Region* of_rows : {&x, &dy, &dsum, &mean, &rstd, &moments, &dx, &dy2}) {
      of_rows->present = of_rows->present && p.rows != 0;
    }
  }
  explicit GradientRegions(const GradientPass& pass)
      : GradientRegions(pass.first, pass.second ? &*pass.second : nullptr) {}
};

void check_buffers(const GradientRegions& r) {
  const std::array gradients{&r.dgamma, &r.dbeta, &r.dgamma2, &r.dbeta2};
  check_apart_in_itself(r.dx);
  for (const Region* gradient : gradients) check_apart_in_itself(*gradient);
  for (const Region* source : {&r.x, &r.dy, &r.dsum, &r.dy2}) {
    if (source->present && !is_in_place(r.dx, *source)) check_apart(r.dx, *source);
  }
  for (const Region* input : {&r.gamma, &r.mean, &r.rstd, &r.moments, &r.gamma2}) check_apart(r.dx, *input);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i]->present) continue;
    for (const Region* other :
         {&r.x, &r.dy, &r.dsum, &r.gamma, &r.mean, &r.rstd, &r.moments, &r.dx, &r.dy2, &r.gamma2}) {
      check_apart(*gradients[i], *other);
    }
    for (std::size_t later = i + 1; later < gradients.size(); ++later) check_apart(*gradients[i], *gradients[later]);
  }
}

void check_scratch(const GradientRegions& r, std::span<const std::byte> scratch) {
  if (scratch.empty()) return;
  check_present("scratch", scratch.data());
  const Region workspace = region_of("scratch", scratch);
  for (const Region* tensor : {&r.x, &r.dy, &r.dsum, &r.gamma, &r.mean, &r.rstd, &r.dx, &r.dgamma, &r.dbeta, &r.dy2,
                               &r.gamma2, &r.dgamma2, &r.dbeta2}) {
    check_apart(workspace, *tensor);
  }
}

}  // namespace

void validate_buffers(const GradientPass& pass, std::span<const std::byte> scratch) {
  if (pass.first.rows != 0) {
    check_present("x", pass.first.x.data);
    check_present("dy", pass.first.dy.data);
  }
  const GradientRegions regions(pass);
  check_buffers(regions);
  check_scratch(regions, scratch);
}

void validate_scratch(const GradientPass& pass, std::span<const std::byte> scratch) {
  check_scratch(GradientRegions(pass), scratch);
}

void check_scratch_size(std::span<const std::byte> scratch, std::size_t needed) {
  if (scratch.size() >= needed) return;
  throw Error("scratch has " + std::to_string(scratch.size()) + " bytes, but this problem needs " +
              std::to_string(needed));
}

}  // namespace evenorm::internal
