// A matrix in a chosen memory layout, which the harnesses pass to the library. This file does not depend on norms.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::contracts {

enum class Order {
  rows_first,     // each row dense
  columns_apart,  // each row with gaps between its elements
  columns_first,  // each column dense
  reversed,       // dense rows, backwards: last row first, last element first
};

// Rows in a block of memory. All other bytes of the block have a known value, to detect stray writes.
class Field {
 public:
  Field(DType dtype, std::size_t rows, std::size_t cols, std::size_t offset, std::size_t gap, bool odd,
        Order order = Order::rows_first)
      : element_(size_of(dtype)), rows_(rows), cols_(cols), order_(order) {
    const bool columns_first = order == Order::columns_first;
    const std::size_t step = order == Order::columns_apart ? 2 : 1;
    const std::size_t pitch = (columns_first ? rows : step * cols) + gap, lines = columns_first ? cols : rows;
    memory_.assign(2 * kMargin + kAlignment + (offset + lines * pitch) * element_, kUntouched);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kMargin);
    start_ = kMargin + (kAlignment - address % kAlignment) % kAlignment + offset * element_ + (odd ? 1 : 0);
    row_step_ = columns_first ? 1 : static_cast<std::ptrdiff_t>(pitch);
    col_step_ = static_cast<std::ptrdiff_t>(columns_first ? pitch : step);
    if (order == Order::reversed && rows * cols != 0) {
      start_ += ((rows - 1) * pitch + cols - 1) * element_;
      row_step_ = -row_step_;
      col_step_ = -col_step_;
    }
  }

  std::byte* data() { return memory_.data() + start_; }
  std::array<std::int64_t, 2> strides() const { return {row_step_, col_step_}; }

  void put(const std::byte* values) {
    move([&](std::byte* place, std::size_t i, std::size_t bytes) { std::memcpy(place, values + i, bytes); });
  }
  void get(std::byte* values) {
    move([&](std::byte* place, std::size_t i, std::size_t bytes) { std::memcpy(values + i, place, bytes); });
  }

  bool surroundings_untouched() const {
    Field blank = *this;
    blank.move([](std::byte* place, std::size_t, std::size_t bytes) { std::fill_n(place, bytes, kUntouched); });
    return std::all_of(blank.memory_.begin(), blank.memory_.end(), [](std::byte b) { return b == kUntouched; });
  }

  bool operator==(const Field& other) const { return memory_ == other.memory_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kMargin = 128;  // bytes before and after
  static constexpr std::byte kUntouched{0xA5};

  // Calls move(where, bytes of the values so far, number of bytes) for each dense row, or else for each element.
  template <class Move>
  void move(const Move& move) {
    const std::size_t run = order_ == Order::rows_first ? cols_ : 1;
    for (std::size_t r = 0; r < rows_; ++r) {
      for (std::size_t c = 0; c < cols_; c += run) {
        const std::ptrdiff_t steps =
            static_cast<std::ptrdiff_t>(r) * row_step_ + static_cast<std::ptrdiff_t>(c) * col_step_;
        move(data() + steps * static_cast<std::ptrdiff_t>(element_), (r * cols_ + c) * element_, run * element_);
      }
    }
  }

  std::size_t element_, rows_, cols_;
  Order order_;
  std::ptrdiff_t row_step_ = 0, col_step_ = 0;
  std::vector<std::byte> memory_;
  std::size_t start_ = 0;
};

}  // namespace evenorm::contracts
