// Norms over processes through the C API: the bits of C++, failures of the caller's engine, and the error that all
// processes get if one of them has a wrong argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "contracts/through_c.hpp"
#include "evenorm/evenorm_sharded.h"
#include "support/c_call.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::BackwardInputs;
using contracts::BackwardOperation;
using ::testing::StartsWith;

// A C communicator around a C++ one. It returns `status` from call number `fails` on, counted from 0.
struct Engine {
  Communicator wrapped;
  int calls = 0;
  int fails = -1;
  int status = 7;

  static int all_gather(void* context, const void* mine, size_t bytes, void* all) {
    auto& self = *static_cast<Engine*>(context);
    if (self.fails >= 0 && self.calls++ >= self.fails) return self.status;
    self.wrapped.all_gather(self.wrapped.context, static_cast<const std::byte*>(mine), bytes,
                            static_cast<std::byte*>(all));
    return 0;
  }
  evenorm_communicator communicator() {
    return {sizeof(evenorm_communicator), wrapped.rank, wrapped.size, this, &all_gather};
  }
};

struct Destroy {
  void operator()(evenorm_sharded_norm* norm) const { evenorm_sharded_norm_destroy(norm); }
};
using Norm = std::unique_ptr<evenorm_sharded_norm, Destroy>;

Norm made(const evenorm_forward& forward, Engine& engine) {
  evenorm_sharded_norm* norm = nullptr;
  const evenorm_communicator communicator = engine.communicator();
  contracts::check_status(evenorm_sharded_norm_create(&forward, &communicator, &norm));
  return Norm(norm);
}

struct Example {
  BackwardOperation op;
  BackwardInputs inputs;
  Array bias;
};
Example example(Kind kind, DType type, std::size_t cols, std::size_t rows = 5) {
  Example it{contracts::same_type_backward(kind, type, cols), {}, {}};
  it.inputs = inputs_of(it.op, {"normal", "mean_1e4"}, {"normal"}, rows);
  if (it.op.forward.bias) it.bias = contracts::make_bias(*it.op.forward.bias, cols);
  return it;
}
Example example() { return example(Kind::layer, DType::f32, 96); }

using Shards = std::vector<std::unique_ptr<Shard>>;

// --- bits ----------------------------------------------------------------------------------------------------------

void run_in_cpp(Shard& shard, const Communicator& communicator, std::vector<Moments>& moments) {
  ShardedNorm norm(shard.forward, communicator);
  moments.resize(norm.rows());
  norm.run(shard.forward, moments);
  norm.run(shard.backward, moments);
}

void run_in_c(Shard& shard, const Communicator& communicator, std::vector<Moments>& moments) {
  Engine engine{communicator};
  const evenorm_forward forward = contracts::c_forward(shard.forward);
  const evenorm_backward backward = contracts::c_backward(shard.backward);
  const Executor reversed = contracts::reversed_executor(3);
  const evenorm_executor executor = contracts::c_executor(reversed);
  const Norm norm = made(forward, engine);
  const ShardedNorm like(shard.forward, communicator);
  EXPECT_EQ(evenorm_sharded_norm_bytes(norm.get()), like.bytes());
  std::vector<evenorm_moments> found(shard.rows);
  contracts::check_status(
      evenorm_sharded_norm_run_forward(norm.get(), &forward, found.data(), found.size(), &executor));
  contracts::check_status(
      evenorm_sharded_norm_run_backward(norm.get(), &backward, found.data(), found.size(), &executor));
  moments.resize(found.size());
  std::memcpy(static_cast<void*>(moments.data()), found.data(), found.size() * sizeof(Moments));
}

struct Written {
  ShardedOutcome outcome;
  std::vector<double> statistics;
  std::vector<std::vector<Moments>> moments;
};
template <class Run>
Written written_by(const Example& of, const Columns& columns, const Run& run) {
  const Shards shards = shards_of(of.op, of.inputs, of.bias, columns);
  Written all;
  all.moments.resize(columns.size());
  Processes(columns.size()).run([&](const Communicator& communicator) {
    run(*shards[communicator.rank], communicator, all.moments[communicator.rank]);
  });
  all.outcome = outcome_of(of.op, shards);
  for (const auto& shard : shards) {
    all.statistics.insert(all.statistics.end(), shard->mean.begin(), shard->mean.end());
    all.statistics.insert(all.statistics.end(), shard->rstd.begin(), shard->rstd.end());
  }
  return all;
}

TEST(CApi_Sharded, HasTheBitsOfCpp) {
  for (const auto& [kind, type] : {std::pair{Kind::layer, DType::f32}, {Kind::rms, DType::bf16}}) {
    for (const Columns& columns : {Columns{1100}, Columns{0, 1024, 0, 76}, Columns{500, 1, 599}}) {
      const Example of = example(kind, type, 1100);
      const Written expected = written_by(of, columns, run_in_cpp), found = written_by(of, columns, run_in_c);
      const std::string where = of.op.name() + " on " + std::to_string(columns.size());
      EXPECT_TRUE(std::ranges::equal(found.outcome.y.bytes(), expected.outcome.y.bytes())) << where;
      EXPECT_TRUE(found.outcome.gradients.has_the_bits_of(expected.outcome.gradients)) << where;
      EXPECT_EQ(found.statistics, expected.statistics) << where;
      for (const auto& moments : found.moments) EXPECT_TRUE(same_bits(moments, expected.moments[0])) << where;
    }
  }
}

