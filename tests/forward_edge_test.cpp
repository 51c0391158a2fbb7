// Edge cases: constant rows, no variance, NaN and infinity, no rows, one column, extreme eps and parameters.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "contracts/accuracy.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kCols[] = {1, 2, 3, 15, 16, 17, 31, 33, 100, 1024, 1025, 2500};

Outcome run(internal::Target target, const Operation& op, const Array& x, const Array& weight = {},
            const Array& bias = {}) {
  return run_operation(on_target(target), op, x, weight, bias);
}

void set_bits(Array& values, std::size_t i, std::uint64_t bits) {
  const std::size_t size = size_of(values.dtype());
  std::memcpy(values.data() + i * size, &bits, size);
}

Array constant(DType dtype, std::size_t n, double value) {
  const std::vector<double> values(n, value);
  return {dtype, values};
}

std::uint64_t canonical_nan(DType dtype) {
  constexpr std::uint64_t kBits[] = {0x7FF8000000000000, 0x7FC00000, 0x7FC0, 0x7E00};
  return kBits[static_cast<std::size_t>(dtype)];
}

// A negative signalling NaN with an odd payload.
std::uint64_t odd_nan(DType dtype) {
  constexpr std::uint64_t kBits[] = {0xFFF0000000000123, 0xFF800123, 0xFF83, 0xFC05};
  return kBits[static_cast<std::size_t>(dtype)];
}

std::string where(const Operation& op, internal::Target target) {
  return op.name() + " on " + std::string(internal::name(target));
}

class Forward_Edge : public ::testing::TestWithParam<DType> {};

TEST_P(Forward_Edge, ConstantRowGivesExactlyBeta) {
  const DType dtype = GetParam();
  const double largest = largest_finite(dtype), smallest = smallest_subnormal(dtype);
  for (const std::size_t cols : kCols) {
    Operation op = same_type(Kind::layer, dtype, cols);
    const Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
    for (const double value : {0.0, -0.0, 1.0, 0.1, -3.3, 1000.7, largest, -largest, smallest, 100 * smallest}) {
      for (const double eps : {0.0, 1e-300, 1e-5, 1e300}) {
        op.eps = eps;
        for (const internal::Target target : runnable_targets()) {
          const Outcome outcome = run(target, op, constant(dtype, cols, value), weight, bias);
          for (std::size_t i = 0; i < cols; ++i) {
            ASSERT_EQ(value_at(outcome.y, i), value_at(bias, i))
                << where(op, target) << ", constant " << value << ", eps " << eps << ", column " << i;
          }
          const double stored = value_at(constant(dtype, 1, value), 0);
          EXPECT_EQ(outcome.mean[0], stored) << where(op, target);
          const double exact = eps == 0 ? 0 : 1 / std::sqrt(eps);
          EXPECT_LE(relative_error_in_u(outcome.rstd[0], exact, 0x1p-53), 4)
              << where(op, target) << ", constant " << value << ", eps " << eps << ": " << outcome.rstd[0];
        }
      }
    }
  }
}

TEST_P(Forward_Edge, ZeroRowOfRmsNormGivesExactlyBeta) {
  const DType dtype = GetParam();
  for (const std::size_t cols : kCols) {
    Operation op = same_type(Kind::rms, dtype, cols);
    const Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
    for (const double eps : {0.0, 1e-5}) {
      op.eps = eps;
      for (const internal::Target target : runnable_targets()) {
        const Outcome outcome = run(target, op, Array(dtype, cols), weight, bias);
        for (std::size_t i = 0; i < cols; ++i) ASSERT_EQ(value_at(outcome.y, i), value_at(bias, i));
        EXPECT_EQ(outcome.rstd[0], eps == 0 ? 0 : 1 / std::sqrt(eps)) << where(op, target);
      }
    }
  }
}

