// The table of adversarial rows.
#include "contracts/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "reference/reference.hpp"

namespace evenorm::contracts {
namespace {

struct Limits {
  double largest, smallest_normal, smallest_subnormal;
};

Limits limits_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {std::numeric_limits<double>::max(), 0x1p-1022, 0x1p-1074};
    case DType::f32:
      return {std::numeric_limits<float>::max(), 0x1p-126, 0x1p-149};
    case DType::bf16:
      return {0x1.FEp127, 0x1p-126, 0x1p-133};
    default:
      return {65504, 0x1p-14, 0x1p-24};
  }
}

using Values = std::span<double>;
using Fill = std::function<void(Values, Random&, DType)>;

struct Generator {
  std::string name;
  double needs_up_to;    // the largest magnitude in the row; the type must hold it
  double needs_down_to;  // the smallest
  std::size_t needs_cols;
  Fill fill;
};

Fill normal(double mean, double deviation) {
  return [=](Values x, Random& random, DType) {
    for (double& v : x) v = mean + deviation * random.normal();
  };
}

// The outlier's column, counted from the row's start. The two largest values mean the middle and the end of the row.
constexpr std::size_t kMiddle = std::numeric_limits<std::size_t>::max() - 1;
constexpr std::size_t kLast = std::numeric_limits<std::size_t>::max();

Fill outlier(double magnitude, std::size_t place) {
  return [=](Values x, Random& random, DType dtype) {
    normal(0, 1)(x, random, dtype);
    x[place == kMiddle ? x.size() / 2 : place == kLast ? x.size() - 1 : place] = magnitude;
  };
}

Fill constant(double value) {
  return [=](Values x, Random&, DType) { std::fill(x.begin(), x.end(), value); };
}

// `value` rounded to the type.
double stored(DType dtype, double value) {
  const Array one(dtype, std::span<const double>(&value, 1));
  return static_cast<double>(reference::widen(dtype, one.data(), 1)[0]);
}

double next_below(DType dtype, double value) {
  std::uint64_t bits = reference::round_to(dtype, static_cast<reference::Real>(value)) - 1;
  return static_cast<double>(reference::widen(dtype, &bits, 1)[0]);
}

Fill one_ulp(double value) {
  return [=](Values x, Random&, DType dtype) {
    const double held = stored(dtype, std::min(value, largest_finite(dtype)));
    std::fill(x.begin(), x.end(), held);
    x[x.size() / 2] = next_below(dtype, held);
  };
}

// +-share of the largest finite number, with random signs.
Fill huge(double share) {
  return [=](Values x, Random& random, DType dtype) {
    for (double& v : x) v = (random.next() % 2 == 0 ? share : -share) * largest_finite(dtype);
  };
}

void one_huge(Values x, Random&, DType dtype) {
  std::fill(x.begin(), x.end(), -largest_finite(dtype));
  x[x.size() / 2] = largest_finite(dtype);
}

void subnormal(Values x, Random& random, DType dtype) {
  const double steps = smallest_normal(dtype) / smallest_subnormal(dtype);
  for (double& v : x) v = std::floor((2 * random.uniform() - 1) * steps) * smallest_subnormal(dtype);
}

void few_subnormals(Values x, Random& random, DType dtype) {
  for (double& v : x) v = static_cast<double>(random.below(4)) * smallest_subnormal(dtype);
}

void alternating(Values x, Random&, DType) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 1 : -1;
}

// Magnitudes over many binades, with either sign.
void wide_exponents(Values x, Random& random, DType dtype) {
  const std::size_t places = dtype == DType::f16 ? 12 : 100;
  for (double& v : x) {
    const int exponent = static_cast<int>(random.below(2 * places)) - static_cast<int>(places);
    const double side = random.next() % 2 == 0 ? 1.0 : -1.0;
    v = side * std::ldexp(1 + random.uniform(), exponent);
  }
}

// Each block of 1024 columns has its own mean, far from the others.
void steps(Values x, Random& random, DType) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1000.0 * static_cast<double>(i / 1024 % 17) + random.normal();
}

