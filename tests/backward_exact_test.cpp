// Gradients that are known without a reference: exact sums, zeros, values that are not finite, and empty tensors.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "reference/reference.hpp"
#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::filled;
using evenorm::testing::Names;
using evenorm::testing::on_every_target;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool all_bits_zero(const Array& array) {
  return std::ranges::all_of(array.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

TEST(Contract_GradientsExact, OneColumnHasOnlyTheGradientOfBeta) {
  for (const DType dtype : kAllTypes) {
    const Operation op = same_type_backward(Kind::layer, dtype, 1);
    const Inputs inputs = inputs_of(op, {"normal", "huge"}, {"normal"}, 9);
    on_every_target(op, inputs, [](const Outcome& outcome) {
      EXPECT_TRUE(all_bits_zero(outcome.dx));
      EXPECT_TRUE(all_bits_zero(outcome.dgamma));
      EXPECT_FALSE(all_bits_zero(outcome.dbeta));
    });
  }
}

TEST(Contract_GradientsExact, ConstantRowsGiveZeroDgamma) {
  for (const DType dtype : kAllTypes) {
    for (const std::size_t cols : {2, 31, 1500}) {
      Operation op = same_type_backward(Kind::layer, dtype, cols);
      for (const double eps : {1e-5, 0.0}) {
        op.eps = eps;
        const Inputs inputs =
            inputs_of(op, {"constant_0.1", "constant_max", "constant_subnormal", "zeros"}, {"normal"}, 7);
        on_every_target(op, inputs, [&](const Outcome& outcome) {
          for (const double v : values_of(outcome.dgamma)) EXPECT_EQ(v, 0);
          EXPECT_EQ(all_bits_zero(outcome.dx), eps == 0);
        });
      }
    }
  }
}

// x is far below the root of eps, and rstd depends on eps alone. The scale that rstd needs must not lose the mean.
TEST(Contract_GradientsExact, ConstantRowsWithAHugeEpsGiveZeroDgamma) {
  for (const std::size_t cols : {1, 3}) {
    for (const double x : {0x1p-989, 0x1p-600, 0x1p-1074, 0x1p300}) {
      Operation op = same_type_backward(Kind::layer, DType::f64, cols);
      op.eps = 0x1p793;
      const Inputs inputs{filled(DType::f64, cols, x), filled(DType::f64, cols, 0x1p559), filled(DType::f64, cols, 1)};
      on_every_target(op, inputs, [&](const Outcome& outcome) {
        for (const double v : values_of(outcome.dgamma)) EXPECT_EQ(v, 0) << x;
      });
    }
  }
}

TEST(Contract_GradientsExact, RowsWithoutVarianceOrEpsHaveZeroDx) {
  for (const DType dtype : kAllTypes) {
    Operation op = same_type_backward(Kind::rms, dtype, 40);
    op.eps = 0;
    const Names gradients = dtype == DType::f64 ? Names{"normal"} : Names{"normal", "huge"};  // gamma dy overflows
    on_every_target(op, inputs_of(op, {"zeros"}, gradients, 6), [](const Outcome& outcome) {
      for (const double v : values_of(outcome.dx)) EXPECT_EQ(v, 0);
      for (const double v : values_of(outcome.dgamma)) EXPECT_EQ(v, 0);
    });
  }
}

// rstd is 2^133 here, which exceeds f32's range although dx does not.
TEST(Contract_GradientsExact, RowsWithoutVarianceHaveFiniteGradientsForATinyEps) {
  for (const Kind kind : kBothKinds) {
    Operation op = same_type_backward(kind, DType::f32, 40);
    op.eps = 0x1p-266;
    Inputs inputs = inputs_of(op, {"zeros"}, {"normal"}, 9);
    inputs.weight = filled(DType::f32, 40, 1);
    for (std::size_t i = 0; i < 9 * 40; ++i) inputs.dy.set(i, i % 2 == 0 ? 0x1p-60 : -0x1p-60);
    on_every_target(op, inputs, [](const Outcome& outcome) {
      const std::vector<double> dx = values_of(outcome.dx);
      for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], i % 2 == 0 ? 0x1p73 : -0x1p73);
    });
  }
}