// A non-finite value at any place makes its whole row NaN, and affects no other row.
TEST_P(Forward_Edge, NanAndInfinityStayInTheirRow) {
  const DType dtype = GetParam();
  for (const std::size_t cols : {1, 3, 16, 33, 1025}) {
    for (const Kind kind : kBothKinds) {
      const Operation op = same_type(kind, dtype, cols);
      const Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
      Array good(dtype, std::size_t{0});
      for (std::uint64_t r = 0; r < 7; ++r) good.append(make_input("normal", dtype, cols, r));
      for (const internal::Target target : runnable_targets()) {
        const Outcome clean = run(target, op, good, weight, bias);
        for (const double bad : {kNan, kInfinity, -kInfinity}) {
          for (const std::size_t column : {std::size_t{0}, cols / 2, cols - 1}) {
            Array x = good;
            x.set(3 * cols + column, bad);
            if (bad != bad) set_bits(x, 3 * cols + column, odd_nan(dtype));
            const Outcome outcome = run(target, op, x, weight, bias);
            for (std::size_t i = 0; i < 7 * cols; ++i) {
              const std::uint64_t expected = i / cols == 3 ? canonical_nan(dtype) : bits_at(clean.y, i);
              ASSERT_EQ(bits_at(outcome.y, i), expected) << where(op, target) << ", " << bad << " at " << column;
            }
            for (std::size_t r = 0; r < 7; ++r) {
              EXPECT_EQ(std::isnan(outcome.rstd[r]), r == 3);
              if (kind == Kind::layer) {
                EXPECT_EQ(std::isnan(outcome.mean[r]), r == 3);
              }
            }
            EXPECT_EQ(std::bit_cast<std::uint64_t>(outcome.rstd[3]), canonical_nan(DType::f64));
          }
        }
      }
    }
  }
}

// A NaN in a parameter makes one output NaN. That NaN is canonical, for every type of parameter and output.
TEST_P(Forward_Edge, ParametersThatAreNotFiniteGiveCanonicalNans) {
  const DType dtype = GetParam();
  for (const DType parameter : kAllTypes) {
    for (const std::size_t cols : {3, 16, 33, 1025, 5000}) {
      for (const bool zero_centered : {false, true}) {
        const Operation op{Kind::layer, dtype, dtype, parameter, parameter, zero_centered, 1e-5, cols};
        Array weight = make_weight(parameter, cols), bias = make_bias(parameter, cols);
        Array x = make_input("normal", dtype, cols);
        x.append(make_input("normal", dtype, cols, 9));
        set_bits(weight, 0, odd_nan(parameter));
        set_bits(bias, cols - 1, odd_nan(parameter));
        weight.set(cols / 2, kInfinity);
        for (const internal::Target target : runnable_targets()) {
          const Outcome outcome = run(target, op, x, weight, bias);
          for (std::size_t i = 0; i < 2 * cols; ++i) {
            const std::size_t column = i % cols;
            if (column == 0 || column == cols - 1) {
              ASSERT_EQ(bits_at(outcome.y, i), canonical_nan(dtype)) << where(op, target) << " column " << column;
            } else if (column == cols / 2) {
              EXPECT_TRUE(std::isinf(value_at(outcome.y, i))) << where(op, target);
            } else {
              ASSERT_TRUE(std::isfinite(value_at(outcome.y, i))) << where(op, target) << " column " << column;
            }
          }
        }
      }
    }
  }
}

// Each part of a long row only reads its own columns of the parameters.
TEST_P(Forward_Edge, ParametersThatAreNotFiniteAffectOnlyTheirPartOfALongRow) {
  const DType dtype = GetParam();
  const std::size_t cols = 200001;
  const Operation op = same_type(Kind::layer, dtype, cols);
  Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
  const Array x = make_input("normal", dtype, cols);
  for (const std::size_t column : {std::size_t{0}, std::size_t{32768}, std::size_t{131071}, cols - 1}) {
    set_bits(weight, column, odd_nan(dtype));
  }
  set_bits(bias, 70000, odd_nan(dtype));
  for (const internal::Target target : runnable_targets()) {
    const Runner runner = on_target(target);
    const Outcome serial = run_operation(runner, op, x, weight, bias);
    const Outcome shared = run_operation(runner, op, x, weight, bias, {}, reversed_executor(3));
    EXPECT_TRUE(std::equal(serial.y.bytes().begin(), serial.y.bytes().end(), shared.y.bytes().begin()));
    EXPECT_EQ(bits_at(shared.y, cols - 1), canonical_nan(dtype)) << where(op, target);
    EXPECT_EQ(bits_at(shared.y, 70000), canonical_nan(dtype)) << where(op, target);
  }
}

// infinity * 0 (in a constant row) and infinity - infinity.
TEST_P(Forward_Edge, UndefinedProductsAndSumsAreTheCanonicalNan) {
  const DType dtype = GetParam();
  const std::size_t cols = 21;
  const Operation op = same_type(Kind::layer, dtype, cols);
  Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
  weight.set(4, kInfinity);
  weight.set(20, -kInfinity);
  for (const internal::Target target : runnable_targets()) {
    const Outcome constant_row = run(target, op, constant(dtype, cols, 3), weight, bias);
    EXPECT_EQ(bits_at(constant_row.y, 4), canonical_nan(dtype)) << where(op, target);
    EXPECT_EQ(bits_at(constant_row.y, 20), canonical_nan(dtype)) << where(op, target);
    EXPECT_EQ(value_at(constant_row.y, 5), value_at(bias, 5));
    Array x = constant(dtype, cols, 1);
    x.set(4, 30);  // xhat is positive here and negative elsewhere
    bias.set(4, -kInfinity);
    EXPECT_EQ(bits_at(run(target, op, x, weight, bias).y, 4), canonical_nan(dtype)) << where(op, target);
    EXPECT_EQ(value_at(run(target, op, x, weight, bias).y, 20), kInfinity) << where(op, target);
  }
}

