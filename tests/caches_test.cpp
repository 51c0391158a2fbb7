// From which size on memory is used in another way: by the caches, and no later than where that was measured to pay.
#include "plan/caches.hpp"

#include <gtest/gtest.h>

namespace evenorm::internal {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20u;

TEST(Caches, StreamingStartsAtAShareOfTheLastOne) {
  EXPECT_EQ(streamed_from({.second = kMiB, .last = 32 * kMiB}), 8 * kMiB);
  EXPECT_EQ(streamed_from({.second = kMiB, .last = 6 * kMiB}), 6 * kMiB / 4);
  EXPECT_EQ(streamed_from({.second = kMiB, .last = 384 * kMiB}), 8 * kMiB);
}

TEST(Caches, FetchingStartsBeyondTheSecondOne) {
  EXPECT_EQ(fetched_from({.second = kMiB, .last = 32 * kMiB}), 4 * kMiB);
  EXPECT_EQ(fetched_from({.second = kMiB / 2, .last = 32 * kMiB}), 2 * kMiB);
  EXPECT_EQ(fetched_from({.second = 2 * kMiB, .last = 32 * kMiB}), 4 * kMiB);
}

TEST(Caches, AreFound) {
  EXPECT_GT(caches().second, 0u);
  EXPECT_GE(caches().last, caches().second);
}

}  // namespace
}  // namespace evenorm::internal
