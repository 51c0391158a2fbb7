// weight and bias that are broadcast to x: the bits of separate passes for rows of one weight, and sums over all that
// was broadcast. The expected results come from passes with one weight for all rows. The bits of sums over columns are
// those of gradients_model.py: test_numpy_gradients_model.py.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "plan/spec.hpp"
#include "support/cases.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::Case;
using contracts::Inputs;
using contracts::Outcome;
using contracts::parse_case;
using contracts::product;
using contracts::Shape;
using contracts::value_at;

// Which of the parameter's elements the elements of x have.
class Elements {
 public:
  explicit Elements(const Case& c) : c_(c) {}

  std::size_t of(std::size_t index) const {
    std::size_t element = 0, step = 1;
    for (std::size_t axis = c_.shape.size(); axis-- > 0;) {
      const auto size = static_cast<std::size_t>(c_.shape[axis]), at = index % size;
      index /= size;
      if (c_.parameter[axis] == 1) continue;
      element += at * step;
      step *= size;
    }
    return element;
  }
  // Neighbouring columns that share an element.
  std::size_t run() const {
    std::size_t run = 1;
    const std::size_t first = c_.shape.size() - c_.axes.size();
    for (std::size_t axis = c_.shape.size(); axis-- > first && c_.parameter[axis] == 1;) {
      run *= static_cast<std::size_t>(c_.shape[axis]);
    }
    return run;
  }
  bool columns_share() const {
    const Shape tail(c_.parameter.end() - std::ssize(c_.axes), c_.parameter.end());
    return tail != Shape(c_.shape.end() - std::ssize(c_.axes), c_.shape.end());
  }
  // Rows with the same parameters, in order.
  std::vector<std::vector<std::size_t>> sets() const {
    std::vector<std::vector<std::size_t>> all;
    for (std::size_t row = 0; row < product(c_.shape) / c_.op.cols; ++row) {
      const auto same = std::ranges::find_if(
          all, [&](const auto& set) { return of(set.front() * c_.op.cols) == of(row * c_.op.cols); });
      same == all.end() ? all.push_back({row}) : same->push_back(row);
    }
    return all;
  }

 private:
  const Case& c_;
};

// The gradients that the case asks for besides the forward pass: sums in f64, so that f32 arithmetic shows them
// unrounded.
Case gradients_of(Case c) {
  c.op.bias.reset();
  c.op.dx = c.op.x;
  c.op.dgamma = c.op.dbeta = DType::f64;
  return c;
}

struct Results {
  Outcome forward, backward;
};
Results plain_results(const Case& c, Inputs in) {
  Results results{contracts::plain_outcome(c, in), {}};
  in.mean = results.forward.mean;
  in.rstd = results.forward.rstd;
  results.backward = contracts::plain_outcome(gradients_of(c), in);
  return results;
}

