// Tensor descriptions, valid or not, as views of one small memory. The fuzzers of arguments share these choices, and
// decide whether tensors overlap by comparing every pair of bytes.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "contracts/harness.hpp"
#include "fuzz/support.hpp"

namespace evenorm::fuzz {

inline constexpr std::size_t kBytes = 1024;
using Memory = std::vector<std::byte>;
Memory random_memory(std::uint64_t seed);

// One tensor: its start in the memory, and its described layout.
struct View {
  std::string_view name;
  bool present = false;
  DType dtype = DType::f32;
  contracts::Shape shape, strides;
  std::size_t begin = 0;

  std::size_t element() const { return std::max<std::size_t>(size_of(dtype), 1); }  // 1 if the type is invalid
  contracts::Shape actual_strides() const;
  std::pair<__int128, __int128> range() const;  // bytes of the memory, from the first to one past the last
  bool in_memory() const;
  std::vector<std::size_t> bytes() const;  // offsets in the memory of the elements' bytes, in C order
  bool nested() const;                     // true if each axis, in order of stride, steps over everything inside it

  Tensor in(Memory& memory) const { return {present ? memory.data() + begin : nullptr, dtype, shape, strides}; }
  ConstTensor const_in(Memory& memory) const {
    return {present ? memory.data() + begin : nullptr, dtype, shape, strides};
  }
  contracts::Array array(const Memory& memory) const;  // empty if absent
  void put(const contracts::Array& values, Memory& memory) const;
  contracts::Type type() const { return present ? contracts::Type(dtype) : contracts::Type(); }
};
using Views = std::vector<const View*>;

View choose_view(Choices& choices, std::string_view name, const contracts::Shape& shape);

// x's shape and its normalised axes, described in one of the two forms, sometimes wrongly.
struct Axes {
  contracts::Shape shape;
  contracts::Axes split;
  contracts::Shape axes, normalized_shape;

  contracts::Shape numbers() const;                   // the normalised axes, in either form
  std::size_t cols(const contracts::Shape& x) const;  // for a shape that was accepted
};
Axes choose_axes(Choices& choices);

// A weight or bias: of the normalised axes, or broadcast to x.
View choose_parameter(Choices& choices, std::string_view name, const Axes& axes);
// True for an accepted parameter that has all axes of x and is not just one row's: it may vary from row to row, or be
// broadcast along a row.
bool is_broadcast(const View& parameter, const contracts::Shape& x, const Axes& axes);

bool share_bytes(const View& a, const View& b);
// True if the views have equally many elements at the same places.
bool same_places(const View& a, const View& b);

// Checks an accepted call: no output overlaps itself, or another tensor unless in_place() allows it.
void expect_apart(const Views& outputs, const Views& all,
                  const std::function<bool(const View& output, const View& other)>& in_place);
// Checks that a refusal "a may overlap b" has one of the documented reasons.
void expect_reason(const Views& all, std::string_view message);

// The message of the refusal, or nothing.
std::optional<std::string> refusal(const std::function<void()>& call);

}  // namespace evenorm::fuzz
