// weight and bias that are broadcast to x: the bits of separate passes for rows of one weight, and sums over all that
// was broadcast. The expected results come from passes with one weight for all rows. The bits of sums over columns are
// those of gradients_model.py: test_numpy_gradients_model.py.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include "contracts/harness.hpp"
#include "contracts/scattered.hpp"
#include "plan/spec.hpp"
#include "problem/shapes.hpp"
#include "support/guarded.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {
namespace {

using contracts::product;
using contracts::Shape;
using Index = std::vector<std::size_t>;

template <class T>
std::vector<T> random_numbers(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<T> numbers(n);
  for (T& number : numbers) number = static_cast<T>(normal(engine));
  return numbers;
}

// Multiplies by powers of two, so that sums in f64 depend on the order of f32 terms.
void spread(std::vector<float>& numbers) {
  std::mt19937 engine(5);
  for (float& number : numbers) number = std::ldexp(number, static_cast<int>(engine() % 61) - 30);
}
void spread(std::vector<double>&) {}

template <class T>
ConstTensor input(const std::vector<T>& numbers, const Shape& shape) {
  return {numbers.data(), dtype_of<T>, shape, {}};
}
template <class T>
Tensor output(std::vector<T>& numbers, const Shape& shape) {
  return {numbers.data(), dtype_of<T>, shape, {}};
}

// x of `shape`, whose last `normalized` axes are normalised, and a weight and bias of `parameter`, which are broadcast.
struct Case {
  Shape shape, parameter;
  std::size_t normalized;
  Kind kind = Kind::layer;

  Shape tail() const { return {shape.end() - static_cast<std::ptrdiff_t>(normalized), shape.end()}; }
  std::size_t cols() const { return product(tail()); }
  std::size_t rows() const { return product(shape) / cols(); }

  bool has_shared_columns() const {
    return !std::equal(parameter.end() - static_cast<std::ptrdiff_t>(normalized), parameter.end(), tail().begin());
  }

  // How many neighbouring columns share an element.
  std::size_t run() const {
    std::size_t run = 1;
    for (std::size_t axis = shape.size(); axis-- > shape.size() - normalized && parameter[axis] == 1;) {
      run *= static_cast<std::size_t>(shape[axis]);
    }
    return run;
  }

  // The parameter's element for an element of x.
  std::size_t element(std::size_t index) const {
    std::size_t element = 0, step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      const std::size_t size = static_cast<std::size_t>(shape[axis]), at = index % size;
      index /= size;
      if (parameter[axis] == 1) continue;
      element += at * step;
      step *= size;
    }
    return element;
  }
  // Rows with the same parameters, in order.
  std::vector<Index> sets() const {
    std::vector<Index> all;
    for (std::size_t row = 0; row < rows(); ++row) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const Index& set) {
        return element(set.front() * cols()) == element(row * cols());
      });
      same == all.end() ? all.push_back({row}) : same->push_back(row);
    }
    return all;
  }
};

template <class T>
struct Results {
  std::vector<T> y, dx;
  std::vector<double> mean, rstd;
  std::vector<double> dweight, dbias;  // f64, so that f32 arithmetic shows its sums unrounded

  Results(std::size_t n, std::size_t rows, std::size_t elements)
      : y(n), dx(n), mean(rows), rstd(rows), dweight(elements), dbias(elements) {}
};

template <class T>
struct Inputs {
  std::vector<T> x, dy, weight, bias;

  explicit Inputs(const Case& c)
      : x(random_numbers<T>(product(c.shape), 1)),
        dy(random_numbers<T>(product(c.shape), 2)),
        weight(random_numbers<T>(product(c.parameter), 3)),
        bias(random_numbers<T>(product(c.parameter), 4)) {
    spread(dy);
  }
};

