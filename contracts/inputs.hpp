// Named adversarial rows with the same bits on every machine: they use no functions whose results differ between
// libraries. This file only depends on the types of the library under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::contracts {

// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();
  double uniform();  // [0, 1)
  double normal();   // mean 0, variance 1, within +-6: a sum of twelve uniforms
  std::size_t below(std::size_t n);

 private:
  std::uint64_t state_;
};

// Contiguous values of one storage type.
class Array {
 public:
  Array() = default;
  Array(DType dtype, std::size_t size) : dtype_(dtype), bytes_(size * size_of(dtype)) {}
  Array(DType dtype, std::span<const double> values);  // each value rounded to nearest even

  DType dtype() const { return dtype_; }
  std::size_t size() const { return bytes_.size() / size_of(dtype_); }
  bool empty() const { return bytes_.empty(); }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  void set(std::size_t i, double value);
  void append(const Array& other);  // of the same type
  Array part(std::size_t first, std::size_t count) const;

 private:
  DType dtype_ = DType::f32;
  std::vector<std::byte> bytes_;
};

double largest_finite(DType dtype);
double smallest_normal(DType dtype);
double smallest_subnormal(DType dtype);

// The inputs that a type can hold, for this number of columns.
std::vector<std::string_view> input_names(DType dtype, std::size_t cols);

// Makes the named row. Throws std::invalid_argument if there is no such input.
Array make_input(std::string_view name, DType dtype, std::size_t cols, std::uint64_t seed = 1);
// The row `otherwise` where the type cannot hold the named one.
Array make_input_or(std::string_view otherwise, std::string_view name, DType dtype, std::size_t cols,
                    std::uint64_t seed);

// gamma around 1 and beta around 0, as training leaves them. Both signs occur, and one exact zero.
Array make_weight(DType dtype, std::size_t cols, std::uint64_t seed = 2);
Array make_bias(DType dtype, std::size_t cols, std::uint64_t seed = 3);

}  // namespace evenorm::contracts
