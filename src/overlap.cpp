// Which buffers may share memory: y may be x itself; otherwise outputs touch nothing else, themselves included.
// Disjoint ranges of bytes pass; slices interleaved with equal strides are decided exactly; the rest is refused.
#include <array>
#include <string>

#include "validate.hpp"

namespace evenorm::internal {
namespace {

// The bytes of a tensor: runs of `length` bytes, stepping over axes of positive strides, the widest first. What lies in
// one run, in whatever order, has no axis here.
struct Region {
  std::string_view name;
  bool present = false;
  std::intptr_t begin = 0;
  std::intptr_t length = 0;
  std::array<Axis, 2 * Axes::kCapacity> axes;
  std::size_t count = 0;

  void add(const Axes& from) {
    for (std::size_t i = 0; i < from.count(); ++i) {
      Axis axis = from[i];
      if (axis.stride < 0) {
        begin += axis.stride * static_cast<std::ptrdiff_t>(axis.size - 1);
        axis.stride = -axis.stride;
      }
      axes[count++] = axis;
    }
  }

  void sort_and_merge() {
    const auto wider = [](const Axis& a, const Axis& b) {
      return a.stride != b.stride ? a.stride > b.stride : a.size > b.size;
    };
    std::sort(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(count), wider);
    for (; count != 0 && axes[count - 1].stride == length; --count) {
      length *= static_cast<std::ptrdiff_t>(axes[count - 1].size);
    }
  }

  // From the first byte past the last, of what the axes from `first` on span.
  std::intptr_t extent(std::size_t first = 0) const {
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

  bool has_axes_of(const Region& other) const {
    return count == other.count &&
           std::equal(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(count), other.axes.begin());
  }
};

template <class Pointer>
Region start_region(std::string_view name, Pointer data, DType dtype) {
  Region region;
  region.name = name;
  region.present = data != nullptr;
  region.begin = reinterpret_cast<std::intptr_t>(data);
  region.length = static_cast<std::intptr_t>(bytes_of(dtype));
  return region;
}

template <class Pointer>
Region region_of(std::string_view name, const Matrix<Pointer>& m) {
  Region region = start_region(name, m.data, m.dtype);
  region.add(m.rows);
  region.add(m.cols);
  region.sort_and_merge();
  return region;
}

template <class Pointer>
Region region_of(std::string_view name, const Vector<Pointer>& v) {
  Region region = start_region(name, v.data, v.dtype);
  region.add(v.axes);
  region.sort_and_merge();
  return region;
}

// Do runs of two regions with the same, nested axes meet? The runs of b lie at a's, `distance` bytes on: they meet
// where some whole numbers m_i of strides, |m_i| < size_i, come nearer to that distance than the runs are long.
// Nested axes leave two or three numbers to try for each, and rarely more than one for the next.
class InterleavedSearch {
 public:
  InterleavedSearch(const Region& a, const Region& b) : a_(a), b_(b) {}

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

  const Region& a_;
  const Region& b_;
  int steps_ = 0;
};

bool may_meet(const Region& a, const Region& b) {
  if (a.begin + a.extent() <= b.begin || b.begin + b.extent() <= a.begin) return false;
  if (a.count == 0 || !a.has_axes_of(b) || !a.is_nested() || !b.is_nested()) return true;
  return InterleavedSearch(a, b).meets(b.begin - a.begin);
}

void check_apart(const Region& output, const Region& other) {
  if (!output.present || !other.present || !may_meet(output, other)) return;
  throw Error(std::string(output.name) + " may overlap " + std::string(other.name));
}

void check_apart_in_itself(const Region& output) {
  if (output.present && !output.is_nested()) throw Error(std::string(output.name) + " may overlap itself");
}

void check_present(std::string_view name, const void* data) {
  if (data == nullptr) throw Error(std::string(name) + " is null");
}

bool is_in_place(const Problem& p) {
  return p.x.data == p.y.data && bytes_of(p.x.dtype) == bytes_of(p.y.dtype) && p.x.rows == p.y.rows &&
         p.x.cols == p.y.cols;
}

}  // namespace

void validate_buffers(const Problem& p) {
  if (p.rows == 0) return;
  check_present("x", p.x.data);
  check_present("y", p.y.data);
  const Region x = region_of("x", p.x), y = region_of("y", p.y);
  const Region gamma = region_of("weight", p.gamma), beta = region_of("bias", p.beta);
  const Region mean = region_of("mean", p.mean), rstd = region_of("rstd", p.rstd);
  for (const Region* output : {&y, &mean, &rstd}) check_apart_in_itself(*output);

  if (!is_in_place(p)) check_apart(y, x);
  check_apart(y, gamma);
  check_apart(y, beta);
  check_apart(mean, y);
  check_apart(rstd, y);
  check_apart(mean, rstd);
  for (const Region* statistic : {&mean, &rstd}) {
    for (const Region* input : {&x, &gamma, &beta}) check_apart(*statistic, *input);
  }
}

}  // namespace evenorm::internal
