// The layout of a tensor along some of its axes: turns an index in C order into an offset in bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace evenorm::internal {

// One axis: its number of elements, and the bytes from one element to the next.
struct Axis {
  std::size_t size;
  std::ptrdiff_t stride;

  bool operator==(const Axis&) const = default;
};

// Some axes of a tensor, outermost first. Axes of one element are left out, and neighbours that step as one axis are
// merged. Axes beyond kInline are on the heap: a pass may run on a stack of a few KiB, and few tensors have that many.
class Axes {
 public:
  // An output has at least 2^axes elements at different addresses, so no address space can hold more axes than this.
  static constexpr std::size_t kCapacity = 48;
  static constexpr std::size_t kInline = 4;

  Axes() noexcept { near_[0] = {1, 0}; }
  // Adds an axis inside the others. Returns false if there is no room for it. Throws std::bad_alloc.
  bool append(Axis axis) {
    if (axis.size == 1) return true;
    if (count_ != 0 && inner().stride == static_cast<std::ptrdiff_t>(axis.size) * axis.stride) {
      at(count_ - 1) = {inner().size * axis.size, axis.stride};
      return true;
    }
    if (count_ == kCapacity) return false;
    if (count_ == kInline) far_ = std::make_shared<Axis[]>(kCapacity - kInline);
    at(count_++) = axis;
    return true;
  }

  std::size_t count() const noexcept { return count_; }
  const Axis& operator[](std::size_t i) const noexcept { return i < kInline ? near_[i] : far_[i - kInline]; }
  // The innermost axis; if there is none, an axis of one element.
  const Axis& inner() const noexcept { return (*this)[count_ == 0 ? 0 : count_ - 1]; }

  // True if the elements, of `bytes` bytes each, lie side by side.
  bool is_dense(std::size_t bytes) const noexcept {
    return count_ == 0 || (count_ == 1 && near_[0].stride == static_cast<std::ptrdiff_t>(bytes));
  }

  // The bytes from the first element to element `index` in C order.
  std::ptrdiff_t offset(std::size_t index) const noexcept {
    std::ptrdiff_t bytes = 0;
    for (std::size_t i = count_; i > 1; --i) {
      const Axis& axis = (*this)[i - 1];
      bytes += static_cast<std::ptrdiff_t>(index % axis.size) * axis.stride;
      index /= axis.size;
    }
    return bytes + static_cast<std::ptrdiff_t>(index) * near_[0].stride;
  }

  bool operator==(const Axes& other) const noexcept {
    if (count_ != other.count_) return false;
    for (std::size_t i = 0; i < count_; ++i) {
      if ((*this)[i] != other[i]) return false;
    }
    return true;
  }

 private:
  Axis& at(std::size_t i) noexcept { return i < kInline ? near_[i] : far_[i - kInline]; }

  std::size_t count_ = 0;
  Axis near_[kInline];
  std::shared_ptr<Axis[]> far_;  // the axes after the first kInline
};

// The axes of one tensor: the inner ones, then the outer ones or null.
using AxesPair = std::array<const Axes*, 2>;

// The number of the next n indices that step evenly along the innermost axis.
inline std::size_t even_run(const Axes& axes, std::size_t index, std::size_t n) {
  return axes.count() <= 1 ? n : std::min(n, axes.inner().size - index % axes.inner().size);
}

}  // namespace evenorm::internal