TEST_P(Forward_Edge, FiniteRowsGiveFiniteOutputs) {
  const DType dtype = GetParam();
  for (const std::size_t cols : {1, 2, 3, 33, 1025}) {
    for (const std::string_view input : input_names(dtype, cols)) {
      for (const Kind kind : kBothKinds) {
        for (const double eps : {0.0, 1e-300, 1e-5, 1e300, std::numeric_limits<double>::max()}) {
          Operation op = same_type(kind, dtype, cols, false);
          op.eps = eps;
          const Array x = make_input(input, dtype, cols);
          for (const internal::Target target : runnable_targets()) {
            const Outcome outcome = run(target, op, x);
            for (std::size_t i = 0; i < cols; ++i) {
              ASSERT_TRUE(std::isfinite(value_at(outcome.y, i))) << where(op, target) << " " << input << " eps " << eps;
            }
          }
        }
      }
    }
  }
}

TEST_P(Forward_Edge, OutputsBeyondTheTypeAreInfinite) {
  const DType dtype = GetParam();
  const std::size_t cols = 40;
  const Operation op = same_type(Kind::layer, dtype, cols);
  Array x = make_input("alternating", dtype, cols);
  Array weight = constant(dtype, cols, 1), bias = constant(dtype, cols, 0);
  weight.set(6, largest_finite(dtype));
  bias.set(6, largest_finite(dtype));
  weight.set(7, largest_finite(dtype));
  bias.set(7, -largest_finite(dtype));
  for (const internal::Target target : runnable_targets()) {
    const Outcome outcome = run(target, op, x, weight, bias);
    EXPECT_EQ(value_at(outcome.y, 6), kInfinity) << where(op, target);
    EXPECT_EQ(value_at(outcome.y, 7), -kInfinity) << where(op, target);
    EXPECT_TRUE(std::isfinite(value_at(outcome.y, 8)));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Forward_Edge, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

// The final conversion overflows, from every arithmetic to every narrower output.
TEST(Forward_Mixed, ConvertedOutputsBeyondTheTypeAreInfinite) {
  for (const DType from : {DType::f64, DType::f32}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      if (from == to) continue;
      const Operation op{Kind::layer, from, to, from, {}, false, 1e-5, 40};
      const Array x = make_input("alternating", from, op.cols);
      for (const internal::Target target : runnable_targets()) {
        const Outcome outcome = run(target, op, x, constant(from, op.cols, largest_finite(from)));
        EXPECT_EQ(value_at(outcome.y, 0), kInfinity) << where(op, target);
        EXPECT_EQ(value_at(outcome.y, 39), -kInfinity) << where(op, target);
      }
    }
  }
}

// Beside 1 + 2^-8, which lies between two numbers of bf16, y adds what f32 cannot hold.
TEST(Forward_Mixed, RareRowsAreRoundedOnce) {
  const Operation op{Kind::layer, DType::f32, DType::bf16, DType::f32, DType::f32, false, 0, 2};
  const Array x(DType::f32, std::vector<double>{0x1p-70, -0x1p-70});
  for (const internal::Target target : runnable_targets()) {
    const Outcome outcome = run(target, op, x, constant(DType::f32, 2, 0x1p-40), constant(DType::f32, 2, 1 + 0x1p-8));
    EXPECT_EQ(value_at(outcome.y, 0), 1 + 0x1p-7) << where(op, target);
    EXPECT_EQ(value_at(outcome.y, 1), 1) << where(op, target);
  }
}

TEST(Forward_Edge, NoRowsDoNothing) {
  const std::array<std::int64_t, 2> shape{0, 8};
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  for (const DType dtype : kAllTypes) {
    Forward forward;
    forward.x = {nullptr, dtype, shape};
    forward.y = {nullptr, dtype, shape};
    forward.normalized_shape = normalized;
    for (const internal::Target target : runnable_targets()) {
      EXPECT_NO_THROW(on_target(target)(forward, {}));
      EXPECT_NO_THROW(on_target(target)(forward, pool_executor(2)));
    }
  }
}

}  // namespace
}  // namespace evenorm::contracts
