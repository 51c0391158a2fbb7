// Norms over processes through the C API: the bits of C++, failures of the caller's engine, and the error that all
// processes get if one of them has a wrong argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "contracts/through_c.hpp"
#include "evenorm/evenorm_sharded.h"
#include "support/c_call.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using ::testing::StartsWith;

// A C communicator around a C++ one, unless it fails with a status.
struct Engine {
  Communicator wrapped;
  int status = 0;

  static int all_gather(void* context, const void* mine, size_t bytes, void* all) {
    auto& self = *static_cast<Engine*>(context);
    if (self.status == 0) {
      self.wrapped.all_gather(self.wrapped.context, static_cast<const std::byte*>(mine), bytes,
                              static_cast<std::byte*>(all));
    }
    return self.status;
  }
  evenorm_communicator communicator() {
    return {sizeof(evenorm_communicator), wrapped.rank, wrapped.size, this, &all_gather};
  }
};

// Throws the text of a refusal.
void check(evenorm_status status) {
  EXPECT_TRUE(status == EVENORM_OK || status == EVENORM_INVALID_ARGUMENT) << status;
  contracts::check_status(status);
}

struct Destroy {
  void operator()(evenorm_sharded_norm* norm) const { evenorm_sharded_norm_destroy(norm); }
};
using Norm = std::unique_ptr<evenorm_sharded_norm, Destroy>;

Norm made(const evenorm_forward& forward, Engine& engine) {
  evenorm_sharded_norm* norm = nullptr;
  const evenorm_communicator communicator = engine.communicator();
  check(evenorm_sharded_norm_create(&forward, &communicator, &norm));
  return Norm(norm);
}

TEST(CApi_Sharded, HasTheBitsOfTheWhole) {
  const Executor reversed = contracts::reversed_executor(3);
  const evenorm_executor executor = contracts::c_executor(reversed);
  for (const auto& [kind, type] : {std::pair{Kind::layer, DType::f32}, {Kind::rms, DType::bf16}}) {
    for (const Columns& columns : {Columns{1100}, Columns{0, 1024, 0, 76}}) {
      const Example it = example(kind, type, 1100, 5);
      Shards shards = shards_of(it, columns), again = shards_of(it, columns);
      Processes(columns.size()).run([&](const Communicator& communicator) {
        Shard& shard = shards[communicator.rank];
        Engine engine{communicator};
        const evenorm_forward forward = contracts::c_forward(shard.forward);
        const evenorm_backward backward = contracts::c_backward(shard.backward);
        const Norm norm = made(forward, engine);
        std::vector<evenorm_moments> found(shard.rows);
        check(evenorm_sharded_norm_run_forward(norm.get(), &forward, found.data(), found.size(), &executor));
        check(evenorm_sharded_norm_run_backward(norm.get(), &backward, found.data(), found.size(), &executor));

        ShardedNorm in_cpp(again[communicator.rank].forward, communicator);
        std::vector<Moments> expected(shard.rows);
        in_cpp.run(again[communicator.rank].forward, expected);
        EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(Moments)), 0);
        EXPECT_EQ(evenorm_sharded_norm_bytes(norm.get()), in_cpp.bytes());
      });
      EXPECT_TRUE(results_of(it, shards) == whole(it)) << it.op.name() << " on " << columns.size();
    }
  }
}

// Nothing is written, and the norm works again as soon as the engine does.
TEST(CApi_Sharded, ReportsAnEngineThatFails) {
  Shard shard(example(Kind::layer, DType::f32, 96), 0, 96);
  Processes(1).run([&](const Communicator& wrapped) {
    Engine engine{wrapped};
    const auto expect_failure = [&](int status, const std::function<evenorm_status()>& call) {
      engine.status = status;
      EXPECT_EQ(call(), EVENORM_COMMUNICATION_FAILED);
      EXPECT_EQ(last_error(), "all_gather returned " + std::to_string(status) + ", but it should return 0");
      engine.status = 0;
    };
    const evenorm_forward forward = contracts::c_forward(shard.forward);
    const evenorm_backward backward = contracts::c_backward(shard.backward);
    const evenorm_communicator communicator = engine.communicator();
    auto* none = reinterpret_cast<evenorm_sharded_norm*>(&engine);
    expect_failure(7, [&] { return evenorm_sharded_norm_create(&forward, &communicator, &none); });
    EXPECT_EQ(none, nullptr);

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
    expect_failure(7, run_forward);
    EXPECT_FALSE(written(shard.y));
    EXPECT_EQ(moments[0].count, -3);
    EXPECT_EQ(run_forward(), EVENORM_OK);
    EXPECT_TRUE(written(shard.y));
    expect_failure(-1, run_backward);
    EXPECT_FALSE(written(shard.dx) || written(shard.dgamma) || written(shard.dbeta));
    EXPECT_EQ(run_backward(), EVENORM_OK);
    EXPECT_TRUE(written(shard.dx) && written(shard.dgamma) && written(shard.dbeta));
  });
}

// --- wrong arguments -----------------------------------------------------------------------------------------------

