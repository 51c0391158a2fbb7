// Norms over processes, as threads: what the processes agree on, what they send, and the errors of all if one fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/processes.hpp"
#include "support/refusal.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kBothKinds;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(ShardedNorm_Processes, HaveTheBitsOfTheWholeWithOneGatherPerPass) {
  const Example it = example(Kind::layer, DType::f32, 8192);
  for (const Columns& columns :
       {Columns{8192}, Columns{4096, 4096}, Columns{1024, 0, 7168}, Columns{2048, 2048, 2048, 2048}}) {
    Shards shards = shards_of(it, columns);
    Processes processes(columns.size());
    processes.run([&](const Communicator& communicator) {
      Shard& shard = shards[communicator.rank];
      ShardedNorm norm(shard.forward, communicator);
      std::vector<Moments> moments(norm.rows());
      norm.run(shard.forward, moments, pool_executor(2));
      norm.run(shard.backward, moments);
    });
    EXPECT_TRUE(results_of(it, shards) == whole(it)) << columns.size() << " processes";
    EXPECT_EQ(processes.gathers(), 3u);
  }
}

// Gathering x would send 2048 columns of f32 for each row.
TEST(ShardedNorm_Processes, SendAtMostAHundredthOfX) {
  constexpr std::size_t kRows = 64;
  const Example it = example(Kind::layer, DType::f32, 8192, kRows);
  const Columns columns = {2048, 2048, 2048, 2048};
  Shards shards = shards_of(it, columns);
  Processes processes(4);
  std::size_t before = 0;
  processes.run([&](const Communicator& communicator) {
    ShardedNorm norm(shards[communicator.rank].forward, communicator);
    if (communicator.rank == 0) before = processes.bytes();
    norm.run(shards[communicator.rank].forward);
    EXPECT_EQ(norm.bytes(), 200 + kRows * 16);
  });
  EXPECT_EQ(processes.bytes() - before, 200 + kRows * 16);
  EXPECT_LT((processes.bytes() - before) * 100, kRows * 2048 * 4);
}

TEST(ShardedNorm_Processes, PlainFormsHaveTheBitsOfTheWhole) {
  contracts::Operation op = contracts::same_type_backward(Kind::rms, DType::f32, 2048);
  op.weight = op.dgamma = op.dbeta = std::nullopt;
  const Example it = example(op, {"normal"}, {"normal"}, 3);
  Shards shards = shards_of(it, {1024, 1024});
  Processes(2).run([&](const Communicator& communicator) {
    Shard& shard = shards[communicator.rank];
    const auto floats = [](Array& array) { return std::span(reinterpret_cast<float*>(array.data()), array.size()); };
    std::vector<Moments> moments(shard.rows);
    const RowOptions<float> options{.rstd = shard.rstd};
    sharded_rms_norm<float>(communicator, floats(shard.x), floats(shard.y), 1024, moments, options);
    sharded_rms_norm_backward<float>(communicator, floats(shard.dy), floats(shard.x), floats(shard.dx), 1024, moments);
  });
  EXPECT_TRUE(results_of(it, shards) == whole(it));
}

// The error of each process that makes a norm, if process 2 of 3 changes its arguments.
std::vector<std::string> told_at_making(const std::function<void(Forward&)>& change) {
  Shards shards = shards_of(example(Kind::layer, DType::f32, 96), {32, 32, 32});
  change(shards[2].forward);
  return told(3, [&](const Communicator& communicator) {
    const ShardedNorm norm(shards[communicator.rank].forward, communicator);
  });
}

// The error of each process from `work` with a norm. Afterwards all must still be in step.
std::vector<std::string> told_by(const std::function<void(ShardedNorm&, Shard&, std::size_t rank)>& work,
                                 const Columns& columns = {32, 32, 32}) {
  Shards shards = shards_of(example(Kind::layer, DType::f32, 96), columns);
  return told(columns.size(), [&](const Communicator& communicator) {
    Shard& shard = shards[communicator.rank];
    const Forward good = shard.forward;
    ShardedNorm norm(good, communicator);
    const std::string error = error_of([&] { work(norm, shard, communicator.rank); });
    EXPECT_NO_THROW(norm.run(good));
    if (error != "no error") throw Error(error);
  });
}

