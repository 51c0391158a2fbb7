// See stack.hpp.
#include "cli/common/stack.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstddef>

namespace evenorm::cli {
namespace {

constexpr std::size_t kEnough = std::size_t{1} << 20;  // ample: commands run in 128 KiB

struct Job {
  const std::function<int()>& work;
  sigset_t signals;  // those that are blocked
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

// Of all threads from now on, those of the pool among them.
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
  // A handler on this thread would not keep the other one from what signals are deferred for.
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
