// Pieces of work of every nature with the results that they should have, for tests that run many of them at once.
#pragma once

#include <vector>

#include "contracts/harness.hpp"

namespace evenorm::testing {

struct Work {
  contracts::Operation op;
  contracts::Array x, weight, bias;
  contracts::Layout layout;
  contracts::Outcome expected;  // of a run on one thread, before anything else

  // Whether a run gives the same bits, statistics too, and writes nothing else.
  bool comes_out(const contracts::Runner& run, const Executor& executor) const;
};

// Both kinds, all types, rows that lie in every order, in place; many rows, few rows, a long row whose blocks are
// shared out, a row that nobody can share. All of them are large enough to be shared out but the last.
std::vector<Work> all_work();

// evenorm::run.
contracts::Runner through_cpp();

}  // namespace evenorm::testing
