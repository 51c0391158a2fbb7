// A library that uses evenorm is loaded, works on threads, and is unloaded, in a program of its own (unload/).
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

TEST(Unload, AHundredTimesAfterParallelUse) {
  const testing::ProgramRun run = testing::run_evenorm({testing::plugin()}, {.program = testing::unloading_host()});
  EXPECT_EQ(run.signal, 0);
  EXPECT_EQ(run.status, 0) << run.err;
  // The pool is that of the first time.
  const unsigned expected = std::clamp(std::thread::hardware_concurrency(), 1U, 2U);
  EXPECT_EQ(run.out, std::to_string(expected) + " threads\n");
}

}  // namespace
}  // namespace evenorm