template <class T>
Results<T> run_passes(const Inputs<T>& in, Kind kind, const Shape& shape, const Shape& tail, const Shape& parameter,
                      const Executor& executor, const Shape& strides = {}) {
  const Shape outer(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(tail.size()));
  Results<T> out(in.x.size(), product(outer), product(parameter));
  Forward f;
  f.kind = kind;
  f.x = input(in.x, shape);
  f.y = output(out.y, shape);
  f.x.strides = f.y.strides = strides;
  f.normalized_shape = tail;
  f.weight = input(in.weight, parameter);
  f.bias = input(in.bias, parameter);
  if (kind == Kind::layer) f.mean = output(out.mean, outer);
  f.rstd = output(out.rstd, outer);
  run(f, executor);
  Backward b;
  b.kind = kind;
  b.x = f.x;
  b.dy = input(in.dy, shape);
  b.dy.strides = strides;
  b.normalized_shape = tail;
  b.weight = f.weight;
  if (kind == Kind::layer) b.mean = input(out.mean, outer);
  b.rstd = input(out.rstd, outer);
  b.dx = output(out.dx, shape);
  b.dx.strides = strides;
  b.dweight = output(out.dweight, parameter);
  b.dbias = output(out.dbias, parameter);
  run(b, executor);
  return out;
}

// What results may be off by: 0, unless columns share elements. Rows that are divided into runs have other bits.
struct Errors {
  std::vector<double> y, dx, dweight, dbias, statistics;  // the last relative to rstd, or to the deviation
};

template <class T>
Results<T> expected(const Case& c, const Inputs<T>& in, Errors& errors) {
  constexpr double kUnit = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-50;
  const std::size_t cols = c.cols(), elements = product(c.parameter);
  Results<T> all(in.x.size(), c.rows(), elements);
  errors = {std::vector<double>(in.x.size()), std::vector<double>(in.x.size()), std::vector<double>(elements),
            std::vector<double>(elements), std::vector<double>(c.rows())};
  const bool has_runs = c.run() >= internal::kLeastRun && c.run() < cols;
  for (const Index& set : c.sets()) {
    Inputs<T> one = in;
    one.x.resize(set.size() * cols);
    one.dy.resize(set.size() * cols);
    one.weight.resize(cols);
    one.bias.resize(cols);
    for (std::size_t r = 0; r < set.size(); ++r) {
      std::copy_n(&in.x[set[r] * cols], cols, &one.x[r * cols]);
      std::copy_n(&in.dy[set[r] * cols], cols, &one.dy[r * cols]);
    }
    for (std::size_t col = 0; col < cols; ++col) {
      one.weight[col] = in.weight[c.element(set[0] * cols + col)];
      one.bias[col] = in.bias[c.element(set[0] * cols + col)];
    }
    const Shape flat{static_cast<std::int64_t>(set.size()), static_cast<std::int64_t>(cols)}, tail{flat[1]};
    const Results<T> part = run_passes(one, c.kind, flat, tail, tail, {});
    for (std::size_t r = 0; r < set.size(); ++r) {
      std::copy_n(&part.y[r * cols], cols, &all.y[set[r] * cols]);
      std::copy_n(&part.dx[r * cols], cols, &all.dx[set[r] * cols]);
      double largest = 0;
      for (std::size_t col = 0; col < cols; ++col) {
        largest = std::max(largest, std::abs(static_cast<double>(one.dy[r * cols + col] * one.weight[col])));
      }
      const double of_row = c.run() < internal::kLeastRun ? 0 : 256 * kUnit * part.rstd[r] * largest;
      std::fill_n(&errors.dx[set[r] * cols], cols, of_row);
      if (has_runs) errors.statistics[set[r]] = 0x1p-40;
      for (std::size_t col = 0; has_runs && col < cols; ++col) {
        const double y = std::abs(static_cast<double>(part.y[r * cols + col]));
        errors.y[set[r] * cols + col] = 8 * kUnit * (y + std::abs(static_cast<double>(one.bias[col])));
      }
      all.mean[set[r]] = part.mean[r];
      all.rstd[set[r]] = part.rstd[r];
    }
    for (std::size_t col = 0; col < cols; ++col) {
      const std::size_t element = c.element(set[0] * cols + col);
      all.dweight[element] += part.dweight[col];
      all.dbias[element] += part.dbias[col];
      for (std::size_t r = 0; r < set.size() && c.has_shared_columns(); ++r) {
        const double x = one.x[r * cols + col], mean = c.kind == Kind::layer ? part.mean[r] : 0;
        const double dy = std::abs(static_cast<double>(one.dy[r * cols + col]));
        errors.dweight[element] += 16 * kUnit * dy * (std::abs((x - mean) * part.rstd[r]) + 0x1p-20);
        errors.dbias[element] += 8 * kUnit * dy;
      }
    }
  }
  return all;
}

