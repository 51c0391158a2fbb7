// Norms over processes. Cuts at blocks give the bits of the whole row, and other cuts keep the bounds, on every target.
// Then processes as threads: what they agree on, what they send, and the errors of all if one fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contracts/backward_accuracy.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::BackwardInputs;
using contracts::BackwardOperation;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::runnable_targets;
using ::testing::Each;
using ::testing::HasSubstr;

// The results of one process with whole rows.
ShardedOutcome whole(const BackwardOperation& op, const BackwardInputs& inputs, const Array& bias) {
  const internal::Target target = runnable_targets()[0];
  const contracts::Outcome y = run_operation(contracts::on_target(target), op.forward, inputs.x, inputs.weight, bias);
  return {y.y, y.mean, y.rstd, run_backward(contracts::gradients_on_target(target), op, inputs), {}};
}

Array bias_of(const BackwardOperation& op) {
  return op.forward.bias ? contracts::make_bias(*op.forward.bias, op.forward.cols) : Array();
}

void expect_bits_of_the_whole(const BackwardOperation& op, const BackwardInputs& inputs, const Columns& columns,
                              const std::string& what) {
  const Array bias = bias_of(op);
  const ShardedOutcome expected = whole(op, inputs, bias);
  for (const internal::Target target : runnable_targets()) {
    const ShardedOutcome outcome = sharded_in_steps(target, op, inputs, bias, columns, contracts::reversed_executor(3));
    const std::string where = what + ", " + op.name() + " on " + std::string(internal::name(target));
    EXPECT_TRUE(std::ranges::equal(outcome.y.bytes(), expected.y.bytes())) << "y, " << where;
    EXPECT_TRUE(op.forward.kind == Kind::rms || same_bits(outcome.mean, expected.mean)) << "mean, " << where;
    EXPECT_TRUE(same_bits(outcome.rstd, expected.rstd)) << "rstd, " << where;
    EXPECT_TRUE(outcome.gradients.has_the_bits_of(expected.gradients)) << "gradients, " << where;
  }
}

// Every kind of row. f64 rows out of range are left out, because processes that share one make it NaN.
Names rows_of_type(DType type) {
  Names names = {"normal", "mean_1e4", "constant_0.1", "steps", "zeros", "ramp", "mean_1e6", "outlier_1e6_at_5"};
  if (type != DType::f64) names.insert(names.end(), {"huge", "subnormal", "wide_exponents", "std_1e30", "std_1e-30"});
  return names;
}

class Contract_Sharded : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_Sharded, CutAtBlocksHasTheBitsOfTheWhole) {
  constexpr std::size_t kCols = 5 * 1024 + 77;
  for (const Kind kind : kBothKinds) {
    BackwardOperation op = contracts::same_type_backward(kind, GetParam(), kCols);
    BackwardInputs inputs = inputs_of(op, rows_of_type(GetParam()), {"normal", "mean_1e4", "zeros", "ramp"}, 12);
    inputs.x.set(9 * kCols + 1500, kNan);
    for (const Columns& columns : {Columns{kCols}, Columns{1024, kCols - 1024}, Columns{4096, 1024, 77},
                                   Columns{0, 3072, 0, 2048, 77, 0}, Columns{2048, 2048, kCols - 4096}}) {
      expect_bits_of_the_whole(op, inputs, columns, std::to_string(columns.size()) + " processes");
    }
  }
}

TEST_P(Contract_Sharded, ManyRowsHaveTheBitsOfTheWhole) {
  constexpr std::size_t kCols = 2 * 1024 + 300;
  for (const Kind kind : kBothKinds) {
    const BackwardOperation all = contracts::same_type_backward(kind, GetParam(), kCols);
    const BackwardInputs inputs = inputs_of(all, rows_of_type(GetParam()), {"normal", "steps"}, 300);
    for (int asked = 1; asked < 8; ++asked) {
      BackwardOperation op = all;
      op.forward.zero_centered = asked % 2 == 0;
      if ((asked & 1) == 0) op.dx.reset();
      if ((asked & 2) == 0) op.dgamma.reset();
      if ((asked & 4) == 0) op.dbeta.reset();
      if (asked == 5 || asked == 7) expect_bits_of_the_whole(op, inputs, {1024, 1324}, "many rows");
    }
  }
}

