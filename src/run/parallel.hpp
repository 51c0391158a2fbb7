// Running tasks on an executor, and the rule that a forked child runs them one after the other.
#pragma once

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// Tasks that can run at once: 1 in a forked child, whose copies of other threads do not exist.
std::size_t usable_threads(const Executor& executor) noexcept;

// task(i) for each i in [0, tasks), through the executor.
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