const std::vector<Case> kCases = {
    {{4, 6, 40}, {4, 1, 40}, 1},                       // adaptive layer norm
    {{4, 6, 40}, {1, 6, 40}, 1},                       // sets of rows that are not neighbours
    {{4, 6, 40}, {4, 6, 40}, 1},                       // a weight of x's shape
    {{3, 300, 33}, {3, 1, 33}, 1, Kind::rms},          // several row blocks
    {{2, 3, 2500}, {2, 1, 1}, 1},                      // one scale for a row
    {{2, 4, 5, 7, 6}, {1, 4, 5, 1, 1}, 3},             // group norm
    {{2, 4, 3, 30, 30}, {1, 4, 3, 1, 1}, 3},           // of several blocks, which columns of one channel cross
    {{1, 2, 3, 2048}, {1, 2, 3, 1}, 2},                // of several blocks for each channel
    {{3, 5, 49}, {1, 5, 1}, 1},                        // instance norm
    {{2, 3, 4, 5, 6}, {2, 1, 1, 5, 1}, 3, Kind::rms},  // columns that share elements on both sides
    {{3, 2, 7, 5}, {1, 2, 1, 5}, 2},                   // and in the middle
    {{5, 4, 3}, {1, 1, 1}, 2},                         // no sets, one element
    {{2, 3, 4, 2, 300}, {1, 1, 4, 1, 1}, 4},           // runs whose elements are shared by others, too
    {{2, 2, 40000}, {2, 1, 40000}, 1},                 // rows by parts, and gradients in two steps
    {{60, 16, 320}, {60, 1, 320}, 1},                  // shares of sets are tasks
    {{9, 150, 33}, {9, 1, 33}, 1, Kind::rms},          // of several row blocks
    {{70, 3, 1500}, {70, 1, 1500}, 1},                 // which threads could take in two steps
    {{4, 90, 200}, {1, 90, 1}, 1},                     // whose columns share elements
    {{5, 40, 300}, {1, 40, 1}, 1},                     // runs of many sets
};

template <class T>
void try_case(const Case& c) {
  const Inputs<T> in(c);
  Errors errors;
  const Results<T> want = expected(c, in, errors), alone = run_passes(in, c.kind, c.shape, c.tail(), c.parameter, {});
  for (const Executor& executor : {pool_executor(1), pool_executor(4), contracts::reversed_executor(7)}) {
    const Results<T> got = run_passes(in, c.kind, c.shape, c.tail(), c.parameter, executor);
    const std::string where = internal::text_of(c.shape) + " by " + internal::text_of(c.parameter);
    EXPECT_EQ(got.y, alone.y) << where;
    EXPECT_EQ(got.dx, alone.dx) << where;
    EXPECT_EQ(got.mean, alone.mean) << where;
    EXPECT_EQ(got.rstd, alone.rstd) << where;
    for (std::size_t i = 0; i < want.dx.size(); ++i) {
      EXPECT_NEAR(got.y[i], want.y[i], errors.y[i]) << where;
      EXPECT_NEAR(got.dx[i], want.dx[i], errors.dx[i]) << where;
    }
    for (std::size_t i = 0; i < want.rstd.size(); ++i) {
      EXPECT_NEAR(got.mean[i], want.mean[i], errors.statistics[i] / want.rstd[i]) << where;
      EXPECT_NEAR(got.rstd[i], want.rstd[i], errors.statistics[i] * want.rstd[i]) << where;
    }
    EXPECT_EQ(got.dweight, alone.dweight) << where;
    EXPECT_EQ(got.dbias, alone.dbias) << where;
    for (std::size_t i = 0; i < want.dweight.size(); ++i) {
      EXPECT_NEAR(got.dweight[i], want.dweight[i], errors.dweight[i]) << where;
      EXPECT_NEAR(got.dbias[i], want.dbias[i], errors.dbias[i]) << where;
    }
  }
}

