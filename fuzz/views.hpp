// Tensors as callers may describe them, rightly or wrongly, all of them views of one small memory: what the fuzzers of
// arguments choose alike, and how they decide whether an overlap is there by looking at every pair of bytes.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "contracts/scattered.hpp"
#include "fuzz/support.hpp"

namespace evenorm::fuzz {

inline constexpr std::size_t kBytes = 1024;
using Memory = std::vector<std::byte>;
Memory random_memory(std::uint64_t seed);

// One tensor: where it begins in the memory, and how it says it lies there.
struct View {
  std::string_view name;
  bool present = false;
  DType dtype = DType::f32;
  contracts::Shape shape, strides;
  std::size_t begin = 0;

  std::size_t element() const { return std::max<std::size_t>(size_of(dtype), 1); }  // 1 where the type is none
  contracts::Shape actual_strides() const;
  std::pair<__int128, __int128> range() const;  // bytes of the memory: from the first to past the last
  bool in_memory() const;
  std::vector<std::size_t> bytes() const;  // the memory's bytes that are the elements', in C order
  bool nested() const;                     // does each axis, sorted by stride, step over all that is inside it?

  Tensor in(Memory& memory) const { return {present ? memory.data() + begin : nullptr, dtype, shape, strides}; }
  ConstTensor const_in(Memory& memory) const {
    return {present ? memory.data() + begin : nullptr, dtype, shape, strides};
  }
  Memory elements(const Memory& memory) const;
  contracts::Array array(const Memory& memory) const;  // empty where it is absent
  void put(const Memory& values, Memory& memory) const;
};
using Views = std::vector<const View*>;

View choose_view(Choices& choices, std::string_view name, const contracts::Shape& shape);

// x's shape, and which of its axes are normalised, told in one of the two ways, sometimes wrongly.
struct Axes {
  contracts::Shape shape;
  contracts::AxisChoice split;
  contracts::Shape axes, normalized_shape;

  contracts::Shape numbers() const;                   // the normalised axes, in whichever way they were told
  std::size_t cols(const contracts::Shape& x) const;  // of the shape that passed
};
Axes choose_axes(Choices& choices);

bool share_bytes(const View& a, const View& b);
// Elements of several in the same bytes: the same number, at the same places.
bool same_places(const View& a, const View& b);

// What passed: no output meets itself, or another tensor that in_place() does not excuse.
void expect_apart(const Views& outputs, const Views& all,
                  const std::function<bool(const View& output, const View& other)>& in_place);
// A refusal as "a may overlap b" must have a reason: the documented ones.
void expect_reason(const Views& all, std::string_view message);

// Why it is refused, or nothing.
std::optional<std::string> refusal(const std::function<void()>& call);

}  // namespace evenorm::fuzz