// f64: TwoSum of -0.8 max and max leaves the range, its result does not. A sum and what it is accumulated to, likewise.
TEST(Contract_GradientsExact, SumsBesideTheLargestNumberAreFinite) {
  constexpr double kMax = std::numeric_limits<double>::max(), kLess = -0x1.a71373d1bfe6fp+1022;
  for (const bool accumulate : {false, true}) {
    Operation op = same_type_backward(Kind::rms, DType::f64, 1);
    op.accumulate = accumulate;
    Inputs inputs{filled(DType::f64, 8, 1), filled(DType::f64, 8, 0), filled(DType::f64, 1, 1)};
    inputs.dy.set(0, kLess);
    if (!accumulate) inputs.dy.set(4, kMax);
    if (accumulate) inputs.dgamma = inputs.dbeta = filled(DType::f64, 1, kMax);
    on_every_target(op, inputs, [&](const Outcome& outcome) {
      EXPECT_EQ(values_of(outcome.dbeta)[0], kLess + kMax) << accumulate;
    });
  }
}

// dbeta counts rows with dy = 1. In 16-bit types the count is rounded once.
TEST(Contract_GradientsExact, DbetaCountsRowsOfOnes) {
  for (const DType dtype : kAllTypes) {
    for (const DType sum : kAllTypes) {
      for (const std::size_t rows : {4096, 4099, 257}) {
        Operation op = same_type_backward(Kind::layer, dtype, 3);
        op.dbeta = sum;
        Inputs inputs = inputs_of(op, {"normal"}, {"normal"}, rows);
        inputs.dy = filled(dtype, 3 * rows, 1);
        const std::vector<double> nearest = values_of(filled(sum, 3, static_cast<double>(rows)));
        on_every_target(op, inputs, [&](const Outcome& outcome) { EXPECT_EQ(values_of(outcome.dbeta), nearest); });
      }
    }
  }
}

TEST(Contract_GradientsExact, ZerosGivePlusZero) {
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : kAllTypes) {
      const Operation op = same_type_backward(kind, dtype, 33);
      Inputs inputs = inputs_of(op, {"normal", "mean_1e4", "subnormal"}, {"zeros"}, 130);
      inputs.weight = filled(dtype, 33, 2);
      on_every_target(op, inputs, [](const Outcome& outcome) {
        EXPECT_TRUE(all_bits_zero(outcome.dx) && all_bits_zero(outcome.dgamma) && all_bits_zero(outcome.dbeta));
      });
    }
  }
}

// Stores a NaN's sign as well, which conversions need not keep.
void put(Array& array, std::size_t i, double value) {
  array.set(i, value);
  if (std::isnan(value) && std::signbit(value)) array.data()[(i + 1) * size_of(array.dtype()) - 1] |= std::byte{0x80};
}

void expect_verified(const Operation& op, const Inputs& inputs) {
  EXPECT_EQ(verify(case_of(op, inputs.x.size() / op.cols), inputs), "");
}

// verify() knows which results a NaN or an infinity in x, dy or the weight reaches; the others are within their bounds.
TEST(Contract_GradientsExact, NonFiniteInputsReachExactlyTheDocumentedOutputs) {
  struct Place {
    std::size_t rows, cols, row, col;
  };
  for (const Kind kind : kBothKinds) {
    for (const DType dtype : kAllTypes) {
      for (const Place& at : {Place{6, 35, 2, 0}, {6, 35, 5, 34}, {131, 20, 129, 16}, {2, 9000, 1, 4097}}) {
        const Operation op = same_type_backward(kind, dtype, at.cols);
        const Inputs plain = inputs_of(op, {"normal", "mean_1e2"}, {"normal"}, at.rows);
        for (const double value : {kNan, -kNan, kInfinity, -kInfinity}) {
          if (at.cols == 9000 && value != kInfinity) continue;
          for (Array Inputs::*const tensor : {&Inputs::x, &Inputs::dy, &Inputs::weight}) {
            Inputs inputs = plain;
            put(inputs.*tensor, (tensor == &Inputs::weight ? 0 : at.row * at.cols) + at.col, value);
            expect_verified(op, inputs);
          }
        }
      }
    }
  }
}