TEST(Broadcast, HasTheBitsOfPassesForRowsOfOneWeight) {
  for (const Case& c : kCases) {
    try_case<float>(c);
    try_case<double>(c);
  }
}

// --- the statistics of rows of runs, as docs/numerics.md specifies them, for f32 without a second pass

struct Part {
  double count, mean, m2;
};
Part join(const Part& a, const Part& b) {
  const double count = a.count + b.count, weight = b.count / count, delta = b.mean - a.mean;
  return {count, a.mean + delta * weight, (a.m2 + b.m2) + delta * delta * (a.count * weight)};
}
Part tree(const Part* parts, std::size_t n) {
  if (n == 1) return parts[0];
  const std::size_t left = std::bit_floor(n - 1);
  return join(tree(parts, left), tree(parts + left, n - left));
}
Part moments_of(const float* x, std::size_t n) {
  double s[16] = {}, q[16] = {};
  for (std::size_t i = 0; i < n; ++i) {
    s[i % 16] += x[i];
    q[i % 16] += static_cast<double>(x[i]) * x[i];
  }
  for (std::size_t step = 8; step != 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) s[l] += s[l + step], q[l] += q[l + step];
  }
  const auto count = static_cast<double>(n);
  return {count, s[0] / count, q[0] - s[0] * (s[0] * (1 / count))};
}
Part moments_of_row(const float* x, std::size_t cols, std::size_t run) {
  std::vector<Part> runs;
  for (std::size_t first = 0; first < cols; first += run) {
    std::vector<Part> blocks;
    for (std::size_t c = 0; c < run; c += 1024)
      blocks.push_back(moments_of(x + first + c, std::min<std::size_t>(1024, run - c)));
    runs.push_back(tree(blocks.data(), blocks.size()));
  }
  return tree(runs.data(), runs.size());
}

TEST(Broadcast, JoinsTheMomentsOfRuns) {
  for (const std::int64_t lines : {2, 3, 7, 64, 65, 130, 200}) {
    for (const std::int64_t positions : {15, 16, 17, 49, 1024, 1100, 3000}) {
      if (lines * positions > 70000) continue;
      const Case c{{2, lines, positions}, {1, lines, 1}, 2};
      Inputs<float> in(c);
      spread(in.x);
      const auto run = static_cast<std::size_t>(positions);
      const Results<float> got = run_passes(in, c.kind, c.shape, c.tail(), c.parameter, pool_executor(2));
      for (std::size_t row = 0; row < 2; ++row) {
        const Part want = moments_of_row(&in.x[row * c.cols()], c.cols(), run < internal::kLeastRun ? c.cols() : run);
        EXPECT_EQ(got.mean[row], want.mean) << lines << " runs of " << run;
        EXPECT_EQ(got.rstd[row], 1 / std::sqrt(want.m2 * (1 / want.count) + 1e-5)) << lines << " runs of " << run;
      }
    }
  }
}

// Rows of groups (N, G, C / G, positions) whose channels lie side by side in memory.
struct Groups {
  std::int64_t samples, groups, channels, positions;
  Kind kind = Kind::layer;

  Shape shape() const { return {samples, groups, channels, positions}; }
  Shape parameter() const { return {1, groups, channels, 1}; }
  Shape strides() const { return {positions * groups * channels, channels, 1, groups * channels}; }
};

// The elements of a tensor of a shape as they lie in memory with these strides. back: the reverse.
template <class T>
std::vector<T> moved(const std::vector<T>& from, const Groups& g, bool back) {
  std::vector<T> to(from.size());
  const Shape shape = g.shape(), strides = g.strides();
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t index = i, place = 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      const auto size = static_cast<std::size_t>(shape[axis]);
      place += index % size * static_cast<std::size_t>(strides[axis]);
      index /= size;
    }
    back ? to[i] = from[place] : to[place] = from[i];
  }
  return to;
}

