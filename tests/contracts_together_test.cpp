// Rows in a batch have the bits that each has alone: rows of every kind next to each other, at every place of a group
// and across groups, with and without statistics, plain and fused, on every target.
#include <gtest/gtest.h>

#include <cmath>

#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;

// About one row in 20 is not normal. The batches have other kinds of such rows.
constexpr const char* kRare[] = {"mean_1e4",       "nan",        "constant_0.1",       "huge",
                                 "zeros",          "std_1e30",   "subnormal",          "infinity",
                                 "huge_half",      "std_1e-300", "constant_max",       "one_ulp_0.1",
                                 "few_subnormals", "std_1e300",  "outlier_10000_at_5", "mean_300"};

std::string rows_of_batch(std::size_t batch) {
  std::string names;
  for (std::size_t r = 0; r < 61; ++r) {
    names += (r == 0 ? " x:" : ",") + std::string(r % 19 == 11 ? kRare[(r / 19 + batch) % std::size(kRare)] : "normal");
  }
  return names;
}

// Two of three batches have an eps so small that it hides nothing in rows with a large mean.
void expect_alone_and_together_alike(const std::string& pattern, DType dtype) {
  static std::size_t batch = 0;
  for (const std::string& text : expanded(pattern + " {statistics=none,threads=1,alone}", name(dtype))) {
    const std::size_t i = batch++ / 3;
    expect_same_bits(text + rows_of_batch(i) + (i % 3 == 0 ? "" : " eps=1e-30"));
  }
}

class Contract_Together : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_Together, RowsHaveTheBitsOfEachAlone) {
  for (const char* form : {"$", "$ residual=$", "$->i8"}) {
    const std::string op = "{layer,rms} " + std::string(form) + " weight=$ bias=$ ";
    expect_alone_and_together_alike(op + "61x{1,2,7,16,33,129,300,768,1024}", GetParam());
    expect_alone_and_together_alike(op + "43x{1025,2048,3100}", GetParam());
  }
}

// Widths with loops of their own: in full groups for many pipeline stages, and beside rows that interrupt them.
TEST_P(Contract_Together, NarrowRowsHaveTheBitsOfEachAlone) {
  expect_alone_and_together_alike("{layer,rms} $ weight=$ bias=$ {24,131}x{32,64,96,128}", GetParam());
}

// The magnitudes differ so much that every order of additions gives another sum. In 16-bit types, other sums would be
// exact.
TEST_P(Contract_Together, SumsOfManyMagnitudesHaveOneOrder) {
  contracts::Random random(41);
  const int places = GetParam() == DType::f16 ? 13 : 45;
  for (const std::string& text :
       expanded("{layer,rms} $ weight=$ bias=$ 43x{16,32,45,128,300,768}", name(GetParam()))) {
    const contracts::Case c = contracts::parse_case(text), alone = contracts::with_way(c, "alone");
    contracts::Inputs inputs = contracts::inputs_of(c);
    for (std::size_t i = 0; i < inputs.x.size(); ++i) {
      const int exponent = static_cast<int>(random.uniform() * (2 * places)) - places;
      const double fraction = 1 + random.uniform();
      inputs.x.set(i, std::ldexp(random.uniform() < 0.5 ? -fraction : fraction, exponent));
    }
    const contracts::Outcome plain = contracts::plain_outcome(c, inputs);
    EXPECT_EQ(contracts::differences(c, inputs, plain) + contracts::differences(alone, inputs, plain), "");
  }
}

// Results above 8 MiB use non-temporal stores if whole vectors are aligned, or are 8 bytes after that.
TEST_P(Contract_Together, RowsHaveTheBitsOfEachAloneWithStreamingStores) {
  const std::size_t bytes = size_of(GetParam());
  for (const std::size_t cols : {32, 64, 96, 128, 300, 2048}) {
    const std::size_t repeat = (std::size_t{9} << 20U) / (43 * cols * bytes) + 1;
    const std::string text = (cols == 64 ? "rms" : "layer") + std::string(" $ weight=$ bias=$ 43x") +
                             std::to_string(cols) + rows_of_batch(cols) + " repeat=" + std::to_string(repeat);
    expect_same_bits(text, name(GetParam()));
    if (cols == 128) expect_same_bits(text + " y=+" + std::to_string(8 / bytes), name(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_Together, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::testing