// Rounding f32 to 16 bits would carry out of a NaN whose payload is all ones.
TEST(Contract_GradientsExact, NansOfAnyPayloadStayNans) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Operation op = same_type_backward(Kind::layer, dtype, 70);
    op.weight = DType::f32;
    Inputs inputs = inputs_of(op, {"normal"}, {"normal"}, 5);
    for (std::size_t i = 0; i < 4; ++i) inputs.weight.data()[3 * 4 + i] = i < 3 ? std::byte{0xFF} : std::byte{0x7F};
    expect_verified(op, inputs);
  }
}

// The product of 0 and a value that is not finite counts, also in constant rows and single columns.
TEST(Contract_GradientsExact, ZerosDoNotHideNonFiniteValues) {
  for (const DType dtype : kAllTypes) {
    const Operation op = same_type_backward(Kind::layer, dtype, 4), one = same_type_backward(Kind::layer, dtype, 1);
    Inputs inputs = inputs_of(op, {"constant_0.1"}, {"zeros"}, 3);
    inputs.weight.set(2, 0);
    inputs.dy.set(1 * 4 + 2, kInfinity);
    expect_verified(op, inputs);
    inputs = inputs_of(one, {"normal"}, {"zeros"}, 3);
    inputs.x.set(1, kInfinity);
    expect_verified(one, inputs);
  }
}

// g exceeds f32's range although dx does not.
TEST(Contract_GradientsExact, OverflowingIntermediatesGiveFiniteDx) {
  constexpr std::size_t kRows = 21;                 // several groups and a few more
  for (const std::size_t cols : {40, 100, 1500}) {  // rows by eights, rows together, and longer rows
    const Operation op = same_type_backward(Kind::rms, DType::f32, cols);
    Inputs inputs = inputs_of(op, {"std_1e4"}, {"normal"}, kRows);
    inputs.dy = filled(DType::f32, kRows * cols, 0x1p100);
    inputs.weight = filled(DType::f32, cols, 0x1p32);
    on_every_target(op, inputs, [&](const Outcome& outcome) {
      std::size_t different_from_zero = 0;
      for (const double v : values_of(outcome.dx)) {
        EXPECT_TRUE(std::isfinite(v));
        different_from_zero += v != 0 ? 1 : 0;
      }
      EXPECT_GT(different_from_zero, 19 * kRows * cols / 20);
    });
  }
}

// A row of f64 is scaled according to its largest magnitudes, which a NaN must not replace.
TEST(Contract_GradientsExact, ANanDoesNotHideAHugeNumberBeforeIt) {
  const std::size_t cols = 64, nan_at = 32;  // in the same lane of a vector
  const Operation op = same_type_backward(Kind::rms, DType::f64, cols);
  Inputs inputs = inputs_of(op, {"normal"}, {"normal"}, 1);
  inputs.x = filled(DType::f64, cols, 0x1p40);
  inputs.dy = filled(DType::f64, cols, 1);
  inputs.dy.set(0, 0x1p1000);
  inputs.dy.set(nan_at, kNan);
  on_every_target(op, inputs, [](const Outcome& outcome) {
    const std::vector<double> dgamma = values_of(outcome.dgamma);
    EXPECT_NEAR(dgamma[0] / 0x1p1000, 1, 1e-9);
    for (std::size_t i = 1; i < cols; ++i) EXPECT_EQ(std::isnan(dgamma[i]), i == nan_at);
  });
}

