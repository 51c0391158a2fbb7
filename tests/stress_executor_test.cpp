// Executors that do everything they may: run tasks late, on other threads, in any order, or all at once. Then the
// pool's threads.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "contracts/through_c.hpp"
#include "support/sanitized.hpp"
#include "support/work.hpp"

namespace evenorm::testing {
namespace {

using OneTask = std::function<void(std::size_t)>;
using Way = std::function<void(std::size_t tasks, const OneTask& task)>;

// An executor that runs its tasks in the given way and counts its calls.
struct Peculiar {
  const char* name;
  Way way;
  mutable std::size_t calls = 0;

  Executor executor(std::size_t threads) const {
    return {threads, const_cast<Peculiar*>(this),
            [](void* context, std::size_t tasks, void (*task)(void*, std::size_t) noexcept, void* argument) {
              const auto& self = *static_cast<const Peculiar*>(context);
              ++self.calls;
              self.way(tasks, [=](std::size_t i) { task(argument, i); });
            }};
  }
};

void late_on_another_thread(std::size_t tasks, const OneTask& task) {
  std::thread([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (std::size_t i = 0; i < tasks; ++i) task(i);
  }).join();
}

void each_on_its_own_thread_one_by_one(std::size_t tasks, const OneTask& task) {
  for (std::size_t i = tasks; i-- > 0;) std::thread([&, i] { task(i); }).join();
}

// No task starts before all are ready.
void all_at_once(std::size_t tasks, const OneTask& task) {
  std::latch gate(static_cast<std::ptrdiff_t>(tasks));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < tasks; ++i) {
    threads.emplace_back([&, i] {
      gate.arrive_and_wait();
      task(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Way on_threads(std::size_t count) {
  return [count](std::size_t tasks, const OneTask& task) {
    all_at_once(count, [&](std::size_t thread) {
      for (std::size_t i = thread; i < tasks; i += count) task(i);
    });
  };
}

Way shuffled(std::uint64_t seed) {
  return [seed](std::size_t tasks, const OneTask& task) {
    contracts::Random random(seed);
    std::vector<std::size_t> order(tasks);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = tasks; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const std::size_t i : order) task(i);
  };
}

const Peculiar kPeculiar[] = {{"late", late_on_another_thread}, {"one by one", each_on_its_own_thread_one_by_one},
                              {"all at once", all_at_once},     {"on 16 threads", on_threads(16)},
                              {"shuffled", shuffled(1)},        {"shuffled otherwise", shuffled(2)}};

TEST(Stress_Executor, AnyAllowedBehaviourChangesNoBit) {
  const std::vector<Work> all = all_work();
  for (const Peculiar& peculiar : kPeculiar) {
    peculiar.calls = 0;
    for (const std::size_t threads : {2, 3, 7}) {
      for (const Work& work : all) {
        EXPECT_TRUE(work.comes_out(contracts::through_run(), peculiar.executor(threads)))
            << peculiar.name << ", " << threads << " threads: " << work.c.op.name();
        EXPECT_TRUE(work.comes_out(contracts::through_c(), peculiar.executor(threads)))
            << peculiar.name << ", " << threads << " threads, in C: " << work.c.op.name();
      }
    }
    EXPECT_GE(peculiar.calls, 3 * 2 * (all.size() - 1)) << peculiar.name;  // all but the small one are shared out
  }
}

// dx, dweight and dbias of rows in sets that have a weight each.
std::array<std::vector<float>, 3> gradients(const std::array<std::int64_t, 3>& shape, const Executor& executor) {
  const std::int64_t parameter[] = {shape[0], 1, shape[2]};
  const auto n = static_cast<std::size_t>(shape[0] * shape[1] * shape[2]);
  std::vector<float> x(n), dx(n), weight(n / static_cast<std::size_t>(shape[1])), dweight(weight), dbias(weight);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * i % 1021) / 7;
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 13);
  Backward b;
  b.x = b.dy = {x.data(), DType::f32, shape, {}};
  b.normalized_shape = std::span(shape).last(1);
  b.weight = {weight.data(), DType::f32, parameter, {}};
  b.dx = {dx.data(), DType::f32, shape, {}};
  b.dweight = {dweight.data(), DType::f32, parameter, {}};
  b.dbias = {dbias.data(), DType::f32, parameter, {}};
  run(b, executor);
  return {dx, dweight, dbias};
}

TEST(Stress_Executor, AnyAllowedBehaviourChangesNoBitOfGradients) {
  // Shares of sets, of one or several row blocks; row blocks of one set after the other; two steps.
  for (const auto& shape : std::initializer_list<std::array<std::int64_t, 3>>{
           {40, 16, 320}, {30, 150, 33}, {2, 400, 320}, {1, 400, 320}, {2, 20, 3000}}) {
    const auto expected = gradients(shape, {});
    for (const Peculiar& peculiar : kPeculiar) {
      peculiar.calls = 0;
      for (const std::size_t threads : {2, 3, 7}) {
        EXPECT_EQ(gradients(shape, peculiar.executor(threads)), expected)
            << peculiar.name << ", " << threads << " threads: " << shape[0] << " sets of " << shape[1] << " rows";
      }
      EXPECT_GE(peculiar.calls, 3u) << peculiar.name;
    }
  }
}

TEST(Stress_Executor, APoolWorksFromItsOwnTasks) {
  const std::vector<Work> all = all_work();
  std::vector<int> right(all.size());
  call_pool(all.size(),
            [&](std::size_t i) { right[i] = all[i].comes_out(contracts::through_run(), pool_executor(2)) ? 1 : 0; });
  EXPECT_EQ(right, std::vector<int>(all.size(), 1));
}

// evenorm.hpp documents this: after an exception, nobody knows which part of y was written.
TEST(Stress_Executor, OneThatThrowsEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Peculiar throwing{"throwing",
                          [](std::size_t, const OneTask&) { throw std::runtime_error("no threads today"); }};
  EXPECT_EXIT(
      {
        const Work work = all_work()[0];
        try {
          work.comes_out(contracts::through_run(), throwing.executor(2));
        } catch (const std::exception&) {
          std::_Exit(3);
        }
      },
      ::testing::KilledBySignal(SIGABRT), "no threads today");
}

// Tasks that wait for each other run on different threads. Threads other than the caller's must block signals.
// Otherwise a handler could run while the caller's thread is in a section that defers signals.
TEST(Stress_Executor, ThePoolsThreadsBlockSignals) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor: the pool has no other thread";
  std::latch both{2};
  std::array<std::thread::id, 2> threads;
  std::array<sigset_t, 2> blocked;
  call_pool(2, [&](std::size_t i) {
    both.arrive_and_wait();
    threads[i] = std::this_thread::get_id();
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked[i]);
  });
  ASSERT_NE(threads[0], threads[1]);
  for (std::size_t i = 0; i < 2; ++i) {
    const bool own = threads[i] == std::this_thread::get_id();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1}) {
      EXPECT_EQ(sigismember(&blocked[i], signal), own ? 0 : 1) << strsignal(signal);
    }
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF}) {  // of the thread itself
      EXPECT_EQ(sigismember(&blocked[i], signal), 0) << strsignal(signal);
    }
  }
}

// Returns 0 if a norm on the pool is correct although no thread can start, because there is no memory for its stack.
int run_without_threads() {
  sigevent end{};  // ends a hang; alarm()'s signal may be blocked
  end.sigev_notify = SIGEV_SIGNAL;
  end.sigev_signo = SIGKILL;
  timer_t timer{};
  const itimerspec in_20_seconds{{}, {20, 0}};
  if (timer_create(CLOCK_MONOTONIC, &end, &timer) != 0 || timer_settime(timer, 0, &in_20_seconds, nullptr) != 0)
    return 2;
  std::vector<float> x(1 << 20), expected(x.size()), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 1021);
  layer_norm<float>(x, expected, 1024);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{1} << 20U);
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  const Executor pool = pool_executor(2);
  layer_norm<float>(x, y, 1024, {.executor = &pool});
  return y == expected ? 0 : 1;
}

TEST(Stress_Executor, WorksIfThreadsCannotBeStarted) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve more address space than this test leaves";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // runs in a new process, whose pool has not started
  EXPECT_EXIT(std::_Exit(run_without_threads()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace evenorm::testing