// The first columns are far from all others.
void far_start(Values x, Random& random, DType) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i < 32 ? 1e4 : 0) + random.normal();
}

void ramp(Values x, Random&, DType) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i + 1) / static_cast<double>(x.size());
}

void add_outliers(std::vector<Generator>& table) {
  struct Place {
    const char* name;
    std::size_t column, needs_cols;
  };
  constexpr Place kPlaces[] = {{"first", 0, 2},   {"at_1", 1, 2},         {"at_5", 5, 6},    {"at_31", 31, 32},
                               {"at_33", 33, 34}, {"middle", kMiddle, 8}, {"last", kLast, 2}};
  struct Magnitude {
    const char* name;
    double value;
  };
  for (const Magnitude& m : {Magnitude{"1e6", 1e6}, {"4096", 4096}, {"10000", 10000}}) {
    for (const Place& p : kPlaces) {
      table.push_back(
          {std::string("outlier_") + m.name + "_" + p.name, m.value, 0, p.needs_cols, outlier(m.value, p.column)});
    }
  }
}

std::vector<Generator> make_table() {
  constexpr double kAny = 1;
  std::vector<Generator> table = {
      {"normal", kAny, 0, 1, normal(0, 1)},
      {"mean_1e2", kAny, 0, 1, normal(1e2, 1)},
      {"mean_250", kAny, 0, 1, normal(250, 1)},  // just below f32's limit for a second pass
      {"mean_300", kAny, 0, 1, normal(300, 1)},  // just above it
      {"mean_1e4", 2e4, 0, 1, normal(1e4, 1)},
      {"mean_1e6", 2e6, 0, 1, normal(1e6, 1)},
      {"mean_-1e6_std_1e3", 2e6, 0, 1, normal(-1e6, 1e3)},
      {"std_1e4", kAny, 0, 1, normal(0, 1e4)},
      {"std_1e19", 1e21, 0, 1, normal(0, 1e19)},
      {"std_1e30", 1e32, 0, 1, normal(0, 1e30)},
      {"std_1e150", 1e152, 0, 1, normal(0, 1e150)},
      {"std_1e300", 1e302, 0, 1, normal(0, 1e300)},
      {"std_1e-6", kAny, 1e-7, 1, normal(0, 1e-6)},
      {"std_1e-18", kAny, 1e-19, 1, normal(0, 1e-18)},
      {"std_1e-30", kAny, 1e-36, 1, normal(0, 1e-30)},
      {"std_1e-125", kAny, 1e-130, 1, normal(0, 1e-125)},
      {"std_1e-300", kAny, 1e-301, 1, normal(0, 1e-300)},
      {"huge_half", kAny, 0, 1, huge(0.5)},
      {"huge", kAny, 0, 1, huge(1)},
      {"one_huge", kAny, 0, 1, one_huge},
      {"subnormal", kAny, 0, 1, subnormal},
      {"few_subnormals", kAny, 0, 1, few_subnormals},
      {"wide_exponents", kAny, 0, 1, wide_exponents},
      {"alternating", kAny, 0, 1, alternating},
      {"steps", 2e4, 0, 1, steps},
      {"far_start", 2e4, 0, 1, far_start},
      {"ramp", kAny, 0, 1, ramp},
      {"zeros", kAny, 0, 1, constant(0)},
      {"constant_0.1", kAny, 0, 1, constant(0.1)},
      {"constant_-7e4", 7.1e4, 0, 1, constant(-7e4)},
      {"constant_max", kAny, 0, 1, [](Values x, Random& r, DType t) { constant(largest_finite(t))(x, r, t); }},
      {"constant_subnormal", kAny, 0, 1,
       [](Values x, Random& r, DType t) { constant(smallest_subnormal(t))(x, r, t); }},
      {"one_ulp_0.1", kAny, 0, 2, one_ulp(0.1)},
      {"one_ulp_1e4", kAny, 0, 2, one_ulp(1e4)},
      {"one_ulp_max", kAny, 0, 2, one_ulp(std::numeric_limits<double>::max())},
  };
  add_outliers(table);
  return table;
}

