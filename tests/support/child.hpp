// A forked child of the test program that has to end in time. Knows nothing of what it does.
#pragma once

#include <functional>
#include <string>

namespace evenorm::testing {

// Runs `body` in a child of fork(), without exec, and ends it with the status that `body` returns. "" where that is 0;
// else how the child ended ("hangs": it was killed after the time given).
std::string outcome_of_child(const std::function<int()>& body, double seconds = 20);

}  // namespace evenorm::testing
