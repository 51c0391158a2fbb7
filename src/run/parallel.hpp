// Runs tasks on an executor. A forked child runs them one after the other.
#pragma once

#include <algorithm>
#include <cstddef>

#include "evenorm/evenorm.hpp"
#include "plan/spec.hpp"
#include "plan/tuning.hpp"

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

// How many tasks to make of work on some elements. One with fewer than `least` costs more to hand over than it saves.
inline std::size_t count_tasks(const Executor& executor, std::size_t elements, std::size_t least) noexcept {
  const std::size_t threads = usable_threads(executor);
  return threads <= 1 ? 1 : std::clamp(elements / least, std::size_t{1}, threads * kTasksPerThread);
}

// Divides `count` into `shares` parts of whole units, but for the last, and calls share(first, count) for each of them.
template <class Share>
void share_out(const Executor& executor, std::size_t count, std::size_t unit, std::size_t shares, const Share& share) {
  if (count == 0) return;
  const std::size_t units = (count + unit - 1) / unit;
  shares = std::min(shares, units);
  if (shares <= 1) return share(std::size_t{0}, count);
  parallel_for(executor, shares, [&](std::size_t i) {
    const std::size_t first = share_start(units, shares, i) * unit;
    share(first, std::min(share_start(units, shares, i + 1) * unit, count) - first);
  });
}

}  // namespace evenorm::internal
