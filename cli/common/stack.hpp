// The stack that a command needs, whatever `ulimit -s` says. Knows nothing of what is run on it.
#pragma once

#include <functional>

namespace evenorm::cli {

// Runs `work` on the calling thread where stacks are large enough; else on a thread with a larger one, to which signals
// go meanwhile, and the threads that it starts have such stacks, too. Returns what `work` does. Called once, by main.
int with_enough_stack(const std::function<int()>& work);

}  // namespace evenorm::cli