// --- an engine that fails ------------------------------------------------------------------------------------------

constexpr const char* kSeven = "all_gather returned 7, but it should return 0";

TEST(CApi_Sharded, ReportsAnEngineThatFailsAtCreation) {
  const Example of = example();
  const Shards shards = shards_of(of.op, of.inputs, of.bias, {96});
  Engine engine{};
  engine.fails = 0;
  engine.wrapped.size = 3;
  const evenorm_forward forward = contracts::c_forward(shards[0]->forward);
  const evenorm_communicator communicator = engine.communicator();
  auto* norm = reinterpret_cast<evenorm_sharded_norm*>(&engine);
  EXPECT_EQ(evenorm_sharded_norm_create(&forward, &communicator, &norm), EVENORM_COMMUNICATION_FAILED);
  EXPECT_EQ(norm, nullptr);
  EXPECT_EQ(last_error(), kSeven);
}

// Nothing is written, and the norm works again as soon as the engine does.
TEST(CApi_Sharded, ReportsAnEngineThatFailsInAPass) {
  const Example of = example();
  const Shards shards = shards_of(of.op, of.inputs, of.bias, {96});
  Shard& shard = *shards[0];
  Processes(1).run([&](const Communicator& communicator) {
    Engine engine{communicator};
    const evenorm_forward forward = contracts::c_forward(shard.forward);
    const evenorm_backward backward = contracts::c_backward(shard.backward);
    const Norm norm = made(forward, engine);
    std::vector<evenorm_moments> moments(shard.rows, evenorm_moments{-3, 0, 0, 0});
    const auto run_forward = [&] {
      return evenorm_sharded_norm_run_forward(norm.get(), &forward, moments.data(), moments.size(), nullptr);
    };
    const auto run_backward = [&] {
      return evenorm_sharded_norm_run_backward(norm.get(), &backward, moments.data(), moments.size(), nullptr);
    };
    const auto written = [](const Array& array) {
      return std::ranges::any_of(array.bytes(), [](std::byte b) { return b != std::byte{}; });
    };

    engine.fails = 0;
    EXPECT_EQ(run_forward(), EVENORM_COMMUNICATION_FAILED);
    EXPECT_EQ(last_error(), kSeven);
    EXPECT_FALSE(written(shard.y));
    EXPECT_EQ(moments[0].count, -3);
    engine.fails = -1;
    EXPECT_EQ(run_forward(), EVENORM_OK);
    EXPECT_TRUE(written(shard.y));
    engine.fails = 0;
    engine.status = -1;
    EXPECT_EQ(run_backward(), EVENORM_COMMUNICATION_FAILED);
    EXPECT_EQ(last_error(), "all_gather returned -1, but it should return 0");
    EXPECT_FALSE(written(shard.dx) || written(shard.dgamma) || written(shard.dbeta));
    engine.fails = -1;
    EXPECT_EQ(run_backward(), EVENORM_OK);
    EXPECT_TRUE(written(shard.dx) && written(shard.dgamma) && written(shard.dbeta));
  });
}

// --- wrong arguments -----------------------------------------------------------------------------------------------

