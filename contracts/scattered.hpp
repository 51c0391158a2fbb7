// Tensors with any memory layout, and any choice of their axes, to test norms over any layout. The caller's `choose`
// function selects the layout, by random numbers or by a fuzzer's bytes. This file does not depend on norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::contracts {

using Shape = std::vector<std::int64_t>;
std::size_t product(const Shape& shape);

// choose(n) returns a number below n.
using Choose = std::function<std::size_t(std::size_t n)>;

// The offset in bytes from element (0, ..., 0) of each element in C order. Strides count elements of `element` bytes.
std::vector<std::ptrdiff_t> element_offsets(const Shape& shape, const Shape& strides, std::size_t element);

// A tensor whose axes lie in memory in any order, some with gaps or reversed. Its memory ends with its last element,
// and begins with its first one or a few elements earlier. Some tensors have odd addresses.
struct Scattered {
  enum class Elements { apart, may_meet };  // may_meet: some strides are 0, or shorter than the axes inside them

  DType dtype;
  Shape shape, strides;
  std::vector<std::byte> memory;
  std::ptrdiff_t start = 0;  // bytes from the memory's start to element (0, ..., 0)

  Scattered(DType type, Shape sizes, const Choose& choose, Elements elements = Elements::apart);

  void put(const std::byte* values);   // in C order
  std::vector<std::byte> get() const;  // in C order
  bool only_elements_were_written() const;
  Tensor view() { return {memory.data() + start, dtype, shape, strides}; }
  ConstTensor const_view() const { return {memory.data() + start, dtype, shape, strides}; }
};

// One or more axes, as evenorm::Forward takes them, with their sizes and the sizes of the other axes.
struct AxisChoice {
  Shape axes, normalized, outer;
};
AxisChoice choose_axes(const Shape& shape, const Choose& choose);

// The positions, in C order of the tensor, of the elements of the normalised form, row by row.
std::vector<std::size_t> places_of_rows(const Shape& shape, const Shape& axes);

// to[i] = from[order[i]] for elements of `bytes` bytes. If `back`: to[order[i]] = from[i].
std::vector<std::byte> permuted(const std::vector<std::byte>& from, std::size_t bytes,
                                const std::vector<std::size_t>& order, bool back);

}  // namespace evenorm::contracts
