// Families of short rows, and the changes that the climber makes. If the compiler could choose the order of draws, each
// draw has a statement of its own, so that a seed gives the same climb with every compiler.
#include "contracts/climb_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "contracts/accuracy.hpp"

namespace evenorm::contracts {
namespace {

int fraction_bits(DType dtype) {
  return dtype == DType::f64 ? 52 : dtype == DType::f32 ? 23 : dtype == DType::bf16 ? 7 : 10;
}

// The largest exponent, of either sign, that a type's numbers are given.
int reach(DType dtype) { return dtype == DType::f64 ? 1000 : dtype == DType::f16 ? 12 : 120; }

double power_of_two(int exponent) { return std::ldexp(1.0, exponent); }
int exponent_within(int span, Random& random) {
  return static_cast<int>(random.below(2 * static_cast<std::size_t>(span) + 1)) - span;
}
double sign(Random& random) { return random.next() % 2 == 0 ? 1 : -1; }

// Consecutive elements of an array. Values are kept finite.
class Elements {
 public:
  Elements(Array& values, std::size_t first, std::size_t size) : values_(values), first_(first), size_(size) {}

  std::size_t size() const { return size_; }
  DType dtype() const { return values_.dtype(); }
  double get(std::size_t i) const { return value_at(values_, first_ + i); }

  void put(std::size_t i, double value) {
    const double largest = largest_finite(dtype());
    if (value == value) values_.set(first_ + i, std::clamp(value, -largest, largest));
  }
  // Moves by this many places away from 0, or towards it, without changing the sign.
  void step(std::size_t i, std::int64_t places) {
    const std::size_t bytes = size_of(dtype());
    const std::uint64_t bits = bits_at(values_, first_ + i), sign_bit = std::uint64_t{1} << (8 * bytes - 1);
    const Array largest(dtype(), std::vector<double>{largest_finite(dtype())});
    const auto magnitude = static_cast<std::int64_t>(bits & ~sign_bit);
    const std::int64_t moved =
        std::clamp(magnitude + places, std::int64_t{0}, static_cast<std::int64_t>(bits_at(largest, 0)));
    const std::uint64_t result = static_cast<std::uint64_t>(moved) | (bits & sign_bit);
    std::memcpy(values_.data() + (first_ + i) * bytes, &result, bytes);
  }

 private:
  Array& values_;
  std::size_t first_, size_;
};

// --- families

using Family = void (*)(Elements, Random&);

void fill(Elements part, double value) {
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, value);
}

void zeros(Elements part, Random&) { fill(part, 0); }
void ones(Elements part, Random&) { fill(part, 1); }
void constant(Elements part, Random& random) { fill(part, random.normal()); }
void constant_of_any_magnitude(Elements part, Random& random) {
  const double side = sign(random), fraction = 1 + random.uniform();
  fill(part, side * fraction * power_of_two(exponent_within(reach(part.dtype()), random)));
}

void normal(Elements part, Random& random) {
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, random.normal());
}
void near_one(Elements part, Random& random) {
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, 1 + 0.25 * random.normal());
}

// 1 + gamma rounds or cancels.
void small(Elements part, Random& random) {
  const double scale = power_of_two(-static_cast<int>(random.below(24)));
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, scale * random.normal());
}
void near_minus_one(Elements part, Random& random) {
  const double scale = power_of_two(-static_cast<int>(random.below(24)));
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, -1 + scale * random.normal());
}

void ulps_apart(Elements part, Random& random) {
  constant(part, random);
  for (std::size_t i = 0; i < part.size(); ++i) part.step(i, static_cast<std::int64_t>(random.below(4)));
}
void constant_but_one(Elements part, Random& random) {
  constant(part, random);
  const std::int64_t places = random.next() % 2 == 0 ? 1 : -1;
  part.step(random.below(part.size()), places);
}

// Numbers just above a power of two, where a relative error of u is largest, and small numbers.
void above_powers_of_two(Elements part, Random& random) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (random.next() % 2 == 0) {
      const double side = sign(random);
      part.put(i, side * power_of_two(static_cast<int>(random.below(3))));
      part.step(i, static_cast<std::int64_t>(random.below(256)));
    } else {
      const double value = random.normal();
      part.put(i, value * power_of_two(-static_cast<int>(random.below(20))));
    }
  }
}

