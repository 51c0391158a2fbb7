// Runs code in a forked child of the test program, with a time limit.
#pragma once

#include <functional>
#include <string>

namespace evenorm::testing {

// Runs `body` in a child of fork(), without exec, and exits it with body's result. Returns "" if that is 0, else how
// the child ended ("hangs" if it was killed after the time limit).
std::string outcome_of_child(const std::function<int()>& body, double seconds = 20);

}  // namespace evenorm::testing