// Compares with a pass for each set of rows. If columns share elements, rows that are divided into runs have other
// bits.
void expect_bits_of_sets(const Case& c, const Inputs& in, const Results& found) {
  const double unit = c.op.x == DType::f32 ? 0x1p-24 : 0x1p-50;
  const std::size_t cols = c.op.cols, elements = product(c.parameter);
  const Elements of(c);
  const bool shared = of.columns_share(), has_runs = of.run() >= internal::kLeastRun && of.run() < cols;
  std::vector<double> dgamma(elements), dbeta(elements), of_dgamma(elements), of_dbeta(elements);
  for (const std::vector<std::size_t>& set : of.sets()) {
    Inputs one{Array(c.op.x, std::size_t{0}), Array(c.op.y, std::size_t{0})};
    one.weight = one.bias = Array(*c.op.weight, cols);
    for (const std::size_t row : set) {
      one.x.append(in.x.part(row * cols, cols));
      one.dy.append(in.dy.part(row * cols, cols));
    }
    for (std::size_t col = 0; col < cols; ++col) {
      one.weight.set(col, value_at(in.weight, of.of(set[0] * cols + col)));
      one.bias.set(col, value_at(in.bias, of.of(set[0] * cols + col)));
    }
    const Results part = plain_results(case_of(c.op, set.size()), one);
    const std::vector<double> sums = values_of(part.backward.dgamma), shifts = values_of(part.backward.dbeta);
    for (std::size_t r = 0; r < set.size(); ++r) {
      const double rstd = part.forward.rstd[r], mean = part.forward.mean.empty() ? 0 : part.forward.mean[r];
      const double off = has_runs ? 0x1p-40 : 0;
      if (!found.forward.mean.empty()) {
        EXPECT_NEAR(found.forward.mean[set[r]], mean, off / rstd) << c.text();
      }
      EXPECT_NEAR(found.forward.rstd[set[r]], rstd, off * rstd) << c.text();
      double largest = 0, largest_xhat = 0;
      for (std::size_t i = r * cols; i < (r + 1) * cols; ++i) {
        largest = std::max(largest, std::fabs(value_at(one.dy, i) * value_at(one.weight, i % cols)));
        largest_xhat = std::max(largest_xhat, std::fabs((value_at(one.x, i) - mean) * rstd));
      }
      const double off_dx = of.run() < internal::kLeastRun ? 0 : 256 * unit * rstd * largest;
      for (std::size_t i = r * cols; i < (r + 1) * cols; ++i) {
        const std::size_t col = i % cols, place = set[r] * cols + col, element = of.of(set[0] * cols + col);
        const double bound = std::fabs(value_at(one.weight, col)) * largest_xhat + std::fabs(value_at(one.bias, col));
        EXPECT_NEAR(value_at(found.forward.y, place), value_at(part.forward.y, i), has_runs ? 2 * unit * bound : 0);
        EXPECT_NEAR(value_at(found.backward.dx, place), value_at(part.backward.dx, i), off_dx) << c.text();
        const double dy = std::fabs(value_at(one.dy, i)), xhat = std::fabs((value_at(one.x, i) - mean) * rstd);
        if (shared) of_dgamma[element] += 16 * unit * dy * (xhat + 0x1p-20);
        if (shared) of_dbeta[element] += 8 * unit * dy;
      }
    }
    for (std::size_t col = 0; col < cols; ++col) {
      dgamma[of.of(set[0] * cols + col)] += sums[col];
      dbeta[of.of(set[0] * cols + col)] += shifts[col];
    }
  }
  for (std::size_t i = 0; i < elements; ++i) {
    EXPECT_NEAR(value_at(found.backward.dgamma, i), dgamma[i], of_dgamma[i]) << c.text();
    EXPECT_NEAR(value_at(found.backward.dbeta, i), dbeta[i], of_dbeta[i]) << c.text();
  }
}

void expect_same_in(const Case& c, const Inputs& in, const Results& plain, const std::string& ways) {
  Inputs with_statistics = in;
  with_statistics.mean = plain.forward.mean;
  with_statistics.rstd = plain.forward.rstd;
  for (const std::string& way : expanded(ways)) {
    EXPECT_EQ(contracts::differences(contracts::with_way(c, way), in, plain.forward), "");
    if (way.find("y@x") != std::string::npos) continue;
    const Case gradients = contracts::with_way(gradients_of(c), way);
    EXPECT_EQ(contracts::differences(gradients, with_statistics, plain.backward), "");
    EXPECT_EQ(contracts::differences(gradients, in, plain.backward), "");
  }
}

Inputs inputs_with_dy(const Case& c) {
  Inputs in = contracts::inputs_of(c);
  in.dy = contracts::rows_of(c.dy, c.op.y, product(c.shape) / c.op.cols, c.op.cols, 1000);
  return in;
}

constexpr const char* kCases[] = {
    "layer 4x6x40 parameter=4x1x40 axes=2",                // adaptive layer norm
    "layer 4x6x40 parameter=1x6x40 axes=2",                // sets of rows that are not neighbours
    "layer 4x6x40 parameter=4x6x40 axes=2",                // a weight of x's shape
    "rms 3x300x33 parameter=3x1x33 axes=2",                // several row blocks
    "layer 2x3x2500 parameter=2x1x1 axes=2",               // one scale for a row
    "layer 2x4x5x7x6 parameter=1x4x5x1x1 axes=2,3,4",      // group norm
    "layer 2x4x3x30x30 parameter=1x4x3x1x1 axes=2,3,4",    // of several blocks, which columns of one channel cross
    "layer 1x2x3x2048 parameter=1x2x3x1 axes=2,3",         // of several blocks for each channel
    "layer 3x5x49 parameter=1x5x1 axes=2",                 // instance norm
    "rms 2x3x4x5x6 parameter=2x1x1x5x1 axes=2,3,4",        // columns that share elements on both sides
    "layer 3x2x7x5 parameter=1x2x1x5 axes=2,3",            // and in the middle
    "layer 5x4x3 parameter=1x1x1 axes=1,2",                // no sets, one element
    "layer 2x3x4x2x300 parameter=1x1x4x1x1 axes=1,2,3,4",  // runs whose elements are shared by others, too
    "layer 2x2x40000 parameter=2x1x40000 axes=2",          // rows by parts, and gradients in two steps
    "layer 60x16x320 parameter=60x1x320 axes=2",           // shares of sets are tasks
    "rms 9x150x33 parameter=9x1x33 axes=2",                // of several row blocks
    "layer 70x3x1500 parameter=70x1x1500 axes=2",          // which threads could take in two steps
    "layer 4x90x200 parameter=1x90x1 axes=2",              // whose columns share elements
    "layer 5x40x300 parameter=1x40x1 axes=2",              // runs of many sets
    "layer 16x16x10 parameter=1x16x10 axes=2",             // as many samples as channels
};

