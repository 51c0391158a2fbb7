// Edge cases: constant rows, no variance, NaN and infinity, no rows, one column, extreme eps and parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::canonical_nan;
using evenorm::testing::expanded;
using evenorm::testing::expect_kept;
using evenorm::testing::filled;
using evenorm::testing::on_every_target;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kCols[] = {1, 2, 3, 15, 16, 17, 31, 33, 100, 1024, 1025, 2500};

// A negative signalling NaN with an odd payload.
void set_odd_nan(Array& values, std::size_t i) {
  constexpr std::uint64_t kBits[] = {0xFFF0000000000123, 0xFF800123, 0xFF83, 0xFC05};
  const std::size_t size = size_of(values.dtype());
  std::memcpy(values.data() + i * size, &kBits[static_cast<std::size_t>(values.dtype())], size);
}

class Forward_Edge : public ::testing::TestWithParam<DType> {};

// Also a row of zeros in RMS norm.
TEST_P(Forward_Edge, ConstantRowGivesExactlyBeta) {
  const DType dtype = GetParam();
  const double largest = largest_finite(dtype), smallest = smallest_subnormal(dtype);
  for (const std::size_t cols : kCols) {
    const Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
    for (const double value : {0.0, -0.0, 1.0, 0.1, -3.3, 1000.7, largest, -largest, smallest, 100 * smallest}) {
      const Inputs inputs{.x = filled(dtype, cols, value), .weight = weight, .bias = bias};
      for (const Kind kind : kBothKinds) {
        for (const double eps : {0.0, 1e-300, 1e-5, 1e300}) {
          if (kind == Kind::rms && value != 0) continue;
          Operation op = same_type(kind, dtype, cols);
          op.eps = eps;
          on_every_target(op, inputs, [&](const Outcome& outcome) {
            for (std::size_t i = 0; i < cols; ++i) {
              ASSERT_EQ(value_at(outcome.y, i), value_at(bias, i)) << "constant " << value << ", column " << i;
            }
            if (kind == Kind::layer) {
              EXPECT_EQ(outcome.mean[0], value_at(inputs.x, 0));
            }
            EXPECT_LE(relative_error_in_u(outcome.rstd[0], eps == 0 ? 0 : 1 / std::sqrt(eps), 0x1p-53), 4) << value;
          });
        }
      }
    }
  }
}

// A non-finite value at any place makes its whole row NaN, and affects no other row.
TEST_P(Forward_Edge, NanAndInfinityStayInTheirRow) {
  expect_kept(
      "{layer,rms} $ weight=$ bias=$ 7x{1,3,16,33,1025} x:normal,normal,normal,{nan,infinity},normal,normal,normal "
      "seed={1,13,29} alone",
      name(GetParam()));
}

// A NaN in a parameter makes one output NaN. That NaN is canonical, for every type of parameter and output. Each part
// of a long row only reads its own columns of the parameters.
TEST_P(Forward_Edge, ParametersThatAreNotFiniteGiveCanonicalNans) {
  const DType dtype = GetParam();
  for (const DType parameter : kAllTypes) {
    for (const std::size_t cols : {3, 16, 33, 1025, 5000, 200001}) {
      for (const bool zero_centered : {false, true}) {
        if (cols == 200001 && (parameter != dtype || zero_centered)) continue;
        const Operation op{Kind::layer, dtype, dtype, parameter, parameter, zero_centered, 1e-5, cols};
        Inputs in = inputs_of(op, {"normal"}, {}, cols == 200001 ? 1 : 2);
        std::vector<std::size_t> nans = {0, cols - 1};
        if (cols == 200001) nans.insert(nans.end(), {32768, 131071});
        set_odd_nan(in.bias, cols - 1);
        for (const std::size_t column : nans) set_odd_nan(in.weight, column);
        in.weight.set(cols / 2, kInfinity);
        for (const std::size_t tasks : {1, 3}) {
          for (const internal::Target target : runnable_targets()) {
            const Outcome outcome = run_operation(on_target(target), op, in, {}, reversed_executor(tasks));
            for (std::size_t i = 0; i < outcome.y.size(); ++i) {
              const double y = value_at(outcome.y, i);
              if (std::ranges::find(nans, i % cols) != nans.end()) {
                ASSERT_EQ(bits_at(outcome.y, i), canonical_nan(dtype)) << op.name() << " column " << i % cols;
              } else {
                ASSERT_EQ(std::isfinite(y), i % cols != cols / 2) << op.name() << " column " << i % cols;
                ASSERT_FALSE(std::isnan(y)) << op.name() << " column " << i % cols;
              }
            }
          }
        }
      }
    }
  }
}

