// Tensors whose elements lie anywhere in memory, and any axes of them: what a norm over any layout is tried with.
// Which layout, something else chooses: random numbers, or a fuzzer's bytes. Knows nothing of norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::contracts {

using Shape = std::vector<std::int64_t>;
std::size_t product(const Shape& shape);

// choose(n) is below n.
using Choose = std::function<std::size_t(std::size_t n)>;

// In bytes, from element (0, ..., 0) to each element in C order; strides in elements of `element` bytes.
std::vector<std::ptrdiff_t> element_offsets(const Shape& shape, const Shape& strides, std::size_t element);

// A tensor whose axes lie in memory in any order, some of them with gaps or backwards. Its memory ends with its last
// element, and begins with its first one or a few elements before that; some lie at odd addresses.
struct Scattered {
  enum class Elements { apart, may_meet };  // may_meet: some strides are 0, or too short for what is inside

  DType dtype;
  Shape shape, strides;
  std::vector<std::byte> memory;
  std::ptrdiff_t start = 0;  // bytes from the memory's start to element (0, ..., 0)

  Scattered(DType type, Shape sizes, const Choose& choose, Elements elements = Elements::apart);

  void put(const std::byte* values);   // in C order
  std::vector<std::byte> get() const;  // likewise
  bool only_elements_were_written() const;
  Tensor view() { return {memory.data() + start, dtype, shape, strides}; }
  ConstTensor const_view() const { return {memory.data() + start, dtype, shape, strides}; }
};

// Some axes, at least one, as evenorm::Forward takes them; their sizes, and those of the others.
struct AxisChoice {
  Shape axes, normalized, outer;
};
AxisChoice choose_axes(const Shape& shape, const Choose& choose);

// Where element (row, column) of the normalised form, rows one after the other, stands in C order of the tensor.
std::vector<std::size_t> places_of_rows(const Shape& shape, const Shape& axes);

// to[i] = from[order[i]], for elements of `bytes` each; back: to[order[i]] = from[i].
std::vector<std::byte> permuted(const std::vector<std::byte>& from, std::size_t bytes,
                                const std::vector<std::size_t>& order, bool back);

}  // namespace evenorm::contracts