TEST(CApi_ShardedArguments, AreRefusedWithoutOtherProcesses) {
  const Example of = example();
  const Shards shards = shards_of(of.op, of.inputs, of.bias, {96});
  const evenorm_forward forward = contracts::c_forward(shards[0]->forward);
  const evenorm_backward backward = contracts::c_backward(shards[0]->backward);
  Engine engine{};
  const evenorm_communicator good = engine.communicator();
  const auto refused = [&](const evenorm_communicator* communicator) {
    auto* norm = reinterpret_cast<evenorm_sharded_norm*>(&engine);
    EXPECT_EQ(evenorm_sharded_norm_create(&forward, communicator, &norm), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(norm, nullptr);
    return last_error();
  };
  EXPECT_EQ(refused(nullptr), "communicator is null");
  evenorm_communicator wrong = good;
  wrong.struct_size = 8;
  EXPECT_EQ(refused(&wrong), "communicator.struct_size is 8, but it should be 40");
  wrong = good;
  wrong.all_gather = nullptr;
  EXPECT_EQ(refused(&wrong), "all_gather is null");
  wrong = good;
  wrong.rank = 3;
  EXPECT_EQ(refused(&wrong), "rank is 3, but the communicator has size 1");
  for (const std::size_t size : {std::size_t{1} << 57U, std::numeric_limits<std::size_t>::max()}) {
    wrong = good;
    wrong.size = size;
    EXPECT_THAT(refused(&wrong),
                StartsWith("the communicator has size " + std::to_string(size) + ", but it should be"));
  }
  EXPECT_EQ(evenorm_sharded_norm_create(&forward, &good, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "out is null");
  EXPECT_EQ(evenorm_sharded_norm_run_forward(nullptr, &forward, nullptr, 0, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "norm is null");
  EXPECT_EQ(evenorm_sharded_norm_run_backward(nullptr, &backward, nullptr, 0, nullptr), EVENORM_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "norm is null");
  EXPECT_EQ(evenorm_sharded_norm_bytes(nullptr), 0u);
  evenorm_sharded_norm_destroy(nullptr);
}

// The texts that three processes get if process 2 has a wrong argument.
using Texts = std::vector<std::string>;
template <class Work>
Texts told(const Work& work, const Columns& columns = {32, 32, 32}) {
  const Example of = example();
  const Shards shards = shards_of(of.op, of.inputs, of.bias, columns);
  Texts texts(columns.size());
  Processes(columns.size()).run([&](const Communicator& communicator) {
    Engine engine{communicator};
    const evenorm_status status = work(*shards[communicator.rank], engine);
    texts[communicator.rank] = (status == EVENORM_INVALID_ARGUMENT ? "" : std::to_string(status) + " ") + last_error();
  });
  return texts;
}

Texts told_at_creation(const std::function<void(evenorm_forward&)>& spoil) {
  return told([&](Shard& shard, Engine& engine) {
    evenorm_forward forward = contracts::c_forward(shard.forward);
    if (engine.wrapped.rank == 2) spoil(forward);
    const evenorm_communicator communicator = engine.communicator();
    evenorm_sharded_norm* norm = nullptr;
    return evenorm_sharded_norm_create(&forward, &communicator, &norm);
  });
}

TEST(CApi_ShardedArguments, AllProcessesReportARefusalAtCreation) {
  const auto expect = [](const std::string& own, const std::function<void(evenorm_forward&)>& spoil) {
    const Texts texts = told_at_creation(spoil);
    EXPECT_THAT(texts[2], StartsWith(own));
    EXPECT_EQ(texts[0], "process 2 has failed: " + texts[2]);
    EXPECT_EQ(texts[1], texts[0]);
  };
  expect("eps is -1, but", [](evenorm_forward& forward) { forward.eps = -1; });
  // Values that C++'s types rule out.
  expect("x has dtype 77", [](evenorm_forward& forward) { forward.x.dtype = 77; });
  expect("kind is 5", [](evenorm_forward& forward) { forward.kind = 5; });
  expect("bias.rank is -2", [](evenorm_forward& forward) { forward.bias.rank = -2; });
  expect("forward.struct_size is 3", [](evenorm_forward& forward) { forward.struct_size = 3; });
}

// The arguments of a pass, one of which a process may change.
struct Pass {
  const evenorm_forward* forward;
  const evenorm_backward* backward;  // a backward pass if set
  evenorm_moments* moments;
  std::size_t moments_count;
  const evenorm_executor* executor = nullptr;

  evenorm_status run(evenorm_sharded_norm* norm, bool is_backward) const {
    if (is_backward) return evenorm_sharded_norm_run_backward(norm, backward, moments, moments_count, executor);
    return evenorm_sharded_norm_run_forward(norm, forward, moments, moments_count, executor);
  }
};

void expect_told_in_a_pass(const std::string& own, bool is_backward, const std::function<void(Pass&)>& spoil) {
  for (const Columns& columns : {Columns{32, 32, 32}, Columns{32, 64, 0}}) {
    const Texts texts = told(
        [&](Shard& shard, Engine& engine) {
          const evenorm_forward forward = contracts::c_forward(shard.forward);
          const evenorm_backward backward = contracts::c_backward(shard.backward);
          const Norm norm = made(forward, engine);
          std::vector<evenorm_moments> moments(shard.rows);
          Pass pass{&forward, &backward, moments.data(), moments.size()};
          if (engine.wrapped.rank == 2) spoil(pass);
          return pass.run(norm.get(), is_backward);
        },
        columns);
    EXPECT_THAT(texts[2], StartsWith(own));
    EXPECT_EQ(texts[0], "process 2 has failed: " + texts[2]);
    EXPECT_EQ(texts[1], texts[0]);
  }
}

TEST(CApi_ShardedArguments, AllProcessesReportARefusalInAPass) {
  static const evenorm_executor kSizeless{};
  evenorm_backward wrong = evenorm_backward_defaults();
  expect_told_in_a_pass("executor.struct_size is 0", false, [](Pass& pass) { pass.executor = &kSizeless; });
  expect_told_in_a_pass("moments is null, but moments_count is 5", false, [](Pass& pass) { pass.moments = nullptr; });
  expect_told_in_a_pass("backward is null", true, [](Pass& pass) { pass.backward = nullptr; });
  expect_told_in_a_pass("moments has 4 elements, but", true, [](Pass& pass) { --pass.moments_count; });
  expect_told_in_a_pass("dy has dtype 9", true, [&](Pass& pass) {
    wrong = *pass.backward;
    wrong.dy.dtype = 9;
    pass.backward = &wrong;
  });
}

}  // namespace
}  // namespace evenorm::testing