const std::vector<Groups> kGroups = {
    {2, 3, 1, 49},    {2, 20, 1, 1040}, {3, 4, 2, 3136}, {2, 8, 10, 144},  {2, 4, 10, 1024},
    {2, 2, 16, 2064}, {1, 5, 16, 196},  {2, 40, 2, 400}, {2, 3, 33, 272},  {2, 4, 16, 528, Kind::rms},
    {3, 1, 33, 1296}, {1, 2, 300, 160}, {1, 6, 3, 9232}, {1, 2, 10, 1157}, {1, 3, 33, 289},
    {1, 3, 16, 256},  {1, 5, 8, 129},   {1, 3, 8, 2080},
};

// y, which takes x's place if it is in place.
template <class U>
std::vector<U> normalised(const Groups& g, DType dtype, std::vector<U> x, const Shape& strides, bool in_place) {
  const Shape shape = g.shape(), parameter = g.parameter(), tail{g.channels, g.positions};
  const std::vector<float> weight = random_numbers<float>(product(parameter), 3);
  std::vector<U> y(x.size());
  Forward f;
  f.kind = g.kind;
  f.x = {x.data(), dtype, shape, strides};
  f.y = {in_place ? x.data() : y.data(), dtype, shape, strides};
  f.normalized_shape = tail;
  f.weight = input(weight, parameter);
  run(f);
  return in_place ? x : y;
}
template <class U>
void try_in_place(const Groups& g, DType dtype, const std::vector<U>& x) {
  const std::vector<U> want = normalised(g, dtype, x, {}, false), last = moved(x, g, false);
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(moved(normalised(g, dtype, last, g.strides(), in_place), g, true), want) << internal::text_of(g.shape());
  }
}

using Halves = std::vector<std::uint16_t>;

Halves halves_of(const std::vector<float>& numbers) {
  Halves halves(numbers.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(numbers[i]) >> 16U);
  }
  return halves;
}

Halves dx_of(const Groups& g, const Halves& x, const Halves& dy, const Shape& strides) {
  const Shape shape = g.shape(), parameter = g.parameter(), tail{g.channels, g.positions};
  const std::vector<float> weight = random_numbers<float>(product(parameter), 3);
  Halves dx(x.size());
  const GuardedMemory guarded_x(std::as_bytes(std::span(x)), Guard::after);
  const GuardedMemory guarded_dy(std::as_bytes(std::span(dy)), Guard::after);
  Backward b;
  b.kind = g.kind;
  b.x = {guarded_x.data(), DType::bf16, shape, strides};
  b.dy = {guarded_dy.data(), DType::bf16, shape, strides};
  b.dx = {dx.data(), DType::bf16, shape, strides};
  b.normalized_shape = tail;
  b.weight = input(weight, parameter);
  run(b);
  return dx;
}
void try_gradients(const Groups& g, const Halves& x, const Halves& dy) {
  const Halves last = dx_of(g, moved(x, g, false), moved(dy, g, false), g.strides());
  EXPECT_EQ(moved(last, g, true), dx_of(g, x, dy, {})) << internal::text_of(g.shape());
}