void far_from_zero(Elements part, Random& random) {
  const double side = sign(random), fraction = 1 + random.uniform();
  const double mean = side * fraction * power_of_two(static_cast<int>(random.below(24)));
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, mean + random.normal());
}

void outlier(Elements part, Random& random) {
  normal(part, random);
  const double side = sign(random), value = side * power_of_two(static_cast<int>(random.below(24)));
  part.put(random.below(part.size()), value);
}

// Two elements carry all of the variance, so that their xhat is far above its mean.
void two_outliers(Elements part, Random& random) {
  small(part, random);
  const double scale = 1 + random.uniform();
  part.put(random.below(part.size()), scale);
  part.put(random.below(part.size()), -scale);
}

void any_magnitude(Elements part, Random& random) {
  const double scale = power_of_two(exponent_within(reach(part.dtype()), random));
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, scale * random.normal());
}

void own_magnitudes(Elements part, Random& random) {
  const int span = random.next() % 2 == 0 ? 8 : reach(part.dtype());
  for (std::size_t i = 0; i < part.size(); ++i) {
    const double value = random.normal();
    part.put(i, value * power_of_two(exponent_within(span, random)));
  }
}

void subnormals(Elements part, Random& random) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    const double side = sign(random);
    part.put(i, side * static_cast<double>(random.below(64)) * smallest_subnormal(part.dtype()));
  }
}

void one_alone(Elements part, Random& random) {
  zeros(part, random);
  const double value = random.normal();
  part.put(random.below(part.size()), value);
}

constexpr Family kOfX[] = {
    normal,       normal,        above_powers_of_two, above_powers_of_two, ulps_apart, constant_but_one, outlier,
    two_outliers, far_from_zero, any_magnitude,       own_magnitudes,      subnormals, constant};
constexpr Family kOfGamma[] = {ones,           ones,          near_one,       near_one,
                               near_one,       small,         near_minus_one, constant_of_any_magnitude,
                               own_magnitudes, any_magnitude, zeros,          above_powers_of_two};
constexpr Family kOfBeta[] = {zeros, zeros, zeros, small, normal, any_magnitude};
constexpr Family kOfDy[] = {normal,         normal,    constant,      constant,   any_magnitude,
                            own_magnitudes, one_alone, far_from_zero, ulps_apart, above_powers_of_two};

template <std::size_t kFamilies>
void draw(const Family (&families)[kFamilies], Elements part, Random& random) {
  families[random.below(kFamilies)](part, random);
}

std::size_t draw_cols(Random& random) {
  const std::size_t which = random.below(20);
  if (which == 0) return 1;
  if (which <= 2) return 2 + random.below(16);
  return 2 + std::min({random.below(8), random.below(8), random.below(8)});
}

double fraction_and_exponent(int span, Random& random) {
  const double fraction = 1 + random.uniform();
  return fraction * power_of_two(exponent_within(span, random));
}

// A value near the variance, or any other.
double draw_eps(const Array& x, Random& random) {
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::fabs(value_at(x, i)));
  switch (random.below(8)) {
    case 0:
    case 1:
      return 0;
    case 2:
    case 3:
      return 1e-5;
    case 4:
      return fraction_and_exponent(1020, random);
    case 5:
      return fraction_and_exponent(250, random);
    default: {
      const double fraction = random.uniform();
      const double tuned = largest * largest * fraction * power_of_two(exponent_within(12, random));
      return std::isfinite(tuned) ? tuned : 0;
    }
  }
}

// Makes dy parallel to xhat, so that dx cancels.
void along(const Array& x, std::size_t first, Elements dy, Random& random) {
  double mean = 0, largest = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) mean += value_at(x, first + i) / static_cast<double>(dy.size());
  for (std::size_t i = 0; i < dy.size(); ++i) largest = std::max(largest, std::fabs(value_at(x, first + i) - mean));
  const double scale = largest > 0 ? random.normal() / largest : 0;
  for (std::size_t i = 0; i < dy.size(); ++i) dy.put(i, (value_at(x, first + i) - mean) * scale);
}

// --- changes

