// Eight threads at once, with separate work or with one plan, on shared pools and without, through C++ and C, in any
// floating-point mode. They give the bits of one thread, and errors stay with their threads. Then forks.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <latch>
#include <optional>
#include <thread>

#include "contracts/fp_mode.hpp"
#include "contracts/through_c.hpp"
#include "support/c_call.hpp"
#include "support/child.hpp"
#include "support/work.hpp"

namespace evenorm::testing {
namespace {

using contracts::FpMode;
using contracts::FpModeScope;

constexpr std::size_t kThreads = 8;

// Calls errors_of(i) on kThreads threads that start together. Each must return 0.
void expect_on_threads(const std::function<int(std::size_t)>& errors_of) {
  std::latch gate(kThreads);
  std::array<int, kThreads> errors{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      gate.arrive_and_wait();
      errors[i] = errors_of(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, ::testing::Each(0)) << "for each thread";
}

// Serial, on a shared pool, or on another pool.
Executor executor_of(std::size_t i) { return i % 4 == 0 ? Executor{} : pool_executor(i % 4 == 3 ? 0 : 2); }

FpMode mode_of(std::size_t i) {
  const auto modes = contracts::unusual_fp_modes();
  return i % 2 == 0 ? FpMode::plain : modes[i / 2 % modes.size()];
}

TEST(Stress_Threads, SeparateWorkHasTheSameBits) {
  const std::vector<Work> all = all_work();
  expect_on_threads([&](std::size_t i) {
    const FpModeScope mode(mode_of(i));
    int errors = 0;
    for (std::size_t round = 0; round < 2 * all.size(); ++round) {
      const Work& work = all[(i + round) % all.size()];
      const bool in_c = (i + round) % 3 == 0;
      errors +=
          work.comes_out(in_c ? contracts::through_c() : contracts::through_run(), executor_of(i + round / 2)) ? 0 : 1;
      errors += mode.is_as_set() ? 0 : 1000;
    }
    return errors;
  });
}

// All threads run one plan, made in C++ or in C, on their own buffers.
TEST(Stress_Threads, OnePlanForAllHasTheSameBits) {
  for (const Work& work : all_work()) {
    std::optional<Plan> plan;
    evenorm_plan* c_plan = nullptr;
    const auto make = [&](const Forward& forward, const Executor&) {
      plan.emplace(forward).run();
      const evenorm_forward given = contracts::c_forward(forward);
      contracts::check_status(evenorm_plan_create(&given, &c_plan));
    };
    ASSERT_TRUE(work.comes_out(make, {})) << work.c.op.name();
    expect_on_threads([&](std::size_t i) {
      const FpModeScope mode(mode_of(i));
      const auto share = [&](const Forward& forward, const Executor& executor) {
        const evenorm_buffers b = contracts::c_buffers(contracts::c_forward(forward));
        const evenorm_executor c_executor = contracts::c_executor(executor);
        i < kThreads / 2 ? plan->run({b.x, b.y, b.weight, b.bias, b.mean, b.rstd}, executor)
                         : contracts::check_status(evenorm_plan_run_with(c_plan, &b, &c_executor));
      };
      int errors = 0;
      for (int round = 0; round < 2; ++round) errors += work.comes_out(share, executor_of(i)) ? 0 : 1;
      return errors;
    });
    evenorm_plan_destroy(c_plan);
  }
}

// Each thread causes its own kind of error, and reads it while other threads cause theirs.
TEST(Stress_Threads, ErrorsStayWithTheirThreads) {
  expect_on_threads([](std::size_t i) {
    CForwardCall call;
    call.given.eps = -1.0 - static_cast<double>(i);
    const std::string expected = "eps is -" + std::to_string(i + 1) + ", but it should be finite and at least 0";
    int errors = 0;
    for (int round = 0; round < 500; ++round) {
      if (evenorm_run(&call.given, nullptr) != EVENORM_INVALID_ARGUMENT) ++errors;
      std::this_thread::yield();
      if (last_error() != expected) ++errors;
    }
    return errors;
  });
}

// --- fork() before the pool is used, after it, and while other threads use it --------------------------------------
// The child and its own children run serially and give the same bits, through C++ and C. The parent continues.

// Returns 0 if all results are correct, on pools that the process may or may not have used.
int run_all(const std::vector<Work>& all) {
  for (const Work& work : all) {
    if (!work.comes_out(contracts::through_run(), pool_executor(2))) return 1;
    if (!work.comes_out(contracts::through_c(), pool_executor(0))) return 2;
  }
  return 0;
}

int run_all_here_and_in_a_child(const std::vector<Work>& all) {
  if (const int status = run_all(all); status != 0) return status;
  return outcome_of_child([&] { return run_all(all); }, 10).empty() ? 0 : 3;
}

int run_tasks_on_the_pool() {
  std::atomic<int> runs{0};
  call_pool(10, [&](std::size_t) { ++runs; });
  return runs == 10 ? 0 : 1;
}

TEST(Stress_Fork, WorksBeforeAnyParallelUse) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // runs in a new process, whose pool has not started
  EXPECT_EXIT(
      {
        const std::vector<Work> all = all_work();
        const std::string child = outcome_of_child([&] { return run_all_here_and_in_a_child(all); });
        std::fprintf(stderr, "the child: '%s'", child.c_str());
        std::_Exit(child.empty() ? run_all(all) : 10);
      },
      ::testing::ExitedWithCode(0), "the child: ''");
}

TEST(Stress_Fork, WorksAfterParallelUse) {
  const std::vector<Work> all = all_work();
  ASSERT_EQ(run_all(all), 0);
  EXPECT_EQ(outcome_of_child([&] { return run_all_here_and_in_a_child(all); }), "");
  EXPECT_EQ(outcome_of_child(run_tasks_on_the_pool), "");
  EXPECT_EQ(run_all(all), 0);
}

TEST(Stress_Fork, WorksWhileOtherThreadsUseThePool) {
  const std::vector<Work> all = all_work();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, rounds{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (; !stop; ++rounds) wrong += run_all(all) == 0 ? 0 : 1;
    });
  }
  while (rounds == 0) std::this_thread::yield();
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(outcome_of_child([&] { return i % 4 == 0 ? run_all_here_and_in_a_child(all) : run_all(all); }), "");
  }
  EXPECT_EQ(outcome_of_child(run_tasks_on_the_pool), "");
  const int before = rounds;
  while (rounds < before + 2) std::this_thread::yield();  // until the parent has continued
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace evenorm::testing