TEST(Broadcast, HasTheBitsOfPassesForRowsOfOneWeight) {
  for (const char* text : kCases) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Case c = parse_case(expanded(text + std::string(" $ weight=$ bias=$"), name(dtype))[0]);
      Inputs in = inputs_with_dy(c);
      contracts::Random random(5);  // powers of two, so that sums in f64 depend on the order of f32 terms
      for (std::size_t i = 0; i < in.dy.size() && dtype == DType::f32; ++i) {
        in.dy.set(i, std::ldexp(value_at(in.dy, i), static_cast<int>(random.below(61)) - 30));
      }
      const Results plain = plain_results(c, in);
      expect_bits_of_sets(c, in, plain);
      expect_same_in(c, in, plain, "{threads=1,threads=4,tasks=7,x=last y=last dx=last}");
    }
  }
}

// --- the statistics of rows of runs, as docs/numerics.md specifies them, for f32 without a second pass

struct Moments {
  double count, mean, m2;
};
Moments join(const Moments& a, const Moments& b) {
  const double count = a.count + b.count, weight = b.count / count, delta = b.mean - a.mean;
  return {count, a.mean + delta * weight, (a.m2 + b.m2) + delta * delta * (a.count * weight)};
}
Moments tree(std::span<const Moments> parts) {
  if (parts.size() == 1) return parts[0];
  const std::size_t left = std::bit_floor(parts.size() - 1);
  return join(tree(parts.first(left)), tree(parts.subspan(left)));
}
Moments moments_of(std::span<const double> x) {
  double s[16] = {}, q[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i) {
    s[i % 16] += x[i];
    q[i % 16] += x[i] * x[i];
  }
  for (std::size_t step = 8; step != 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) s[l] += s[l + step], q[l] += q[l + step];
  }
  const auto count = static_cast<double>(x.size());
  return {count, s[0] / count, q[0] - s[0] * (s[0] * (1 / count))};
}
Moments moments_of_row(std::span<const double> x, std::size_t run) {
  std::vector<Moments> runs;
  for (std::size_t first = 0; first < x.size(); first += run) {
    std::vector<Moments> blocks;
    for (std::size_t c = 0; c < run; c += 1024) {
      blocks.push_back(moments_of(x.subspan(first + c, std::min<std::size_t>(1024, run - c))));
    }
    runs.push_back(tree(blocks));
  }
  return tree(runs);
}

TEST(Broadcast, JoinsTheMomentsOfRuns) {
  for (const std::size_t lines : {2, 3, 7, 64, 65, 130, 200}) {
    for (const std::size_t positions : {15, 16, 17, 49, 1024, 1100, 3000}) {
      if (lines * positions > 70000) continue;
      const std::string channels = std::to_string(lines), size = "2x" + channels + "x" + std::to_string(positions);
      const Case c = parse_case("layer f32 weight=f32 " + size + " axes=1,2 parameter=1x" + channels + "x1 threads=2");
      Inputs in = contracts::inputs_of(c);
      contracts::Random random(5);
      for (std::size_t i = 0; i < in.x.size(); ++i) {
        in.x.set(i, std::ldexp(value_at(in.x, i), static_cast<int>(random.below(61)) - 30));
      }
      const std::vector<double> x = values_of(in.x);
      const Outcome found = contracts::outcome_by(c, contracts::runnable_targets()[0], in);
      for (std::size_t row = 0; row < 2; ++row) {
        const Moments want = moments_of_row(std::span(x).subspan(row * c.op.cols, c.op.cols),
                                            positions < internal::kLeastRun ? c.op.cols : positions);
        EXPECT_EQ(found.mean[row], want.mean) << c.text();
        EXPECT_EQ(found.rstd[row], 1 / std::sqrt(want.m2 * (1 / want.count) + 1e-5)) << c.text();
      }
    }
  }
}