// infinity * 0 (in a constant row) and infinity - infinity.
TEST_P(Forward_Edge, UndefinedProductsAndSumsAreTheCanonicalNan) {
  const DType dtype = GetParam();
  const Operation op = same_type(Kind::layer, dtype, 21);
  Inputs in{.x = filled(dtype, 21, 3), .weight = make_weight(dtype, 21), .bias = make_bias(dtype, 21)};
  in.weight.set(4, kInfinity);
  in.weight.set(20, -kInfinity);
  on_every_target(op, in, [&](const Outcome& outcome) {
    EXPECT_EQ(bits_at(outcome.y, 4), canonical_nan(dtype));
    EXPECT_EQ(bits_at(outcome.y, 20), canonical_nan(dtype));
    EXPECT_EQ(value_at(outcome.y, 5), value_at(in.bias, 5));
  });
  in.x.set(4, 30);  // xhat is positive here and negative elsewhere
  in.bias.set(4, -kInfinity);
  on_every_target(op, in, [&](const Outcome& outcome) {
    EXPECT_EQ(bits_at(outcome.y, 4), canonical_nan(dtype));
    EXPECT_EQ(value_at(outcome.y, 20), kInfinity);
  });
}

TEST_P(Forward_Edge, FiniteRowsGiveFiniteOutputs) {
  for (const std::size_t cols : {1, 2, 3, 33, 1025}) {
    std::vector<std::string> inputs;
    for (const std::string_view input : input_names(GetParam(), cols)) inputs.emplace_back(input);
    for (const Kind kind : kBothKinds) {
      for (const double eps : {0.0, 1e-300, 1e-5, 1e300, std::numeric_limits<double>::max()}) {
        Operation op = same_type(kind, GetParam(), cols, false);
        op.eps = eps;
        on_every_target(op, inputs_of(op, inputs, {}, inputs.size()), [&](const Outcome& outcome) {
          for (std::size_t i = 0; i < outcome.y.size(); ++i) {
            ASSERT_TRUE(std::isfinite(value_at(outcome.y, i))) << inputs[i / cols] << " eps " << eps;
          }
        });
      }
    }
  }
}

TEST_P(Forward_Edge, OutputsBeyondTheTypeAreInfinite) {
  const double largest = largest_finite(GetParam());
  const Operation op = same_type(Kind::layer, GetParam(), 40);
  Inputs in{.x = make_input("alternating", GetParam(), 40),
            .weight = filled(GetParam(), 40, 1),
            .bias = filled(GetParam(), 40, 0)};
  in.weight.set(6, largest);
  in.bias.set(6, largest);
  in.weight.set(7, largest);
  in.bias.set(7, -largest);
  on_every_target(op, in, [&](const Outcome& outcome) {
    EXPECT_EQ(value_at(outcome.y, 6), kInfinity);
    EXPECT_EQ(value_at(outcome.y, 7), -kInfinity);
    EXPECT_TRUE(std::isfinite(value_at(outcome.y, 8)));
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Forward_Edge, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

// The final conversion overflows, from every arithmetic to every narrower output.
TEST(Forward_Mixed, ConvertedOutputsBeyondTheTypeAreInfinite) {
  for (const std::string& text :
       expanded("layer {f64->f32 weight=f64,f64->bf16 weight=f64,f64->f16 weight=f64,f32->bf16 weight=f32,"
                "f32->f16 weight=f32} 1x40 x:alternating")) {
    const Operation op = parse_case(text).op;
    Inputs in = inputs_of(parse_case(text));
    in.weight = filled(op.x, 40, largest_finite(op.x));
    on_every_target(op, in, [&](const Outcome& outcome) {
      EXPECT_EQ(value_at(outcome.y, 0), kInfinity);
      EXPECT_EQ(value_at(outcome.y, 39), -kInfinity);
    });
  }
}

// Beside 1 + 2^-8, which lies between two numbers of bf16, y adds what f32 cannot hold.
TEST(Forward_Mixed, RareRowsAreRoundedOnce) {
  const Operation op{Kind::layer, DType::f32, DType::bf16, DType::f32, DType::f32, false, 0, 2};
  const Inputs in{.x = Array(DType::f32, std::vector<double>{0x1p-70, -0x1p-70}),
                  .weight = filled(DType::f32, 2, 0x1p-40),
                  .bias = filled(DType::f32, 2, 1 + 0x1p-8)};
  on_every_target(op, in, [](const Outcome& outcome) {
    EXPECT_EQ(value_at(outcome.y, 0), 1 + 0x1p-7);
    EXPECT_EQ(value_at(outcome.y, 1), 1);
  });
}

TEST(Forward_Edge, NoRowsDoNothing) {
  for (const DType dtype : kAllTypes) {
    const Forward forward{.x = {nullptr, dtype, {0, 8}}, .y = {nullptr, dtype, {0, 8}}, .normalized_shape = {8}};
    for (const internal::Target target : runnable_targets()) {
      EXPECT_NO_THROW(on_target(target)(forward, {}));
      EXPECT_NO_THROW(on_target(target)(forward, pool_executor(2)));
    }
  }
}

}  // namespace
}  // namespace evenorm::contracts