void change_element(Elements part, Random& random) {
  const std::size_t i = random.below(part.size());
  const double value = part.get(i);
  switch (random.below(10)) {
    case 0:
      return part.put(i, -value);
    case 1:
      return part.put(i, value * power_of_two(exponent_within(4, random)));
    case 2:
      return part.put(i, part.get(random.below(part.size())));
    case 3:
      return part.put(i, value * (1 + 0.5 * random.normal()));
    case 4: {  // to a nearby power of two
      int exponent = 0;
      std::frexp(value, &exponent);
      part.put(i, std::copysign(power_of_two(exponent - static_cast<int>(random.below(2))), value));
      return part.step(i, static_cast<std::int64_t>(random.below(64)));
    }
    default: {
      const std::size_t places =
          1 + random.below(std::size_t{1} << random.below(static_cast<std::size_t>(fraction_bits(part.dtype()))));
      return part.step(i, (random.next() % 2 == 0 ? 1 : -1) * static_cast<std::int64_t>(places));
    }
  }
}

// 1, up to this many places away.
double near_one_by(std::size_t places, Random& random) {
  const double change = random.normal();
  return 1 + change * power_of_two(-static_cast<int>(random.below(places)));
}

void change_all(Elements part, Random& random) {
  const double factor = near_one_by(20, random);
  double shift = random.next() % 4 == 0 ? random.normal() : 0;
  if (shift != 0) shift *= part.get(random.below(part.size()));
  for (std::size_t i = 0; i < part.size(); ++i) part.put(i, part.get(i) * factor + shift);
}

void change_eps(ShortRows& rows, Random& random) {
  double eps = rows.eps;
  switch (random.below(4)) {
    case 0:
      eps = draw_eps(rows.x, random);
      break;
    case 1:
      eps *= power_of_two(exponent_within(4, random));
      break;
    default:
      eps *= near_one_by(40, random);
  }
  if (eps >= 0 && std::isfinite(eps)) rows.eps = eps;
}

void change_array(Array& values, Random& random) {
  const Elements all(values, 0, values.size());
  if (random.below(12) == 0) return change_all(all, random);
  change_element(all, random);
}

}  // namespace

std::string hexadecimal(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::vector<std::string> hexadecimals(const Array& values) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < values.size(); ++i) texts.push_back(hexadecimal(value_at(values, i)));
  return texts;
}

std::string ShortRows::text() const {
  std::string text = std::to_string(cols) + " columns, eps " + hexadecimal(eps);
  const auto add = [&](const char* name, const Array& values) {
    if (values.empty()) return;
    text += std::string(", ") + name + " {";
    std::size_t i = 0;
    for (const std::string& number : hexadecimals(values)) text += (i++ == 0 ? "" : ", ") + number;
    text += "}";
  };
  add("x", x);
  add("weight", weight);
  add("bias", bias);
  add("dy", dy);
  return text;
}

ShortRows draw_rows(const Operation& op, Result result, Random& random) {
  ShortRows rows;
  rows.cols = draw_cols(random);
  const bool sums_rows = result == Result::dgamma || result == Result::dbeta;
  const std::size_t count = sums_rows ? 1 + random.below(8) : 1;
  rows.x = Array(op.x, count * rows.cols);
  if (is_gradient(result)) rows.dy = Array(op.y, rows.x.size());
  for (std::size_t first = 0; first < rows.x.size(); first += rows.cols) {
    draw(kOfX, {rows.x, first, rows.cols}, random);
    if (!is_gradient(result)) continue;
    const Elements dy(rows.dy, first, rows.cols);
    if (random.below(6) == 0) {
      along(rows.x, first, dy, random);
    } else {
      draw(kOfDy, dy, random);
    }
  }
  if (op.weight) {
    rows.weight = Array(*op.weight, rows.cols);
    draw(kOfGamma, {rows.weight, 0, rows.cols}, random);
  }
  if (op.bias && !is_gradient(result)) {
    rows.bias = Array(*op.bias, rows.cols);
    draw(kOfBeta, {rows.bias, 0, rows.cols}, random);
  }
  rows.eps = draw_eps(rows.x, random);
  return rows;
}

void change(ShortRows& rows, Random& random) {
  for (std::size_t changes = 1 + random.below(3); changes > 0; --changes) {
    const std::size_t which = random.below(10);
    if (which == 0) {
      change_eps(rows, random);
    } else if (which <= 2 && !rows.weight.empty()) {
      change_array(rows.weight, random);
    } else if (which == 3 && !rows.bias.empty()) {
      change_array(rows.bias, random);
    } else if (which >= 7 && !rows.dy.empty()) {
      change_array(rows.dy, random);
    } else {
      change_array(rows.x, random);
    }
  }
}

}  // namespace evenorm::contracts
