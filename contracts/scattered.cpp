// Implements scattered.hpp.
#include "contracts/scattered.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace evenorm::contracts {
namespace {

constexpr std::byte kUntouched{0xA5};

}  // namespace

std::size_t product(const Shape& shape) {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

std::vector<std::ptrdiff_t> element_offsets(const Shape& shape, const Shape& strides, std::size_t element) {
  std::vector<std::ptrdiff_t> offsets(product(shape));
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) {
      offsets[i] += rest % shape[axis] * strides[axis] * static_cast<std::ptrdiff_t>(element);
    }
  }
  return offsets;
}

Scattered::Scattered(DType type, Shape sizes, const Choose& choose, Elements elements)
    : dtype(type), shape(std::move(sizes)), strides(shape.size()) {
  Shape order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[choose(i)]);
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  const auto before = static_cast<std::int64_t>(choose(4) == 0 ? choose(9) : 0);
  std::int64_t step = choose(3) == 0 ? 2 : 1, first = 0, last = 0;  // the ends, in elements from (0, ..., 0)
  for (const std::int64_t axis : order) {
    const auto i = static_cast<std::size_t>(axis);
    const bool backwards = choose(4) == 0;
    if (elements == Elements::may_meet && choose(4) == 0) step = static_cast<std::int64_t>(choose(3));
    strides[i] = backwards ? -step : step;
    (backwards ? first : last) += (shape[i] - 1) * strides[i];
    step *= shape[i] + static_cast<std::int64_t>(choose(4) == 0 ? choose(3) : 0);
  }
  const bool odd = before % 3 == 2;
  start = (before - first) * bytes + (odd ? 1 : 0);
  memory.assign(static_cast<std::size_t>(start + (last + 1) * bytes), kUntouched);
}

void Scattered::put(const std::byte* values) {
  const std::size_t bytes = size_of(dtype);
  for (const std::ptrdiff_t offset : element_offsets(shape, strides, bytes)) {
    std::memcpy(memory.data() + start + offset, values, bytes);
    values += bytes;
  }
}

std::vector<std::byte> Scattered::get() const {
  const std::size_t bytes = size_of(dtype);
  std::vector<std::byte> values;
  for (const std::ptrdiff_t offset : element_offsets(shape, strides, bytes)) {
    const std::byte* place = memory.data() + start + offset;
    values.insert(values.end(), place, place + bytes);
  }
  return values;
}

bool Scattered::only_elements_were_written() const {
  Scattered blank = *this;
  blank.put(std::vector<std::byte>(product(shape) * size_of(dtype), kUntouched).data());
  return std::all_of(blank.memory.begin(), blank.memory.end(), [](std::byte b) { return b == kUntouched; });
}

AxisChoice choose_axes(const Shape& shape, const Choose& choose) {
  AxisChoice choice;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool last_chance = i + 1 == shape.size() && choice.axes.empty();
    if (last_chance || choose(2) == 0) {
      const auto axis = static_cast<std::int64_t>(i);
      choice.axes.insert(choose(2) == 0 ? choice.axes.begin() : choice.axes.end(),
                         choose(2) == 0 ? axis : axis - static_cast<std::int64_t>(shape.size()));
      choice.normalized.push_back(shape[i]);
    } else {
      choice.outer.push_back(shape[i]);
    }
  }
  return choice;
}

std::vector<std::size_t> places_of_rows(const Shape& shape, const Shape& axes) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  std::vector<bool> normalized(shape.size());
  std::size_t cols = 1;
  for (const std::int64_t axis : axes) {
    const auto i = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    normalized[i] = true;
    cols *= static_cast<std::size_t>(shape[i]);
  }
  std::vector<std::size_t> result(product(shape));
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::size_t row = 0, col = 0, rest = i;
    std::size_t row_weight = 1, col_weight = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      const auto size = static_cast<std::size_t>(shape[axis]);
      std::size_t& index = normalized[axis] ? col : row;
      std::size_t& weight = normalized[axis] ? col_weight : row_weight;
      index += rest % size * weight;
      weight *= size;
      rest /= size;
    }
    result[row * cols + col] = i;
  }
  return result;
}

std::vector<std::byte> permuted(const std::vector<std::byte>& from, std::size_t bytes,
                                const std::vector<std::size_t>& order, bool back) {
  std::vector<std::byte> to(from.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t source = back ? i : order[i], target = back ? order[i] : i;
    std::memcpy(to.data() + target * bytes, from.data() + source * bytes, bytes);
  }
  return to;
}

}  // namespace evenorm::contracts
