// Calls of every kind with their expected results, for tests that run many of them at once.
#pragma once

#include <vector>

#include "contracts/harness.hpp"

namespace evenorm::testing {

struct Work {
  contracts::Operation op;
  contracts::Array x, weight, bias;
  contracts::Layout layout;
  contracts::Outcome expected;  // from a run on one thread, before all other runs

  // Returns true if a run gives the same bits, including statistics, and writes nothing else.
  bool comes_out(const contracts::Runner& run, const Executor& executor) const;
};

// Both kinds, all types, all orders of rows, and in place. Many rows, few rows, a long row whose blocks are shared out,
// and a row that cannot be shared out. All except the last are large enough to be shared out.
std::vector<Work> all_work();

// Calls evenorm::run.
contracts::Runner through_cpp();

}  // namespace evenorm::testing
