// Tensors in memory, with any layout: what lies around their elements shows stray writes, or ends the program at any
// stray access. This file does not depend on norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "contracts/inputs.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::contracts {

using Shape = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;
std::size_t product(std::span<const std::int64_t> shape);

// Memory between inaccessible pages. Its bytes are adjacent to the page after them, or before them.
enum class Guard : unsigned char { none, after, before };
class GuardedMemory {
 public:
  GuardedMemory(std::size_t bytes, Guard guard);
  explicit GuardedMemory(std::span<const std::byte> contents, Guard guard);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  void forbid_writing();

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* pages) const;
  };
  std::unique_ptr<std::byte, Unmap> pages_;
  std::size_t size_;
  std::byte* data_;
};

// How the axes of a tensor lie in memory.
enum class Order : unsigned char {
  rows_first,     // C order
  columns_apart,  // C order, with gaps between the elements of a row
  columns_first,  // the last axis outermost
  channels_last,  // the last axis next to the first one
  reversed,       // C order backwards: the last element first
};
struct Place {
  Order order = Order::rows_first;
  std::size_t offset = 0;  // elements after a multiple of 64 bytes
  std::size_t gap = 0;     // elements after each line of the innermost axis
  std::size_t more = 0;    // elements after each block of the two innermost axes, besides
};
Shape strides_of(const Shape& shape, const Place& place);

// choose(n) returns a number below n: a random one, or one of a fuzzer's bytes.
using Choose = std::function<std::size_t(std::size_t n)>;

// A tensor of any shape and strides in a block of memory of its own.
class Placed {
 public:
  // odd: no element is aligned to its size. With a guard, the first or the last element is adjacent to it.
  Placed(DType dtype, const Shape& shape, const Place& place, bool odd = false, Guard guard = Guard::none);
  // Axes in any order, some with gaps or reversed, sometimes at an odd address. The memory ends with the last element.
  // may_meet: some strides are 0, or shorter than the axes inside them.
  static Placed chosen(DType dtype, const Shape& shape, const Choose& choose, bool may_meet);

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Tensor view() const { return {start(), dtype_, shape_, strides_}; }
  ConstTensor const_view() const { return {start(), dtype_, shape_, strides_}; }

  void put(const std::byte* values);  // in C order
  Array get() const;                  // in C order
  void forbid_writing();              // if it is guarded
  void reset();                       // to the contents after put()

  bool is_unchanged() const;  // since put()
  bool only_elements_were_written() const;

 private:
  Placed(DType dtype, Shape shape, Shape strides)
      : dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)) {}
  std::pair<std::ptrdiff_t, std::ptrdiff_t> extent() const;  // bytes before element (0, ..., 0), and from it on
  std::byte* data() const { return guarded_ ? guarded_->data() : const_cast<std::byte*>(memory_.data()); }
  std::byte* start() const { return data() + start_; }

  DType dtype_;
  Shape shape_, strides_;
  Bytes memory_{};
  std::unique_ptr<GuardedMemory> guarded_{};
  std::size_t size_ = 0;
  std::ptrdiff_t start_ = 0;  // bytes from the memory's start to element (0, ..., 0)
  Bytes before_{};
};

// --- rows of any axes

// Normalised axes, as evenorm::Forward takes them, with their sizes and the sizes of the other axes.
struct Axes {
  Shape axes, normalized, outer;

  bool are_the_last() const;  // and given as -2, -1
};
Axes axes_of(const Shape& shape, const Shape& axes);
Axes choose_axes(const Shape& shape, const Choose& choose);

// The offset in bytes from element (0, ..., 0) of each element in C order. Strides count elements of `element` bytes.
std::vector<std::ptrdiff_t> element_offsets(const Shape& shape, const Shape& strides, std::size_t element);

// The positions, in C order of the tensor, of the elements of the normalised form, row by row.
std::vector<std::size_t> places_of_rows(const Shape& shape, const Shape& axes);

// to[i] = from[order[i]]. If `back`: to[order[i]] = from[i].
Array permuted(const Array& from, const std::vector<std::size_t>& order, bool back);

}  // namespace evenorm::contracts
