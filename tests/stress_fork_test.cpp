// fork() at any time: before the pool is used, afterwards, while other threads use it. The child runs serially, to the
// same bits, through C++ and C, its own children too; the parent goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "contracts/through_c.hpp"
#include "support/child.hpp"
#include "support/work.hpp"

namespace evenorm {
namespace {

using testing::all_work;
using testing::outcome_of_child;
using testing::through_cpp;
using testing::Work;

// 0 where everything is right, on pools that the process may or may not have used.
int run_all(const std::vector<Work>& all) {
  for (const Work& work : all) {
    if (!work.comes_out(through_cpp(), pool_executor(2))) return 1;
    if (!work.comes_out(contracts::through_c(), pool_executor(0))) return 2;
  }
  return 0;
}

int run_all_here_and_in_a_child(const std::vector<Work>& all) {
  if (const int status = run_all(all); status != 0) return status;
  return outcome_of_child([&] { return run_all(all); }, 10).empty() ? 0 : 3;
}

// The pool itself, asked by a caller who knows nothing of the library's rule.
int run_tasks_on_the_pool() {
  std::atomic<int> runs{0};
  const Executor pool = pool_executor(2);
  pool.parallel_for(
      pool.context, 10, [](void* argument, std::size_t) noexcept { ++*static_cast<std::atomic<int>*>(argument); },
      &runs);
  return runs == 10 ? 0 : 1;
}

TEST(Stress_Fork, BeforeAnyParallelUse) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a new process, whose pool has not been started
  EXPECT_EXIT(
      {
        const std::vector<Work> all = all_work();  // serially
        const std::string child = outcome_of_child([&] { return run_all_here_and_in_a_child(all); });
        std::fprintf(stderr, "the child: '%s'", child.c_str());
        std::_Exit(child.empty() ? run_all(all) : 10);
      },
      ::testing::ExitedWithCode(0), "the child: ''");
}

TEST(Stress_Fork, AfterParallelUse) {
  const std::vector<Work> all = all_work();
  ASSERT_EQ(run_all(all), 0);
  EXPECT_EQ(outcome_of_child([&] { return run_all_here_and_in_a_child(all); }), "");
  EXPECT_EQ(outcome_of_child(run_tasks_on_the_pool), "");
  EXPECT_EQ(run_all(all), 0);
}

TEST(Stress_Fork, WhileOtherThreadsUseThePool) {
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
  while (rounds < before + 2) std::this_thread::yield();  // the parent goes on
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace evenorm
