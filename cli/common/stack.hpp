// Gives a command enough stack, even under a small `ulimit -s`.
#pragma once

#include <functional>

namespace evenorm::cli {

// Runs `work` and returns its result. If the calling thread's stack is small, `work` runs on a thread with a larger
// one, which then receives the signals; threads that it starts get larger stacks, too. Called once, by main.
int with_enough_stack(const std::function<int()>& work);

}  // namespace evenorm::cli