// The whole rows are one row block. A separate norm of a shard's columns would have two.
TEST_P(Contract_Sharded, RowsOfOneBlockHaveTheBitsOfTheWhole) {
  for (const std::size_t rows : {40, 70}) {
    BackwardOperation op = contracts::same_type_backward(Kind::layer, GetParam(), 2048);
    op.dgamma = op.dbeta = DType::f64;  // f64 shows the last places
    const BackwardInputs inputs = inputs_of(op, rows_of_type(GetParam()), {"normal", "steps"}, rows);
    expect_bits_of_the_whole(op, inputs, {1024, 1024}, std::to_string(rows) + " rows");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_Sharded, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

TEST(Contract_Sharded, MixturesOfTypesAndEpsHaveTheBitsOfTheWhole) {
  using enum DType;
  for (const double eps : {0.0, 1e-5, 1e80}) {  // above 2^251, every row of f32 is rare
    for (const DType weight : {f32, f64, bf16}) {
      const bool rms = weight == bf16;  // has no bias, which would hide tiny results
      BackwardOperation op{contracts::Operation{rms ? Kind::rms : Kind::layer, bf16, f32, weight, {}, true, eps, 2500}};
      if (!rms) op.forward.bias = weight;
      op.dx = f32;
      op.dgamma = f64;
      op.dbeta = bf16;
      const BackwardInputs inputs = inputs_of(op, rows_of_type(bf16), {"normal"}, 13);
      expect_bits_of_the_whole(op, inputs, {1024, 1476}, "mixtures");
    }
  }
}

// --- other cuts ----------------------------------------------------------------------------------------------------

void expect_within_bounds(const BackwardOperation& op, const BackwardInputs& inputs, const Columns& columns,
                          const std::string& what) {
  const Array bias = bias_of(op);
  const std::size_t cols = op.forward.cols, rows = inputs.x.size() / cols;
  const contracts::ExpectedGradients gradients(op.measured(), inputs.x, inputs.dy, inputs.weight);
  for (const internal::Target target : runnable_targets()) {
    const ShardedOutcome outcome = sharded_in_steps(target, op, inputs, bias, columns);
    const std::string where = what + ", " + op.name() + " on " + std::string(internal::name(target));
    for (std::size_t r = 0; r < rows; ++r) {
      const contracts::Expected expected(op.forward, inputs.x.part(r * cols, cols), inputs.weight, bias);
      const contracts::Errors errors =
          expected.errors_of(outcome.y, r * cols, outcome.mean.empty() ? 0 : outcome.mean[r], outcome.rstd[r]);
      EXPECT_TRUE(errors.within_limits(op.forward)) << where << ", row " << r << ": y " << errors.output;
    }
    const contracts::GradientErrors errors =
        gradients.errors_of(outcome.gradients.dx, outcome.gradients.dgamma, outcome.gradients.dbeta);
    EXPECT_TRUE(errors.within_limits(op.measured()))
        << where << ": dx " << errors.dx << ", dgamma " << errors.dgamma << ", dbeta " << errors.dbeta;
  }
}

// The squares of a row of f64 are 0 once rounded, its mean is not.
TEST(Contract_ShardedAccuracy, VanishingRowsAreWithinTheBound) {
  for (const Kind kind : kBothKinds) {
    const BackwardOperation op = contracts::same_type_backward(kind, DType::f64, 2048);
    BackwardInputs inputs = inputs_of(op, {"zeros"}, {"normal"}, 2);
    for (std::size_t i = 0; i < op.forward.cols; ++i) inputs.x.set(i, i % 2 == 0 ? 1e-200 : 2e-200);
    expect_within_bounds(op, inputs, {1024, 1024}, "vanishing");
    for (std::size_t i = 0; i < op.forward.cols; ++i) inputs.x.set(i, (1e6 + static_cast<double>(i % 7)) * 1e-170);
    expect_within_bounds(op, inputs, {1024, 1024}, "vanishing, with a large mean");
  }
}

class Contract_ShardedAccuracy : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_ShardedAccuracy, EveryAdversarialRowIsWithinTheBound) {
  std::size_t turn = 0;
  for (const std::size_t cols : {31, 1300, 3300}) {
    const auto n = static_cast<std::int64_t>(cols);
    const Columns cuts[] = {{1, n / 4, n - n / 4 - 1}, {0, n - 1, 1}, {n / 2, 0, 0, n - n / 2}, {n - 3, 1, 1, 1}, {n}};
    for (const std::string_view name : contracts::input_names(GetParam(), cols)) {
      for (const Kind kind : kBothKinds) {
        BackwardOperation op = contracts::same_type_backward(kind, GetParam(), cols);
        op.forward.eps = turn % 3 == 2 ? 0 : 1e-5;
        const BackwardInputs inputs = inputs_of(op, {name}, {"normal"}, 2, turn);
        const Columns& columns = cuts[turn++ % std::size(cuts)];
        if (fits_processes(op.forward, inputs.x)) expect_within_bounds(op, inputs, columns, std::string(name));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_ShardedAccuracy, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// f64 rows of processes that differ in magnitude, in x, dy or gamma, and sums that cancel or nearly vanish.
TEST(Contract_ShardedAccuracy, ProcessesOfDifferentMagnitudesAreWithinTheBound) {
  constexpr std::size_t kShard = 40, kCols = 3 * kShard;
  const double sizes[] = {0, 1e-320, 1e-200, 1e-70, 1, 1e35, 1e70};
  contracts::Random random(3);
  for (int round = 0; round < 150; ++round) {
    const auto values = [&](double largest) {
      std::vector<double> all(kCols);
      for (std::size_t shard = 0; shard < 3; ++shard) {
        const double size = std::min(sizes[random.below(std::size(sizes))], largest);
        for (std::size_t i = 0; i < kShard; ++i) all[shard * kShard + i] = size * (2 * random.uniform() - 0.7);
      }
      return Array(DType::f64, all);
    };
    for (const Kind kind : kBothKinds) {
      BackwardOperation op = contracts::same_type_backward(kind, DType::f64, kCols);
      op.forward.bias.reset();
      op.forward.eps = round % 2 == 0 ? 1e-5 : 0;
      const BackwardInputs inputs{values(1e70), values(round % 3 == 0 ? 1e70 : 1), values(1)};
      if (!fits_processes(op.forward, inputs.x)) continue;
      expect_within_bounds(op, inputs, {kShard, kShard, kShard}, "round " + std::to_string(round));
    }
  }
}

// --- processes as threads ------------------------------------------------------------------------------------------

struct Made {
  BackwardOperation op;
  BackwardInputs inputs;
  Array bias;
};
Made example(DType type, std::size_t cols, std::size_t rows = 6) {
  Made made{contracts::same_type_backward(Kind::layer, type, cols), {}, {}};
  made.inputs = inputs_of(made.op, {"normal", "mean_1e4"}, {"normal"}, rows);
  made.bias = bias_of(made.op);
  return made;
}

TEST(ShardedNorm_Processes, HaveTheBitsOfTheWholeWithOneGatherPerPass) {
  constexpr std::size_t kCols = 8192;
  const Made made = example(DType::f32, kCols);
  const ShardedOutcome expected = whole(made.op, made.inputs, made.bias);
  for (const Columns& columns :
       {Columns{8192}, Columns{4096, 4096}, Columns{1024, 0, 7168}, Columns{2048, 2048, 2048, 2048}}) {
    const auto shards = shards_of(made.op, made.inputs, made.bias, columns);
    Processes processes(columns.size());
    processes.run([&](const Communicator& communicator) {
      Shard& shard = *shards[communicator.rank];
      ShardedNorm norm(shard.forward, communicator);
      std::vector<Moments> moments(norm.rows());
      norm.run(shard.forward, moments, pool_executor(2));
      norm.run(shard.backward, moments);
    });
    const ShardedOutcome outcome = outcome_of(made.op, shards);
    EXPECT_TRUE(std::ranges::equal(outcome.y.bytes(), expected.y.bytes()));
    EXPECT_TRUE(outcome.gradients.has_the_bits_of(expected.gradients));
    for (const auto& shard : shards) {
      EXPECT_TRUE(same_bits(shard->mean, expected.mean));
      EXPECT_TRUE(same_bits(shard->rstd, expected.rstd));
    }
    EXPECT_EQ(processes.gathers(), 3u);
  }
}

// Gathering x would send 2048 columns of f32 for each row.
TEST(ShardedNorm_Processes, SendAtMostAHundredthOfX) {
  constexpr std::size_t kRows = 64;
  const Made made = example(DType::f32, 8192, kRows);
  const Columns columns = {2048, 2048, 2048, 2048};
  const auto shards = shards_of(made.op, made.inputs, made.bias, columns);
  Processes processes(4);
  std::size_t before = 0;
  processes.run([&](const Communicator& communicator) {
    ShardedNorm norm(shards[communicator.rank]->forward, communicator);
    if (communicator.rank == 0) before = processes.bytes();
    norm.run(shards[communicator.rank]->forward);
    EXPECT_EQ(norm.bytes(), 200 + kRows * 16);
  });
  EXPECT_EQ(processes.bytes() - before, 200 + kRows * 16);
  EXPECT_LT((processes.bytes() - before) * 100, kRows * 2048 * 4);
}

TEST(ShardedNorm_Processes, PlainFormsHaveTheBitsOfTheWhole) {
  constexpr std::size_t kRows = 3, kShard = 1024, kCols = 2 * kShard;
  const Array x = contracts::make_input("normal", DType::f32, kRows * kCols);
  std::vector<float> expected(kRows * kCols), expected_dx(kRows * kCols), dx(kRows * kCols), y(kRows * kCols);
  std::vector<float> values(kRows * kCols);
  std::memcpy(values.data(), x.data(), values.size() * 4);
  rms_norm<float>(values, expected, kCols);
  rms_norm_backward<float>(values, values, expected_dx, kCols);
  Processes(2).run([&](const Communicator& communicator) {
    std::vector<float> own(kRows * kShard), own_y(kRows * kShard), own_dx(kRows * kShard);
    const std::size_t first = communicator.rank * kShard;
    const auto copy = [&](const float* from, std::size_t from_step, float* to, std::size_t to_step) {
      for (std::size_t r = 0; r < kRows; ++r) std::copy_n(from + r * from_step, kShard, to + r * to_step);
    };
    copy(values.data() + first, kCols, own.data(), kShard);
    std::vector<Moments> moments(kRows);
    sharded_rms_norm<float>(communicator, own, own_y, kShard, moments);
    sharded_rms_norm_backward<float>(communicator, own, own, own_dx, kShard, moments);
    copy(own_y.data(), kShard, y.data() + first, kCols);
    copy(own_dx.data(), kShard, dx.data() + first, kCols);
  });
  EXPECT_EQ(y, expected);
  EXPECT_EQ(dx, expected_dx);
}

// The error of each process.
std::vector<std::string> told(std::size_t size, const std::function<void(const Communicator&)>& work) {
  std::vector<std::string> all(size);
  Processes(size).run([&](const Communicator& communicator) {
    try {
      work(communicator);
    } catch (const Error& error) {
      all[communicator.rank] = error.what();
    }
  });
  return all;
}

TEST(ShardedNorm_Refuses, Disagreements) {
  const auto expect = [](const std::function<void(Forward&)>& change, const std::string& message) {
    const Made made = example(DType::f32, 96);
    const auto shards = shards_of(made.op, made.inputs, made.bias, {32, 32, 32});
    change(shards[2]->forward);
    for (const std::string& text : told(3, [&](const Communicator& communicator) {
           ShardedNorm norm(shards[communicator.rank]->forward, communicator);
         })) {
      EXPECT_EQ(text, message);
    }
  };
  const std::int64_t five_rows[] = {5, 32};
  expect(
      [&](Forward& f) {
        f.x.shape = f.y.shape = five_rows;
        f.mean = f.rstd = {};
      },
      "x has 6 rows in process 0, but 5 rows in process 2");
  expect([](Forward& f) { f.x.dtype = DType::bf16; }, "x is of dtype f32 in process 0, but of dtype bf16 in process 2");
  expect([](Forward& f) { f.y.dtype = DType::f64; }, "y is of dtype f32 in process 0, but of dtype f64 in process 2");
  expect([](Forward& f) { f.weight = {}; }, "weight is of dtype f32 in process 0, but absent in process 2");
  expect([](Forward& f) { f.eps = 1e-6; }, "eps is 1e-05 in process 0, but 1e-06 in process 2");
  expect([](Forward& f) { f.zero_centered = true; }, "zero_centered is not set in process 0, but set in process 2");
  expect(
      [](Forward& f) {
        f.kind = Kind::rms;
        f.mean = {};
      },
      "kind is layer in process 0, but rms in process 2");
}

// The process that fails reports the reason, and all others name that process.
TEST(ShardedNorm_Refuses, WrongArgumentsOfOneProcessInAll) {
  const Made made = example(DType::f32, 96);
  const auto shards = shards_of(made.op, made.inputs, made.bias, {32, 32, 32});
  shards[1]->forward.eps = -1;
  std::vector<std::string> texts = told(
      3, [&](const Communicator& communicator) { ShardedNorm norm(shards[communicator.rank]->forward, communicator); });
  EXPECT_EQ(texts[1], "eps is -1, but it should be finite and at least 0");
  EXPECT_EQ(texts[0], "process 1 has failed: " + texts[1]);
  EXPECT_EQ(texts[2], texts[0]);

  shards[1]->forward.eps = 1e-5;
  const auto run_with = [&](const std::function<void(Shard&)>& change, bool back) {
    return told(3, [&](const Communicator& communicator) {
      Shard& shard = *shards[communicator.rank];
      ShardedNorm norm(shard.forward, communicator);
      std::vector<Moments> moments(norm.rows());
      if (back) norm.run(shard.forward, moments);
      if (communicator.rank == 2) change(shard);
      back ? norm.run(shard.backward, moments) : norm.run(shard.forward, moments);
    });
  };
  const Array untouched = shards[0]->y;
  texts = run_with([](Shard& shard) { shard.forward.eps = 1e-3; }, false);
  EXPECT_EQ(texts[2], "eps is 0.001, but 1e-05 when the norm was made");
  EXPECT_EQ(texts[0], "process 2 has failed: " + texts[2]);
  EXPECT_TRUE(std::ranges::equal(shards[0]->y.bytes(), untouched.bytes())) << "written before all checks";
  shards[2]->forward.eps = 1e-5;
  texts = run_with([](Shard& shard) { shard.forward.y.data = shard.weight.data(); }, false);
  EXPECT_THAT(texts[0], HasSubstr("process 2 has failed: "));
  shards[2]->forward.y.data = shards[2]->y.data();
  texts = run_with([](Shard& shard) { shard.backward.dy.dtype = DType::f64; }, true);
  EXPECT_THAT(texts[1], HasSubstr("process 2 has failed: the arithmetic is f64"));
  shards[2]->backward.dy.dtype = DType::f32;
  texts = run_with([](Shard& shard) { shard.backward.weight = {}; }, true);
  EXPECT_THAT(texts[1], HasSubstr("process 2 has failed: weight is absent"));
  shards[2]->backward.weight = shards[2]->forward.weight;
  texts = run_with([](Shard& shard) { shard.backward.zero_centered = true; }, true);
  EXPECT_THAT(texts[1], HasSubstr("process 2 has failed: zero_centered is set, but not set when the norm was made"));
  shards[2]->backward.zero_centered = false;
  texts = run_with([](Shard& shard) { shard.forward.weight.data = nullptr; }, false);
  EXPECT_EQ(texts[2], "weight is null, but it has a shape");
}

// The errors of three processes from `work` with a norm. Afterwards all must still be in step.
std::vector<std::string> told_by(const std::function<void(ShardedNorm&, Shard&, std::size_t rank)>& work) {
  const Made made = example(DType::f32, 96);
  const auto shards = shards_of(made.op, made.inputs, made.bias, {32, 32, 32});
  return told(3, [&](const Communicator& communicator) {
    Shard& shard = *shards[communicator.rank];
    ShardedNorm norm(shard.forward, communicator);
    const auto finally_in_step = [&] { EXPECT_NO_THROW(norm.run(shard.forward)); };
    try {
      work(norm, shard, communicator.rank);
    } catch (const Error&) {
      finally_in_step();
      throw;
    }
    finally_in_step();
  });
}

TEST(ShardedNorm_Refuses, DifferentPasses) {
  EXPECT_THAT(told_by([](ShardedNorm& norm, Shard& shard, std::size_t rank) {
                std::vector<Moments> moments(norm.rows());
                norm.run(shard.forward, moments);
                rank == 1 ? norm.run(shard.forward) : norm.run(shard.backward, moments);
              }),
              Each("process 0 runs its backward pass, but process 1 its forward pass"));
}

TEST(ShardedNorm_Refuses, TheCallersRefusalsInAll) {
  const std::string text = "process 1 has failed: no batch is left";
  EXPECT_EQ(told_by([](ShardedNorm& norm, Shard& shard, std::size_t rank) {
              rank == 1 ? norm.refuse("no batch is left") : norm.run(shard.forward);
            }),
            (std::vector<std::string>{text, "", text}));
  const Made made = example(DType::f32, 96);
  const auto shards = shards_of(made.op, made.inputs, made.bias, {32, 32, 32});
  EXPECT_EQ(told(3,
                 [&](const Communicator& communicator) {
                   if (communicator.rank == 1) return ShardedNorm::refuse(communicator, "no batch is left");
                   const ShardedNorm norm(shards[communicator.rank]->forward, communicator);
                 }),
            (std::vector<std::string>{text, "", text}));
}

// Other processes get a shortened text. The failing process keeps its own.
TEST(ShardedNorm_Refuses, WithShortenedTexts) {
  const std::string why(300, 'x');
  const std::vector<std::string> texts = told_by([&](ShardedNorm& norm, Shard& shard, std::size_t rank) {
    rank == 1 ? norm.refuse(why) : norm.run(shard.forward);
  });
  EXPECT_EQ(texts[0], "process 1 has failed: " + std::string(189, 'x') + "...");
}

TEST(ShardedNorm_Refuses, SpansOfOneProcessThatDoNotFitInAll) {
  const std::vector<float> x(12);
  std::vector<float> y(12);
  std::vector<std::string> texts = told(3, [&](const Communicator& c) {
    std::vector<float> own = y;
    sharded_layer_norm<float>(c, x, own, c.rank == 1 ? 5 : 4);
  });
  EXPECT_EQ(texts[1], "x has 12 elements, but cols is 5");
  EXPECT_EQ(texts[0], "process 1 has failed: " + texts[1]);
  EXPECT_EQ(texts[2], texts[0]);
  const std::vector<Moments> moments(3);
  texts = told(3, [&](const Communicator& c) {
    std::vector<float> dx(c.rank == 1 ? 11 : 12);
    sharded_rms_norm_backward<float>(c, x, x, dx, 4, moments);
  });
  EXPECT_EQ(texts[1], "dx has 11 elements, but x has 12");
  EXPECT_EQ(texts[2], "process 1 has failed: " + texts[1]);
}

TEST(ShardedNorm_Refuses, MomentsThatOverlapATensor) {
  const auto refused = [](const std::function<std::span<Moments>(Shard&)>& place, bool back) {
    return told_by([&](ShardedNorm& norm, Shard& shard, std::size_t rank) {
      std::vector<Moments> apart(norm.rows());
      const std::span<Moments> moments = rank == 1 ? place(shard) : std::span(apart);
      back ? norm.run(shard.backward, moments) : norm.run(shard.forward, moments);
    })[1];
  };
  const auto over = [](Array Shard::*array) {
    return [array](Shard& shard) { return std::span(reinterpret_cast<Moments*>((shard.*array).data()), shard.rows); };
  };
  EXPECT_EQ(refused(over(&Shard::y), false), "moments may overlap y");
  EXPECT_EQ(refused(over(&Shard::x), false), "moments may overlap x");
  EXPECT_EQ(refused(over(&Shard::dx), true), "dx may overlap moments");
}

// No process can have so many rows in memory, but a norm can be made without buffers.
TEST(ShardedNorm_Refuses, MoreRowsThanMessagesCanHold) {
  const std::int64_t shape[] = {std::int64_t{1} << 46, 1};
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  Forward forward{.x = {nullptr, DType::f32, shape}, .y = {nullptr, DType::f32, shape}, .normalized_shape = normalized};
  for (const std::string& text : told(2, [&](const Communicator& c) { ShardedNorm norm(forward, c); })) {
    EXPECT_EQ(text, "x has 70368744177664 rows, whose messages (2 numbers per row, 2 processes) exceed 2^47 bytes");
  }
}

// The norm treats gamma the same whether its buffer exists yet or not.
TEST(ShardedNorm_Processes, AreMadeWithoutBuffers) {
  Made made = example(DType::f32, 2048);
  made.op.forward.zero_centered = true;
  const ShardedOutcome expected = whole(made.op, made.inputs, made.bias);
  const auto shards = shards_of(made.op, made.inputs, made.bias, {1024, 1024});
  EXPECT_EQ(told(2,
                 [&](const Communicator& communicator) {
                   Shard& shard = *shards[communicator.rank];
                   Forward bare = shard.forward;
                   for (ConstTensor* tensor : {&bare.x, &bare.weight, &bare.bias}) tensor->data = nullptr;
                   bare.y.data = nullptr;
                   ShardedNorm norm(bare, communicator);
                   norm.run(shard.forward);
                 }),
            std::vector<std::string>(2));
  EXPECT_TRUE(std::ranges::equal(outcome_of(made.op, shards).y.bytes(), expected.y.bytes()));
}

// Every kind of row, in any layout and with any type of statistics.
TEST(ShardedNorm_Processes, WithoutColumnsWriteTheStatisticsOfWholeRows) {
  constexpr std::size_t kCols = 1100, kRowsInAll = 16;
  for (const DType type : contracts::kAllTypes) {
    for (const Kind kind : kBothKinds) {
      const BackwardOperation op = contracts::same_type_backward(kind, type, kCols);
      Names names = rows_of_type(type);
      if (type == DType::f64) names.push_back("subnormal");
      BackwardInputs inputs = inputs_of(op, names, {"normal"}, kRowsInAll);
      inputs.x.set(3 * kCols + 1050, kNan);
      const Array bias = bias_of(op);
      const ShardedOutcome expected = whole(op, inputs, bias);
      const auto shards = shards_of(op, inputs, bias, {0, 1024, 76, 0});
      std::vector<float> mean(2 * kRowsInAll, -7), rstd(mean);
      const std::int64_t shape[] = {4, 4, 0}, outer[] = {4, 4}, strides[] = {8, 2}, columns[] = {-1};
      Forward& last = shards[3]->forward;
      last.x.shape = last.y.shape = shape;
      last.normalized_shape = {};
      last.axes = columns;
      if (kind == Kind::layer) last.mean = {mean.data(), DType::f32, outer, strides};
      last.rstd = {rstd.data(), DType::f32, outer, strides};
      EXPECT_EQ(told(4,
                     [&](const Communicator& communicator) {
                       const Forward& forward = shards[communicator.rank]->forward;
                       ShardedNorm(forward, communicator).run(forward, {}, pool_executor(2));
                     }),
                std::vector<std::string>(4));
      for (const std::size_t process : {0, 1, 2}) {
        EXPECT_TRUE(kind == Kind::rms || same_bits(shards[process]->mean, expected.mean)) << op.name();
        EXPECT_TRUE(same_bits(shards[process]->rstd, expected.rstd)) << op.name();
      }
      const auto is = [](float found, double of_whole) {
        return found == static_cast<float>(of_whole) || (std::isnan(found) && std::isnan(of_whole));
      };
      for (std::size_t r = 0; r < kRowsInAll; ++r) {
        EXPECT_TRUE(kind == Kind::rms || is(mean[2 * r], expected.mean[r])) << op.name() << ", row " << r;
        EXPECT_TRUE(is(rstd[2 * r], expected.rstd[r])) << op.name() << ", row " << r;
        EXPECT_TRUE(mean[2 * r + 1] == -7 && rstd[2 * r + 1] == -7);
      }
    }
  }
}

// Wrong statistics are refused as in other processes.
TEST(ShardedNorm_Refuses, WrongStatisticsOfAProcessWithoutColumns) {
  const Made made = example(DType::f32, 96);
  const auto expect = [&](const std::string& text, const std::function<void(Shard&, std::vector<Moments>&)>& spoil) {
    const auto shards = shards_of(made.op, made.inputs, made.bias, {96, 0});
    const std::vector<std::string> texts = told(2, [&](const Communicator& communicator) {
      Shard& shard = *shards[communicator.rank];
      ShardedNorm norm(shard.forward, communicator);
      std::vector<Moments> moments(norm.rows());
      if (communicator.rank == 1) spoil(shard, moments);
      norm.run(shard.forward, moments);
    });
    EXPECT_EQ(texts, (std::vector<std::string>{"process 1 has failed: " + text, text}));
  };
  static const std::int64_t kFive[] = {5};
  expect("rstd has shape (5), but x has rows of shape (6)", [](Shard& s, auto&) { s.forward.rstd.shape = kFive; });
  expect("mean has dtype bf16, but statistics should be f64 or f32",
         [](Shard& s, auto&) { s.forward.mean.dtype = DType::bf16; });
  expect("mean may overlap rstd", [](Shard& s, auto&) { s.forward.mean.data = s.forward.rstd.data; });
  expect("moments may overlap rstd", [](Shard& s, auto& moments) { s.forward.rstd.data = moments.data(); });
}

TEST(ShardedNorm_Refuses, UnsupportedForms) {
  const Made made = example(DType::f32, 64);
  const auto refuses = [&](const std::function<void(Forward&)>& change) {
    const auto shards = shards_of(made.op, made.inputs, made.bias, {64});
    change(shards[0]->forward);
    return told(1, [&](const Communicator& c) { ShardedNorm norm(shards[0]->forward, c); })[0];
  };
  EXPECT_THAT(refuses([](Forward& f) { f.y.dtype = DType::i8; }), HasSubstr("y has dtype i8"));
  EXPECT_THAT(refuses([](Forward& f) { f.residual = f.x; }), HasSubstr("residual is given"));
  EXPECT_THROW((Cuts(Columns{3, -1}, 0)), Error);
  EXPECT_THROW((Cuts(Columns{3, 1}, 2)), Error);
  EXPECT_THROW((Cuts(Columns{0, 0}, 0)), Error);
  EXPECT_THROW((Cuts(Columns{std::int64_t{1} << 47, (std::int64_t{1} << 47) + 1}, 0)), Error);
}

TEST(ShardedNorm_Cuts, PartsAreSubtreesOfTheWholeRow) {
  const Cuts cuts(Columns{3 * 1024, 0, 6 * 1024, 100}, 0);
  EXPECT_TRUE(cuts.at_blocks());
  const auto blocks = [&](std::size_t process) {
    std::vector<std::size_t> all;
    for (const Cuts::Part& part : cuts.parts_of(process)) all.push_back(part.blocks);
    return all;
  };
  EXPECT_EQ(blocks(0), (std::vector<std::size_t>{2, 1}));
  EXPECT_EQ(blocks(1), std::vector<std::size_t>{});
  EXPECT_EQ(blocks(2), (std::vector<std::size_t>{1, 4, 1}));
  EXPECT_EQ(blocks(3), std::vector<std::size_t>{1});
  EXPECT_EQ(cuts.numbers(Pass::forward, Kind::layer, false), 6u);
  EXPECT_EQ(cuts.numbers(Pass::forward, Kind::layer, true), 9u);
  EXPECT_FALSE(Cuts(Columns{1000, 24}, 0).at_blocks());
  EXPECT_EQ(Cuts(Columns{5000, 24}, 0).numbers(Pass::backward, Kind::rms, false), 1u);
  EXPECT_TRUE(Cuts(Columns{1024, 0, 24}, 0).at_blocks());
}

}  // namespace
}  // namespace evenorm::testing