TEST(CApi_ShardedArguments, AreRefusedWithoutOtherProcesses) {
  Shard shard(example(Kind::layer, DType::f32, 96), 0, 96);
  const evenorm_forward forward = contracts::c_forward(shard.forward);
  const evenorm_backward backward = contracts::c_backward(shard.backward);
  Engine engine{};
  const evenorm_communicator good = engine.communicator();
  const auto refused = [&](const evenorm_communicator* communicator) {
    auto* norm = reinterpret_cast<evenorm_sharded_norm*>(&engine);
    EXPECT_EQ(evenorm_sharded_norm_create(&forward, communicator, &norm), EVENORM_INVALID_ARGUMENT);
    EXPECT_EQ(norm, nullptr);
    return last_error();
  };
  const auto refused_with = [&](auto evenorm_communicator::*field, auto value) {
    evenorm_communicator wrong = good;
    wrong.*field = value;
    return refused(&wrong);
  };
  EXPECT_EQ(refused(nullptr), "communicator is null");
  EXPECT_EQ(refused_with(&evenorm_communicator::struct_size, 8), "communicator.struct_size is 8, but it should be 40");
  EXPECT_EQ(refused_with(&evenorm_communicator::all_gather, nullptr), "all_gather is null");
  EXPECT_EQ(refused_with(&evenorm_communicator::rank, 3), "rank is 3, but the communicator has size 1");
  for (const std::size_t size : {std::size_t{1} << 57U, std::numeric_limits<std::size_t>::max()}) {
    EXPECT_THAT(refused_with(&evenorm_communicator::size, size),
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

TEST(CApi_ShardedArguments, AllProcessesReportARefusalAtCreation) {
  const auto expect = [](const std::string& text, const std::function<void(evenorm_forward&)>& spoil) {
    const Shards shards = shards_of(example(Kind::layer, DType::f32, 96), {32, 32, 32});
    expect_failure_of(2, text, told(3, [&](const Communicator& communicator) {
                        Engine engine{communicator};
                        evenorm_forward forward = contracts::c_forward(shards[communicator.rank].forward);
                        if (communicator.rank == 2) spoil(forward);
                        made(forward, engine);
                      }));
  };
  expect("eps is -1, but", [](evenorm_forward& forward) { forward.eps = -1; });
  // Values that C++'s types rule out.
  expect("x has dtype 77", [](evenorm_forward& forward) { forward.x.dtype = 77; });
  expect("kind is 5", [](evenorm_forward& forward) { forward.kind = 5; });
  expect("bias.rank is -2", [](evenorm_forward& forward) {
    forward.bias = forward.weight;
    forward.bias.rank = -2;
  });
  expect("forward.struct_size is 3", [](evenorm_forward& forward) { forward.struct_size = 3; });
}

// The arguments of a pass, one of which a process may change.
struct Arguments {
  const evenorm_forward* forward;
  const evenorm_backward* backward;
  evenorm_moments* moments;
  std::size_t moments_count;
  const evenorm_executor* executor = nullptr;
};

void expect_failure_in_c(const std::string& text, bool back, const std::function<void(Arguments&)>& spoil) {
  for (const Columns& columns : {Columns{32, 32, 32}, Columns{32, 64, 0}}) {
    const Shards shards = shards_of(example(Kind::layer, DType::f32, 96, 5), columns);
    expect_failure_of(
        2, text, told(3, [&](const Communicator& communicator) {
          Engine engine{communicator};
          const Shard& shard = shards[communicator.rank];
          const evenorm_forward forward = contracts::c_forward(shard.forward);
          const evenorm_backward backward = contracts::c_backward(shard.backward);
          const Norm norm = made(forward, engine);
          std::vector<evenorm_moments> moments(shard.rows);
          Arguments a{&forward, &backward, moments.data(), moments.size()};
          if (communicator.rank == 2) spoil(a);
          check(back ? evenorm_sharded_norm_run_backward(norm.get(), a.backward, a.moments, a.moments_count, a.executor)
                     : evenorm_sharded_norm_run_forward(norm.get(), a.forward, a.moments, a.moments_count, a.executor));
        }));
  }
}

TEST(CApi_ShardedArguments, AllProcessesReportARefusalInAPass) {
  static const evenorm_executor kSizeless{};
  evenorm_backward wrong = evenorm_backward_defaults();
  expect_failure_in_c("executor.struct_size is 0", false, [](Arguments& a) { a.executor = &kSizeless; });
  expect_failure_in_c("moments is null, but moments_count is 5", false, [](Arguments& a) { a.moments = nullptr; });
  expect_failure_in_c("backward is null", true, [](Arguments& a) { a.backward = nullptr; });
  expect_failure_in_c("moments has 4 elements, but", true, [](Arguments& a) { --a.moments_count; });
  expect_failure_in_c("dy has dtype 9", true, [&](Arguments& a) {
    wrong = *a.backward;
    wrong.dy.dtype = 9;
    a.backward = &wrong;
  });
}

}  // namespace
}  // namespace evenorm::testing
