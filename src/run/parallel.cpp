// The library's own thread pool. Its threads start when a call first wants them, and serve all callers. They never end,
// because a program may call evenorm until it exits. Only objects without destructors are shared with them.
#include "run/parallel.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

namespace evenorm::internal {
namespace {

std::atomic<bool> in_forked_child{false};
[[maybe_unused]] const int kForkHandler =
    pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true, std::memory_order_relaxed); });

constexpr std::size_t kMaxThreads = 256;
// How often a thread yields before it sleeps: for about 6 ms if nothing else runs. Waking it takes up to 0.1 ms.
constexpr int kYields = 16384;

std::size_t processors() noexcept {
  static const std::size_t count = std::max(1u, std::thread::hardware_concurrency());
  return count;
}

thread_local bool inside_pool = false;

// A call's tasks. Whoever works on them takes the next one until none is left.
struct Job {
  void (*task)(void*, std::size_t) noexcept;
  void* argument;
  std::size_t tasks;
  std::size_t wanted;  // how many threads may still join the caller
  Job* behind = nullptr;
  std::atomic<std::size_t> next{0}, joined{0};

  void work() noexcept {
    const bool nested = std::exchange(inside_pool, true);
    const auto take = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
    for (std::size_t i = take(); i < tasks; i = take()) task(argument, i);
    inside_pool = nested;
  }
};

struct Event {
  pthread_cond_t happened = PTHREAD_COND_INITIALIZER;
  std::size_t awake = 0;  // threads that wait for it without sleeping
};

// Guards what follows, and all of a job but `next`.
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Event job_came, job_left;
std::atomic<Job*> jobs{nullptr};  // those that want threads, the latest first
std::size_t started = 0;          // threads

void remove(const Job& job) noexcept {
  if (jobs == &job) jobs = job.behind;
  for (Job* other = jobs; other != nullptr; other = other->behind) {
    if (other->behind == &job) other->behind = job.behind;
  }
}

// Waits, with the mutex held, until an event has made a condition true.
template <class Condition>
void wait(Event& event, const Condition& holds) noexcept {
  if (holds()) return;
  ++event.awake;
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < kYields && !holds(); ++i) sched_yield();
  pthread_mutex_lock(&mutex);
  --event.awake;
  while (!holds()) pthread_cond_wait(&event.happened, &mutex);
}

void* serve(void*) {
  pthread_mutex_lock(&mutex);
  for (;;) {
    wait(job_came, [] { return jobs.load(std::memory_order_relaxed) != nullptr; });
    Job& job = *jobs;
    ++job.joined;
    if (--job.wanted == 0) remove(job);
    pthread_mutex_unlock(&mutex);
    job.work();
    pthread_mutex_lock(&mutex);
    if (--job.joined == 0) pthread_cond_broadcast(&job_left.happened);
  }
}

// Starts a thread that blocks all signals that are sent to the process, except a profiler's. It still takes the signals
// that it causes itself.
bool start_thread() noexcept {
  sigset_t blocked, saved;
  sigfillset(&blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF}) sigdelset(&blocked, own);
  pthread_sigmask(SIG_SETMASK, &blocked, &saved);
  pthread_t thread;
  const bool is_started = pthread_create(&thread, nullptr, serve, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  if (is_started) pthread_detach(thread);
  return is_started;
}

// The caller takes every task that no thread takes before, so it never waits for a thread that has not begun.
void run_in_pool(void* context, std::size_t tasks, void (*task)(void*, std::size_t) noexcept, void* argument) {
  // More threads than processors would only wait for one another.
  const std::size_t threads = std::min({reinterpret_cast<std::size_t>(context), tasks, processors()});
  Job job{task, argument, tasks, threads - 1};
  if (threads <= 1 || inside_pool || in_forked_child.load(std::memory_order_relaxed)) return job.work();
  pthread_mutex_lock(&mutex);
  while (started < threads - 1 && start_thread()) ++started;
  job.behind = jobs;
  jobs = &job;
  const std::size_t awake = job.behind == nullptr ? job_came.awake : 0;  // those that no other job gets
  pthread_mutex_unlock(&mutex);
  for (std::size_t i = 1 + awake; i < threads; ++i) pthread_cond_signal(&job_came.happened);
  job.work();
  pthread_mutex_lock(&mutex);
  remove(job);
  wait(job_left, [&] { return job.joined == 0; });
  pthread_mutex_unlock(&mutex);
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