TEST(Contract_GradientsExact, NoRowsWriteZeroOrKeepAccumulators) {
  for (const DType dtype : kAllTypes) {
    Operation op = same_type_backward(Kind::layer, dtype, 5);
    Inputs inputs = inputs_of(op, {"normal"}, {"normal"}, 0);
    inputs.dgamma = inputs.dbeta = filled(dtype, 5, 3);
    on_every_target(op, inputs, [](const Outcome& outcome) {
      EXPECT_TRUE(all_bits_zero(outcome.dgamma) && all_bits_zero(outcome.dbeta));
    });
    op.accumulate = true;
    on_every_target(op, inputs, [&](const Outcome& outcome) {
      EXPECT_TRUE(std::ranges::equal(outcome.dgamma.bytes(), inputs.dgamma.bytes()));
      EXPECT_TRUE(std::ranges::equal(outcome.dbeta.bytes(), inputs.dbeta.bytes()));
    });
  }
}

// The old value is added before the one rounding.
TEST(Contract_GradientsExact, AccumulateAddsToTheOldValue) {
  for (const DType dtype : kAllTypes) {
    for (const std::size_t cols : {3, 20000}) {  // by row blocks, and by groups of columns
      Operation op = same_type_backward(Kind::layer, dtype, cols);
      const std::size_t rows = cols == 3 ? 300 : 5;
      Inputs inputs = inputs_of(op, {"normal"}, {"normal"}, rows);
      inputs.dy = filled(dtype, rows * cols, 1);
      op.dgamma = op.dbeta = DType::f64;
      const Outcome alone = run_operation(on_target(runnable_targets()[0]), op, inputs);
      const double held = 4096;
      op.dbeta = dtype;
      op.accumulate = true;
      inputs.dgamma = filled(DType::f64, cols, held);
      inputs.dbeta = filled(dtype, cols, held);
      const auto sum = static_cast<double>(rows) + held;
      on_every_target(op, inputs, [&](const Outcome& outcome) {
        EXPECT_EQ(values_of(outcome.dbeta), values_of(filled(dtype, cols, sum)));
        const std::vector<double> dgamma = values_of(outcome.dgamma), before = values_of(alone.dgamma);
        for (std::size_t i = 0; i < cols; ++i) EXPECT_NEAR(dgamma[i], held + before[i], 0x1p-40) << i;
      });
    }
  }
}

// Mean 0 and rstd 1, which are not the row's own, leave x unchanged.
TEST(Contract_GradientsExact, PrecomputedStatisticsAreUsed) {
  Operation op = same_type_backward(Kind::layer, DType::f32, 33);
  op.dgamma = DType::f64;
  Inputs inputs = inputs_of(op, {"mean_1e2"}, {"normal"}, 1);
  inputs.mean = {0};
  inputs.rstd = {1};
  const std::vector<double> x = values_of(inputs.x), dy = values_of(inputs.dy);
  on_every_target(op, inputs, [&](const Outcome& outcome) {
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(values_of(outcome.dgamma)[i], static_cast<float>(x[i] * dy[i])) << i;
  });
}

// An f64 mean without its low part is used where it is no larger than the standard deviation, and rstd in range.
TEST(Contract_GradientsExact, PrecomputedStatisticsOfF64AreUsedIfTheySuffice) {
  const Operation op = same_type_backward(Kind::layer, DType::f64, 33);
  Inputs inputs = inputs_of(op, {"mean_1e2"}, {"normal"}, 1);
  const Outcome found = run_operation(on_target(runnable_targets()[0]), op, inputs);
  struct Given {
    double mean, rstd;
    bool is_used;
  };
  for (const Given& given : {Given{0.0, 1.0, true},
                             {2.0, 0.5, true},
                             {-2.0, 0.75, false},
                             {0.0, 0x1p250, true},
                             {0.0, 0x1p251, false},
                             {0.0, 0.0, true},
                             {0.0, 0x1p-251, false},
                             {0.0, std::nan(""), false}}) {
    inputs.mean = {given.mean};
    inputs.rstd = {given.rstd};
    on_every_target(op, inputs, [&](const Outcome& outcome) {
      EXPECT_EQ(outcome.has_the_bits_of(found), !given.is_used) << given.mean << " " << given.rstd;
    });
  }
}

}  // namespace
}  // namespace evenorm::contracts