// Expects that a pass fails in all processes and writes nothing if the last one changes its arguments.
void expect_failure_in_a_pass(const Columns& columns, bool back, const std::string& text,
                              const std::function<void(Shard&, std::span<Moments>&)>& spoil) {
  const std::size_t last = columns.size() - 1;
  const auto work = [&](ShardedNorm& norm, Shard& shard, std::size_t rank) {
    std::vector<Moments> own(norm.rows());
    std::span<Moments> moments = own;
    if (back) norm.run(shard.forward, moments);
    const Array y = shard.y;
    if (rank == last) spoil(shard, moments);
    const std::string error =
        error_of([&] { back ? norm.run(shard.backward, moments) : norm.run(shard.forward, moments); });
    EXPECT_TRUE(std::ranges::equal(shard.y.bytes(), y.bytes())) << "written before all checks: " << text;
    EXPECT_THAT(shard.dx.bytes(), Each(std::byte{})) << "written before all checks: " << text;
    throw Error(error);
  };
  expect_failure_of(last, text, told_by(work, columns));
}

TEST(ShardedNorm_Refuses, Disagreements) {
  const auto expect = [](const std::function<void(Forward&)>& change, const std::string& message) {
    EXPECT_THAT(told_at_making(change), Each(message));
  };
  expect(
      [&](Forward& f) {
        f.x.shape = f.y.shape = {5, 32};
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

TEST(ShardedNorm_Refuses, WrongArgumentsOfOneProcessInAll) {
  expect_failure_of(2, "eps is -1, but it should be finite and at least 0",
                    told_at_making([](Forward& forward) { forward.eps = -1; }));
  const auto expect = [](bool back, const std::string& text, const std::function<void(Shard&)>& spoil) {
    expect_failure_in_a_pass({32, 32, 32}, back, text, [&](Shard& shard, auto&) { spoil(shard); });
  };
  expect(false, "eps is 0.001, but 1e-05 when the norm was made", [](Shard& shard) { shard.forward.eps = 1e-3; });
  expect(false, "y may overlap weight", [](Shard& shard) { shard.forward.y.data = shard.weight.data(); });
  expect(false, "weight is null, but it has a shape", [](Shard& shard) { shard.forward.weight.data = nullptr; });
  expect(true, "the arithmetic is f64", [](Shard& shard) { shard.backward.dy.dtype = DType::f64; });
  expect(true, "weight is absent", [](Shard& shard) { shard.backward.weight = {}; });
  expect(true, "zero_centered is set, but not set when the norm was made",
         [](Shard& shard) { shard.backward.zero_centered = true; });
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
  Shards shards = shards_of(example(Kind::layer, DType::f32, 96), {32, 32, 32});
  EXPECT_EQ(told(3,
                 [&](const Communicator& communicator) {
                   if (communicator.rank == 1) return ShardedNorm::refuse(communicator, "no batch is left");
                   const ShardedNorm norm(shards[communicator.rank].forward, communicator);
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
  expect_failure_of(1, "x has 12 elements, but cols is 5", told(3, [&](const Communicator& c) {
                      std::vector<float> y(12);
                      sharded_layer_norm<float>(c, x, y, c.rank == 1 ? 5 : 4);
                    }));
  const std::vector<Moments> moments(3);
  expect_failure_of(1, "dx has 11 elements, but x has 12", told(3, [&](const Communicator& c) {
                      std::vector<float> dx(c.rank == 1 ? 11 : 12);
                      sharded_rms_norm_backward<float>(c, x, x, dx, 4, moments);
                    }));
}

TEST(ShardedNorm_Refuses, MomentsThatOverlapATensor) {
  const auto expect = [](bool back, const std::string& text, Array Shard::*array) {
    expect_failure_in_a_pass({32, 32, 32}, back, text, [&](Shard& shard, std::span<Moments>& moments) {
      moments = {reinterpret_cast<Moments*>((shard.*array).data()), shard.rows};
    });
  };
  expect(false, "moments may overlap y", &Shard::y);
  expect(false, "moments may overlap x", &Shard::x);
  expect(true, "dx may overlap moments", &Shard::dx);
}

// No process can have so many rows in memory, but a norm can be made without buffers.
TEST(ShardedNorm_Refuses, MoreRowsThanMessagesCanHold) {
  const Dims shape = {std::int64_t{1} << 46, 1};
  Forward forward{.x = {nullptr, DType::f32, shape}, .y = {nullptr, DType::f32, shape}, .normalized_shape = {1}};
  for (const std::string& text : told(2, [&](const Communicator& c) { ShardedNorm norm(forward, c); })) {
    EXPECT_EQ(text, "x has 70368744177664 rows, whose messages (2 numbers per row, 2 processes) exceed 2^47 bytes");
  }
}

// The norm treats gamma the same whether its buffer exists yet or not.
TEST(ShardedNorm_Processes, AreMadeWithoutBuffers) {
  Example it = example(Kind::layer, DType::f32, 2048);
  it.op.zero_centered = true;
  Shards shards = shards_of(it, {1024, 1024});
  EXPECT_EQ(told(2,
                 [&](const Communicator& communicator) {
                   Shard& shard = shards[communicator.rank];
                   Forward bare = shard.forward;
                   for (ConstTensor* tensor : {&bare.x, &bare.weight, &bare.bias}) tensor->data = nullptr;
                   bare.y.data = nullptr;
                   ShardedNorm norm(bare, communicator);
                   norm.run(shard.forward);
                 }),
            std::vector<std::string>(2));
  EXPECT_TRUE(std::ranges::equal(results_of(it, shards).forward.y.bytes(), whole(it).forward.y.bytes()));
}

// Every kind of row, in any layout and with any type of statistics.
TEST(ShardedNorm_Processes, WithoutColumnsWriteTheStatisticsOfWholeRows) {
  constexpr std::size_t kCols = 1100, kRowsInAll = 16;
  for (const DType type : contracts::kAllTypes) {
    for (const Kind kind : kBothKinds) {
      Names names = rows_of_type(type);
      if (type == DType::f64) names.push_back("subnormal");
      Example it = example(contracts::same_type_backward(kind, type, kCols), names, {"normal"}, kRowsInAll);
      it.inputs.x.set(3 * kCols + 1050, kNan);
      const contracts::Outcome expected = whole(it).forward;
      Shards shards = shards_of(it, {0, 1024, 76, 0});
      std::vector<float> mean(2 * kRowsInAll, -7), rstd(mean);
      Forward& last = shards[3].forward;
      last.x.shape = last.y.shape = {4, 4, 0};
      last.normalized_shape = {};
      last.axes = {-1};
      if (kind == Kind::layer) last.mean = {mean.data(), DType::f32, {4, 4}, {8, 2}};
      last.rstd = {rstd.data(), DType::f32, {4, 4}, {8, 2}};
      EXPECT_EQ(told(4,
                     [&](const Communicator& communicator) {
                       const Forward& forward = shards[communicator.rank].forward;
                       ShardedNorm(forward, communicator).run(forward, {}, pool_executor(2));
                     }),
                std::vector<std::string>(4));
      for (const std::size_t i : {0, 1, 2}) {
        EXPECT_TRUE(kind == Kind::rms || same_bits(shards[i].mean, expected.mean)) << it.op.name();
        EXPECT_TRUE(same_bits(shards[i].rstd, expected.rstd)) << it.op.name();
      }
      const auto spread = [](const std::vector<double>& of_rows) {
        std::vector<float> all(2 * kRowsInAll, -7);
        for (std::size_t r = 0; r < kRowsInAll; ++r) all[2 * r] = static_cast<float>(of_rows[r]);
        return all;
      };
      EXPECT_TRUE(kind == Kind::rms || same_bits(mean, spread(expected.mean))) << it.op.name();
      EXPECT_TRUE(same_bits(rstd, spread(expected.rstd))) << it.op.name();
    }
  }
}

TEST(ShardedNorm_Processes, WithoutColumnsAgreeOnRowsOfF64OutOfRange) {
  Shards shards = shards_of(
      example(contracts::same_type_backward(Kind::layer, DType::f64, 8), {"std_1e150"}, {"normal"}, 3), {8, 0});
  EXPECT_EQ(told(2,
                 [&](const Communicator& communicator) {
                   const Forward& forward = shards[communicator.rank].forward;
                   ShardedNorm(forward, communicator).run(forward, {});
                 }),
            std::vector<std::string>(2));
  EXPECT_TRUE(same_bits(shards[1].mean, shards[0].mean) && same_bits(shards[1].rstd, shards[0].rstd));
}

// Wrong statistics are refused as in other processes.
TEST(ShardedNorm_Refuses, WrongStatisticsOfAProcessWithoutColumns) {
  const auto expect = [](const std::string& text, const std::function<void(Forward&, std::span<Moments>)>& spoil) {
    expect_failure_in_a_pass({96, 0}, false, text,
                             [&](Shard& shard, std::span<Moments>& moments) { spoil(shard.forward, moments); });
  };
  static const std::int64_t kFive[] = {5};
  expect("rstd has shape (5), but x has rows of shape (6)", [](Forward& f, auto) { f.rstd.shape = kFive; });
  expect("mean has dtype bf16, but statistics should be f64 or f32",
         [](Forward& f, auto) { f.mean.dtype = DType::bf16; });
  expect("mean may overlap rstd", [](Forward& f, auto) { f.mean.data = f.rstd.data; });
  expect("moments may overlap rstd", [](Forward& f, auto moments) { f.rstd.data = moments.data(); });
}

TEST(ShardedNorm_Refuses, UnsupportedForms) {
  const auto refuses = [](const std::function<void(Forward&)>& change) {
    Shards shards = shards_of(example(Kind::layer, DType::f32, 64), {64});
    change(shards[0].forward);
    return told(1, [&](const Communicator& c) { ShardedNorm norm(shards[0].forward, c); })[0];
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
