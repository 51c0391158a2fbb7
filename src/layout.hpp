// Where the elements of a tensor lie: from an index in C order over some axes to a distance in bytes.
// Knows nothing of types or of what the axes are for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace evenorm::internal {

// One axis: how many elements, how many bytes from one to the next.
struct Axis {
  std::size_t size;
  std::ptrdiff_t stride;

  bool operator==(const Axis&) const = default;
};

// Some axes of a tensor, outermost first. Axes of one element are left out, neighbours that step as one are one axis:
// so whatever lies in memory as one run is one axis here.
class Axes {
 public:
  // An output has 2^axes elements at least, at different addresses: more axes than this no address space can hold.
  static constexpr std::size_t kCapacity = 48;

  Axes() noexcept { axes_[0] = {1, 0}; }
  // What is not used is not copied: run() copies some for every call.
  Axes(const Axes& other) noexcept { copy(other); }
  Axes& operator=(const Axes& other) noexcept {
    if (this != &other) copy(other);
    return *this;
  }
  ~Axes() = default;

  // Adds an axis inside those there are. False where there is no room for it.
  bool append(Axis axis) noexcept {
    if (axis.size == 1) return true;
    Axis& last = axes_[count_ == 0 ? 0 : count_ - 1];
    if (count_ != 0 && last.stride == static_cast<std::ptrdiff_t>(axis.size) * axis.stride) {
      last = {last.size * axis.size, axis.stride};
      return true;
    }
    if (count_ == kCapacity) return false;
    axes_[count_++] = axis;
    return true;
  }

  std::size_t count() const noexcept { return count_; }
  const Axis& operator[](std::size_t i) const noexcept { return axes_[i]; }
  // The innermost axis; of one element where there is none.
  const Axis& inner() const noexcept { return axes_[count_ == 0 ? 0 : count_ - 1]; }

  // Are the elements, of `bytes` each, side by side?
  bool is_dense(std::size_t bytes) const noexcept {
    return count_ == 0 || (count_ == 1 && axes_[0].stride == static_cast<std::ptrdiff_t>(bytes));
  }

  // From the first element to element `index` in C order, in bytes.
  std::ptrdiff_t offset(std::size_t index) const noexcept {
    std::ptrdiff_t bytes = 0;
    for (std::size_t i = count_; i > 1; --i) {
      const Axis& axis = axes_[i - 1];
      bytes += static_cast<std::ptrdiff_t>(index % axis.size) * axis.stride;
      index /= axis.size;
    }
    return bytes + static_cast<std::ptrdiff_t>(index) * axes_[0].stride;
  }

  bool operator==(const Axes& other) const noexcept {
    return count_ == other.count_ && std::equal(&axes_[0], &axes_[0] + count_, &other.axes_[0]);
  }

 private:
  void copy(const Axes& other) noexcept {
    count_ = other.count_;
    axes_[0] = other.axes_[0];
    for (std::size_t i = 1; i < count_; ++i) axes_[i] = other.axes_[i];
  }

  std::size_t count_ = 0;
  Axis axes_[kCapacity];
};

}  // namespace evenorm::internal
