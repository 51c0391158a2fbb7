// Runs tasks on an executor. A forked child runs them one after the other.
#pragma once

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// The number of tasks that can run at once. It is 1 in a forked child, which has no other threads.
std::size_t usable_threads(const Executor& executor) noexcept;

// Calls task(i) for each i in [0, tasks) through the executor.
template <class Task>
void parallel_for(const Executor& executor, std::size_t tasks, const Task& task) noexcept {
  if (tasks <= 1 || usable_threads(executor) <= 1) {
    for (std::size_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  const auto call = [](void* argument, std::size_t i) noexcept { (*static_cast<const Task*>(argument))(i); };
  executor.parallel_for(executor.context, tasks, call, const_cast<Task*>(&task));
}

}  // namespace evenorm::internal