const std::vector<Generator>& table() {
  static const std::vector<Generator> generators = make_table();
  return generators;
}

bool holds(const Generator& g, DType dtype, std::size_t cols) {
  const bool small_enough = g.needs_down_to == 0 || g.needs_down_to >= smallest_subnormal(dtype);
  return g.needs_up_to <= largest_finite(dtype) && small_enough && cols >= g.needs_cols;
}

std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return h;
}

}  // namespace

std::uint64_t Random::next() {
  state_ += 0x9E3779B97F4A7C15;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::normal() {
  // Adds twelve 16-bit uniforms from three words. A thirteenth uniform fills in the bits below them.
  std::uint64_t sum = 0;
  for (int word = 0; word < 3; ++word) {
    const std::uint64_t bits = next();
    sum += (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
  }
  return (static_cast<double>(sum) + uniform() + 5.5) * 0x1p-16 - 6;
}

std::size_t Random::below(std::size_t n) { return static_cast<std::size_t>(uniform() * static_cast<double>(n)); }

Array::Array(DType dtype, std::span<const double> values) : Array(dtype, values.size()) {
  for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
}

void Array::set(std::size_t i, double value) {
  reference::store(dtype_, bytes_.data(), i, static_cast<reference::Real>(value));
}

void Array::append(const Array& other) {
  if (other.dtype_ != dtype_) throw std::invalid_argument("append: types differ");
  bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
}

Array Array::part(std::size_t first, std::size_t count) const {
  Array result(dtype_, count);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(first * size_of(dtype_)), count * size_of(dtype_),
              result.bytes_.begin());
  return result;
}

double largest_finite(DType dtype) { return limits_of(dtype).largest; }
double smallest_normal(DType dtype) { return limits_of(dtype).smallest_normal; }
double smallest_subnormal(DType dtype) { return limits_of(dtype).smallest_subnormal; }

std::vector<std::string_view> input_names(DType dtype, std::size_t cols) {
  std::vector<std::string_view> names;
  for (const Generator& g : table()) {
    if (holds(g, dtype, cols)) names.emplace_back(g.name);
  }
  return names;
}

Array make_input(std::string_view name, DType dtype, std::size_t cols, std::uint64_t seed) {
  for (const Generator& g : table()) {
    if (g.name != name) continue;
    if (!holds(g, dtype, cols)) break;
    std::vector<double> values(cols);
    Random random(hash(name) ^ (seed * 0x9E3779B97F4A7C15) ^ cols);
    g.fill(values, random, dtype);
    // Clamps values that would become infinite in this type.
    for (double& v : values) v = std::clamp(v, -largest_finite(dtype), largest_finite(dtype));
    return {dtype, values};
  }
  throw std::invalid_argument("there is no input '" + std::string(name) + "' for this type and number of columns");
}

Array make_input_or(std::string_view otherwise, std::string_view name, DType dtype, std::size_t cols,
                    std::uint64_t seed) {
  const std::vector<std::string_view> known = input_names(dtype, cols);
  return make_input(std::ranges::find(known, name) != known.end() ? name : otherwise, dtype, cols, seed);
}

Array make_weight(DType dtype, std::size_t cols, std::uint64_t seed) {
  Random random(seed ^ (cols << 20));
  std::vector<double> values(cols);
  for (double& v : values) v = 1 + 0.5 * random.normal();
  if (cols > 2) values[cols / 3] = 0;
  return {dtype, values};
}

Array make_bias(DType dtype, std::size_t cols, std::uint64_t seed) {
  Random random(seed ^ (cols << 20));
  std::vector<double> values(cols);
  for (double& v : values) v = 0.25 * random.normal();
  if (cols > 2) values[cols / 2] = 0;
  return {dtype, values};
}

}  // namespace evenorm::contracts
