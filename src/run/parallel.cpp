// The default executor: one pthreadpool per number of threads asked for, made at its first use and never taken down,
// since a thread may still be inside it when the process ends.
#include "run/parallel.hpp"

#include <pthread.h>
#include <pthreadpool.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>

#if defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define EVENORM_THREAD_SANITIZER
#endif
#endif
#if defined(EVENORM_THREAD_SANITIZER) || defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace evenorm::internal {
namespace {

// pthreadpool orders what the caller did before the tasks and those before its return. ThreadSanitizer does not see
// that in code that was not built with it, so it is told this much: two tasks remain unordered.
#if defined(EVENORM_THREAD_SANITIZER) || defined(__SANITIZE_THREAD__)
void hand_over(void* place) noexcept { __tsan_release(place); }
void take_over(void* place) noexcept { __tsan_acquire(place); }
#else
void hand_over(void*) noexcept {}
void take_over(void*) noexcept {}
#endif

std::atomic<bool> in_forked_child{false};
[[maybe_unused]] const int kForkHandler =
    pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true, std::memory_order_relaxed); });

constexpr std::size_t kMaxThreads = 256;

std::size_t processors() noexcept {
  static const std::size_t count = std::max(1u, std::thread::hardware_concurrency());
  return count;
}

// A thread made while one lives takes no signals but those that it causes itself (and a profiler's): those to the
// process are the caller's.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF}) sigdelset(&blocked, own);
    pthread_sigmask(SIG_SETMASK, &blocked, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_;
};

// pthreadpool waits for ever for a worker that could not be started, so it is tried beforehand, with as many at once.
bool can_start(std::size_t threads) noexcept {
  std::array<pthread_t, kMaxThreads> started;
  std::size_t count = 0;
  std::mutex gate;
  {
    const std::lock_guard closed(gate);
    const auto pass = [](void* closed_gate) -> void* {
      const std::lock_guard open(*static_cast<std::mutex*>(closed_gate));
      return nullptr;
    };
    while (count < threads && pthread_create(&started[count], nullptr, pass, &gate) == 0) ++count;
  }
  for (std::size_t i = 0; i < count; ++i) pthread_join(started[i], nullptr);
  return count == threads;
}

thread_local bool inside_pool = false;

// Null where there cannot be one.
pthreadpool_t pool_of(std::size_t threads) noexcept {
  static std::array<std::atomic<pthreadpool_t>, kMaxThreads + 1> pools{};
  static std::mutex making;
  pthreadpool_t pool = pools[threads].load(std::memory_order_acquire);
  if (pool != nullptr) return pool;
  const std::lock_guard lock(making);
  pool = pools[threads].load(std::memory_order_relaxed);
  const SignalsBlocked blocked;
  if (pool == nullptr && can_start(threads - 1)) {  // the caller is one of them
    pool = pthreadpool_create(threads);
    pools[threads].store(pool, std::memory_order_release);
  }
  return pool;
}

struct Job {
  void (*task)(void*, std::size_t) noexcept;
  void* argument;
  std::size_t tasks;
  std::atomic<std::size_t> next{0};

  void work() noexcept {
    inside_pool = true;
    const auto take = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
    for (std::size_t i = take(); i < tasks; i = take()) task(argument, i);
    inside_pool = false;
  }
  void work_in_pool() noexcept {
    take_over(&task);
    work();
    hand_over(&tasks);
  }
};

void run_in_pool(void* context, std::size_t tasks, void (*task)(void*, std::size_t) noexcept, void* argument) {
  // Threads beyond the processors would only wait for one another; the shares stay those of the number asked for.
  const std::size_t threads = std::min({reinterpret_cast<std::size_t>(context), tasks, processors()});
  Job job{task, argument, tasks};
  const bool nested = inside_pool;
  const bool alone = threads <= 1 || nested || in_forked_child.load(std::memory_order_relaxed);
  const pthreadpool_t pool = alone ? nullptr : pool_of(threads);
  if (pool == nullptr) {
    job.work();
    inside_pool = nested;
    return;
  }
  hand_over(&job.task);
  pthreadpool_parallelize_1d(
      pool, [](void* shared, std::size_t) { static_cast<Job*>(shared)->work_in_pool(); }, &job, threads, 0);
  take_over(&job.tasks);
}

}  // namespace

std::size_t usable_threads(const Executor& executor) noexcept {
  if (executor.parallel_for == nullptr || in_forked_child.load(std::memory_order_relaxed)) return 1;
  return executor.threads;
}

}  // namespace evenorm::internal

namespace evenorm {

Executor pool_executor(std::size_t threads) {
  if (threads == 0) threads = internal::processors();
  threads = std::min(threads, internal::kMaxThreads);
  return {threads, reinterpret_cast<void*>(threads), &internal::run_in_pool};
}

}  // namespace evenorm
