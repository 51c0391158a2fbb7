// Loads a library that uses evenorm, works on threads, and unloads it, in a separate program (unload/).
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

TEST(Unload, WorksAHundredTimesAfterParallelUse) {
  const testing::ProgramRun run = testing::run_evenorm({testing::plugin()}, {.program = testing::unloading_host()});
  EXPECT_EQ(run.signal, 0);
  EXPECT_EQ(run.status, 0) << run.err;
  // All rounds use the first round's pool.
  const unsigned expected = std::clamp(std::thread::hardware_concurrency(), 1U, 2U);
  EXPECT_EQ(run.out, std::to_string(expected) + " threads\n");
}

}  // namespace
}  // namespace evenorm
