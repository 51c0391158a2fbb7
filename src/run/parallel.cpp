// The library's own thread pool: one pthreadpool per number of threads, made at its first use. It is never destroyed,
// because a thread may still be inside it when the process ends.
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

// pthreadpool orders the caller's work before the tasks, and the tasks before the caller's return. ThreadSanitizer does
// not see this in uninstrumented code, so these annotations report it. Two tasks remain unordered.
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

// While an object lives, new threads block all signals that are sent to the process, except a profiler's. They still
// take the signals that they cause themselves.
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

// Tries to start that many threads at once, because pthreadpool waits forever for a worker that cannot be started.
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

// Returns null if the threads cannot be started.
pthreadpool_t pool_of(std::size_t threads) noexcept {
  static std::array<std::atomic<pthreadpool_t>, kMaxThreads + 1> pools{};
  static std::mutex making;
  pthreadpool_t pool = pools[threads].load(std::memory_order_acquire);
  if (pool != nullptr) return pool;
  const std::lock_guard lock(making);
  pool = pools[threads].load(std::memory_order_relaxed);
  const SignalsBlocked blocked;
  if (pool == nullptr && can_start(threads - 1)) {  // the caller is one of the threads
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
  // More threads than processors would only wait for one another.
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
