// Where the elements of a tensor lie: from an index in C order over some axes to a distance in bytes.
// Knows nothing of types or of what the axes are for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace evenorm::internal {

// One axis: how many elements, how many bytes from one to the next.
struct Axis {
  std::size_t size;
  std::ptrdiff_t stride;

  bool operator==(const Axis&) const = default;
};

// Some axes of a tensor, outermost first. Axes of one element are left out, neighbours that step as one are one axis:
// so whatever lies in memory as one run is one axis here. More axes than kInline are kept on the heap: descriptions of
// a pass lie on stacks of a few KiB, and hardly any tensor has so many that step unevenly.
class Axes {
 public:
  // An output has 2^axes elements at least, at different addresses: more axes than this no address space can hold.
  static constexpr std::size_t kCapacity = 48;
  static constexpr std::size_t kInline = 4;

  Axes() noexcept { near_[0] = {1, 0}; }
  // Unused axes are not copied: a run with other buffers than were planned copies some problems.
  Axes(const Axes& other) noexcept : far_(other.far_) { copy_near(other); }
  Axes(Axes&& other) noexcept : far_(std::move(other.far_)) { copy_near(other); }
  Axes& operator=(const Axes& other) noexcept {  // NOLINT(bugprone-unhandled-self-assignment): of itself it is right
    far_ = other.far_;
    copy_near(other);
    return *this;
  }
  Axes& operator=(Axes&& other) noexcept {
    far_ = std::move(other.far_);
    copy_near(other);
    return *this;
  }
  ~Axes() = default;

  // Adds an axis inside those there are. False where there is no room for it. Throws std::bad_alloc.
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
  // The innermost axis; of one element where there is none.
  const Axis& inner() const noexcept { return (*this)[count_ == 0 ? 0 : count_ - 1]; }

  // Are the elements, of `bytes` each, side by side?
  bool is_dense(std::size_t bytes) const noexcept {
    return count_ == 0 || (count_ == 1 && near_[0].stride == static_cast<std::ptrdiff_t>(bytes));
  }

  // From the first element to element `index` in C order, in bytes.
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
  void copy_near(const Axes& other) noexcept {
    count_ = other.count_;
    near_[0] = other.near_[0];
    for (std::size_t i = 1; i < std::min(count_, kInline); ++i) near_[i] = other.near_[i];
  }

  std::size_t count_ = 0;
  Axis near_[kInline];
  std::shared_ptr<Axis[]> far_;  // those after the first kInline
};

// How many of the next n indices step evenly along the innermost axis.
inline std::size_t even_run(const Axes& axes, std::size_t index, std::size_t n) {
  return axes.count() <= 1 ? n : std::min(n, axes.inner().size - index % axes.inner().size);
}

}  // namespace evenorm::internal
