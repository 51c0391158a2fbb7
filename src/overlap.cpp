// Which buffers may share memory: y may be x itself; otherwise outputs touch nothing else.
// Disjoint ranges of bytes pass; rows interleaved at one distance are decided exactly; the rest is refused.
#include <string>

#include "validate.hpp"

namespace evenorm::internal {
namespace {

// `rows` pieces of `length` bytes, `stride` bytes apart.
struct Region {
  std::string_view name;
  std::intptr_t start;
  std::intptr_t stride;
  std::intptr_t length;
  std::intptr_t rows;

  std::intptr_t begin() const { return stride < 0 ? start + stride * (rows - 1) : start; }
  std::intptr_t end() const { return (stride < 0 ? start : start + stride * (rows - 1)) + length; }
};

template <class Pointer>
Region region_of(std::string_view name, const Rows<Pointer>& r, const Problem& p) {
  return {name, reinterpret_cast<std::intptr_t>(r.data), r.row_stride,
          static_cast<std::intptr_t>(p.cols * bytes_of(r.dtype)), static_cast<std::intptr_t>(p.rows)};
}
template <class Pointer>
Region region_of(std::string_view name, const Vector<Pointer>& v, std::size_t count) {
  return {name, reinterpret_cast<std::intptr_t>(v.data), 0, static_cast<std::intptr_t>(count * bytes_of(v.dtype)), 1};
}

// Pieces of both lie `stride` apart: does a piece of b meet a piece of a?
bool interleaved_meet(const Region& a, const Region& b) {
  const std::intptr_t stride = a.stride < 0 ? -a.stride : a.stride;
  const std::intptr_t distance = b.begin() - a.begin();
  std::intptr_t steps = distance / stride, rest = distance % stride;
  if (rest < 0) {
    rest += stride;
    --steps;
  }
  const auto exists = [&](std::intptr_t step) { return step < a.rows && -step < b.rows; };
  return (rest < a.length && exists(steps)) || (rest + b.length > stride && exists(steps + 1));
}

bool may_meet(const Region& a, const Region& b) {
  if (a.end() <= b.begin() || b.end() <= a.begin()) return false;
  const bool interleaved = a.rows == b.rows && a.rows > 1 && a.stride == b.stride && a.stride != 0;
  const std::intptr_t stride = a.stride < 0 ? -a.stride : a.stride;
  if (interleaved && a.length <= stride && b.length <= stride) return interleaved_meet(a, b);
  return true;
}

void check_apart(const Region& output, const Region& other) {
  if (output.start == 0 || other.start == 0 || !may_meet(output, other)) return;
  throw Error(std::string(output.name) + " may overlap " + std::string(other.name));
}

void check_present(std::string_view name, const void* data) {
  if (data == nullptr) throw Error(std::string(name) + " is null");
}

}  // namespace

void validate_buffers(const Problem& p) {
  if (p.rows == 0) return;
  check_present("x", p.x.data);
  check_present("y", p.y.data);
  const Region x = region_of("x", p.x, p), y = region_of("y", p.y, p);
  const Region gamma = region_of("weight", p.gamma, p.cols), beta = region_of("bias", p.beta, p.cols);
  const Region mean = region_of("mean", p.mean, p.rows), rstd = region_of("rstd", p.rstd, p.rows);
  const std::intptr_t distance = y.stride < 0 ? -y.stride : y.stride;
  if (y.rows > 1 && distance < y.length) throw Error("y has rows that overlap one another");

  const bool in_place = x.start == y.start && x.stride == y.stride && x.length == y.length;
  if (!in_place) check_apart(y, x);
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
