#include "cli/common/stack.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstddef>

namespace evenorm::cli {
namespace {

constexpr std::size_t kEnough = std::size_t{1} << 20;  // commands need less than 128 KiB

struct Job {
  const std::function<int()>& work;
  sigset_t signals;  // the signals to block
  int status = 0;
};

void* run(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  pthread_sigmask(SIG_SETMASK, &job.signals, nullptr);
  job.status = job.work();
  return nullptr;
}

bool is_small() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kEnough;
}

// Sets the stack size of all new threads, including those of the pool.
void enlarge_stacks_of_threads() noexcept {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  if (pthread_attr_setstacksize(&attributes, kEnough) == 0) pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

}  // namespace

int with_enough_stack(const std::function<int()>& work) {
  if (!is_small()) return work();
  enlarge_stacks_of_threads();
  // Blocks signals on this thread: a handler here would run while the other thread defers signals.
  Job job{.work = work, .signals = {}};
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &job.signals);
  pthread_t thread{};
  const bool started = pthread_create(&thread, nullptr, run, &job) == 0;
  if (started) {
    pthread_join(thread, nullptr);
    pthread_sigmask(SIG_SETMASK, &job.signals, nullptr);
  } else {
    run(&job);
  }
  return job.status;
}

}  // namespace evenorm::cli