// --- channels that lie side by side in memory: rows (N, G, C / G, positions)

constexpr const char* kGroups[] = {"2x3x1x49",    "2x20x1x1040", "3x4x2x3136", "2x8x10x144",  "2x4x10x1024",
                                   "2x2x16x2064", "1x5x16x196",  "2x40x2x400", "2x3x33x272",  "2x4x16x528",
                                   "3x1x33x1296", "1x2x300x160", "1x6x3x9232", "1x2x10x1157", "1x3x33x289",
                                   "1x3x16x256",  "1x5x8x129",   "1x3x8x2080"};

TEST(Broadcast, HasTheBitsOfContiguousChannelsWithChannelsLast) {
  for (const std::string shape : kGroups) {
    const std::string parameter = " parameter=1" + shape.substr(1, shape.rfind('x') - 1) + "x1 axes=2,3 ";
    for (const char* type : {" f32 weight=f32 bias=f32", " bf16 weight=f32"}) {
      Case c = parse_case((shape == "2x4x16x528" ? "rms " : "layer ") + shape + parameter + type);
      // sums of squares of one magnitude would be exact in any order; or rows that need a second pass or are out of
      // range
      c.x = shape[0] == '3' ? Names{"mean_1e4", "normal", "normal", "std_1e30"} : Names{"wide_exponents"};
      Inputs in = inputs_with_dy(c);
      const auto zeros = static_cast<std::size_t>(c.shape[3]) + 1;  // a channel whose sums are found anew
      for (std::size_t i = 0; i < zeros && shape[0] == '3'; ++i) in.dy.set(i, 0);
      const Results plain = plain_results(c, in);
      expect_same_in(c, in, plain,
                     "{x=last y=last dx=last,x=last y=last dx=last threads=4,x=last y@x,"
                     "x=last y=last dx=last guard=after}");
    }
  }
}

// Threads share the blocks of such rows, and take a row that is out of range on another way.
TEST(Broadcast, NormalisesFewLongRowsThatAreOutOfRange) {
  expect_same_bits("layer f32 weight=f32 bias=f32 2x2x2x32768 axes=2,3 parameter=1x2x2x1 x:normal,std_1e30 threads=4");
}

TEST(Broadcast, NamesShapesThatDoNotFit) {
  const Case c = parse_case("layer f32 weight=f32 2x3x8 axes=2 parameter=2x1x8");
  const Inputs in = inputs_with_dy(c);
  Array y = in.x, sums = in.x;
  const Shape tail{8}, wrong{2, 2, 8}, shared{1, 1, 8}, strides{0, 8, 1};
  Forward f;
  f.x = {in.x.data(), DType::f32, c.shape, {}};
  f.y = {y.data(), DType::f32, c.shape, {}};
  f.normalized_shape = tail;
  f.weight = {in.weight.data(), DType::f32, wrong, {}};
  EXPECT_EQ(error_of([&] { run(f); }),
            "weight has shape (2, 2, 8), but x has (2, 3, 8): each axis should be as long as x's, or 1");
  Backward b;
  b.x = f.x;
  b.dy = {in.dy.data(), DType::f32, c.shape, {}};
  b.normalized_shape = tail;
  b.weight = {in.weight.data(), DType::f32, c.parameter, {}};
  b.dbias = {sums.data(), DType::f32, shared, {}};
  EXPECT_THAT(error_of([&] { run(b); }), ::testing::HasSubstr("dbias has shape (1, 1, 8), but weight, dweight and"));
  b.weight = {};
  b.dbias = {sums.data(), DType::f32, c.parameter, strides};
  EXPECT_EQ(error_of([&] { run(b); }), "dbias may overlap itself");
}

TEST(Broadcast, WritesZerosForSetsWithoutRows) {
  const Shape shape{2, 0, 8}, parameter{2, 1, 8}, tail{8};
  std::vector<float> dweight(16, 1);
  Backward b;
  b.x = b.dy = {nullptr, DType::f32, shape, {}};
  b.normalized_shape = tail;
  b.dweight = {dweight.data(), DType::f32, parameter, {}};
  run(b);
  EXPECT_EQ(dweight, std::vector<float>(16, 0));
}

}  // namespace
}  // namespace evenorm::testing