TEST(Broadcast, HasTheBitsOfContiguousChannelsWithChannelsLast) {
  for (const Groups& g : kGroups) {
    Inputs<float> in(Case{g.shape(), g.parameter(), 2, g.kind});
    if (g.samples != 3) spread(in.x);  // else sums of squares would be exact in any order
    const auto cols = static_cast<std::ptrdiff_t>(product(Shape{g.channels, g.positions}));
    if (g.samples == 3) {  // rows that need a second pass or are out of range
      std::for_each(in.x.begin(), in.x.begin() + cols, [](float& x) { x += 3e4F; });
      std::for_each(in.x.end() - cols, in.x.end(), [](float& x) { x *= 1e32F; });
      std::fill_n(in.dy.begin(), g.positions + 1, 0.0F);  // a channel whose sums are found anew
    }
    try_in_place(g, DType::f32, in.x);
    const Halves halves = halves_of(in.x);
    try_in_place(g, DType::bf16, halves);
    Halves dy = halves_of(in.dy);
    std::fill_n(dy.begin(), g.positions, std::uint16_t{0});
    try_gradients(g, halves, dy);
    Inputs<float> last = in;
    last.x = moved(in.x, g, false);
    last.dy = moved(in.dy, g, false);
    const Shape shape = g.shape(), strides = g.strides(), tail{g.channels, g.positions};
    const Results<float> want = run_passes(in, g.kind, shape, tail, g.parameter(), {});
    for (const std::size_t threads : {1U, 4U}) {
      const Results<float> got = run_passes(last, g.kind, shape, tail, g.parameter(), pool_executor(threads), strides);
      const std::string where = internal::text_of(shape) + " on " + std::to_string(threads) + " threads";
      EXPECT_EQ(moved(got.y, g, true), want.y) << where;
      EXPECT_EQ(moved(got.dx, g, true), want.dx) << where;
      EXPECT_EQ(got.mean, want.mean) << where;
      EXPECT_EQ(got.rstd, want.rstd) << where;
      EXPECT_EQ(got.dweight, want.dweight) << where;
      EXPECT_EQ(got.dbias, want.dbias) << where;
    }
  }
}

// Threads share the blocks of such rows, and take a row that is out of range on another way.
TEST(Broadcast, NormalisesFewLongRowsThatAreOutOfRange) {
  const Case c{{2, 2, 2, 32768}, {1, 2, 2, 1}, 2};
  Inputs<float> in(c);
  const auto row = in.x.begin() + static_cast<std::ptrdiff_t>(2 * c.cols());
  std::for_each(row, row + static_cast<std::ptrdiff_t>(c.cols()), [](float& x) { x *= 1e35F; });
  const Results<float> want = run_passes(in, c.kind, c.shape, c.tail(), c.parameter, {});
  const Results<float> got = run_passes(in, c.kind, c.shape, c.tail(), c.parameter, pool_executor(4));
  EXPECT_EQ(got.y, want.y);
  EXPECT_EQ(got.rstd, want.rstd);
}

TEST(Broadcast, NamesShapesThatDoNotFit) {
  const Case c{{2, 3, 8}, {2, 1, 8}, 1};
  const Inputs<float> in(c);
  std::vector<float> y(48), sums(48);
  Forward f;
  f.x = input(in.x, c.shape);
  f.y = output(y, c.shape);
  const Shape tail = c.tail(), wrong{2, 2, 8}, shared{1, 1, 8}, strides{0, 8, 1};
  f.normalized_shape = tail;
  f.weight = input(in.weight, wrong);
  EXPECT_EQ(error_of([&] { run(f); }),
            "weight has shape (2, 2, 8), but x has (2, 3, 8): each axis should be as long as x's, or 1");
  Backward b;
  b.x = f.x;
  b.dy = input(in.dy, c.shape);
  b.normalized_shape = tail;
  b.weight = input(in.weight, c.parameter);
  b.dbias = output(sums, shared);
  EXPECT_THAT(error_of([&] { run(b); }), ::testing::HasSubstr("dbias has shape (1, 1, 8), but weight, dweight and"));
  b.weight = {};
  b.dbias = output(sums, c.parameter);
  b.dbias.strides = strides;
  EXPECT_EQ(error_of([&] { run(b); }), "dbias may overlap itself");
}

TEST(Broadcast, WritesZerosForSetsWithoutRows) {
  const Shape shape{2, 0, 8}, parameter{2, 1, 8}, tail{8};
  std::vector<float> dweight(16, 1);
  Backward b;
  b.x = {nullptr, DType::f32, shape, {}};
  b.dy = b.x;
  b.normalized_shape = tail;
  b.dweight = output(dweight, parameter);
  run(b);
  EXPECT_EQ(dweight, std::vector<float>(16, 0));
}

}  // namespace
}  // namespace evenorm::testing
