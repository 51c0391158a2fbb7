// The measuring code of `evenorm bench` and of the benchmarks (bench/): timing, with clocks that the test controls, and
// copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/copies.hpp"
#include "bench/measure.hpp"

namespace evenorm {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;

// --- timing --------------------------------------------------------------------------------------------------------

// A clock that advances only when works ask for it.
struct Fake {
  static inline double wall = 0, cpu = 0, slept = 0;
  static inline std::string calls{};  // the names of the works called

  static void reset() {
    wall = cpu = slept = 0;
    calls.clear();
  }
  static constexpr bench::Clocks kClocks{[] { return wall; }, [] { return cpu; },
                                         [](double seconds) { slept += seconds; }};
};

struct FakeWork {
  char name;
  double cost;           // of one call, in seconds
  double cold_cost = 0;  // additional seconds of a call after another work's
  int slow_call = -1;    // number of the call that is interrupted for a second

  void run() {
    Fake::wall +=
        cost + (Fake::calls.empty() || Fake::calls.back() != name ? cold_cost : 0) + (slow_call-- == 0 ? 1 : 0);
    Fake::cpu += cost / 2;
    Fake::calls += name;
  }
};

std::vector<bench::Times> measure(std::vector<FakeWork> works, const bench::Rounds& rounds) {
  Fake::reset();
  std::vector<bench::Work> all;
  for (FakeWork& work : works) {
    all.push_back({[](void* context) { static_cast<FakeWork*>(context)->run(); }, &work});
  }
  return bench::measure(all, rounds, Fake::kClocks);
}

TEST(CliMeasure, WorksAlternateAndTheOrderRotatesAndTurnsRound) {
  measure({{'a', 1}, {'b', 1}, {'c', 1}}, {.seconds = 0, .least = 4});
  // One warm-up call and two trials each. Each round then has one untimed and one timed call.
  EXPECT_EQ(Fake::calls,
            "aaabbbccc"
            "aabbcc"
            "bbaacc"
            "ccaabb"
            "aaccbb");
}

TEST(CliMeasure, ReportsTheTimeOfOneCall) {
  const auto times = measure({{'a', 0.25}, {'b', 1e-6}}, {.seconds = 0, .least = 5});
  ASSERT_EQ(times.size(), 2U);
  for (const std::size_t i : {0, 1}) {
    const double cost = i == 0 ? 0.25 : 1e-6;
    ASSERT_EQ(times[i].wall.size(), 5U);
    ASSERT_EQ(times[i].cpu.size(), 5U);
    EXPECT_THAT(times[i].wall, Each(DoubleNear(cost, cost * 1e-6)));
    EXPECT_THAT(times[i].cpu, Each(DoubleNear(cost / 2, cost * 1e-6)));
  }
}

TEST(CliMeasure, ShortCallsAreTimedTogether) {
  const bench::Rounds rounds{.seconds = 0, .least = 3, .burst = 2e-4};
  measure({{'a', 1.001e-6}}, rounds);
  // 1 + 2 trials, the last with 256 calls, as long as a burst. Each round then has 256 calls and one before them.
  const std::size_t calls = 1 + (256 - 1) + 2 * 256 + 3 * 257;
  EXPECT_EQ(Fake::calls.size(), calls);
  measure({{'a', 1.001e-6, 0, 1}}, rounds);  // the first timed call is interrupted
  EXPECT_EQ(Fake::calls.size(), calls + 1);
}

TEST(CliMeasure, EachWorkIsWarmBeforeItIsTimed) {
  const auto times = measure({{'a', 1, 10}, {'b', 2, 20}}, {.seconds = 0});
  EXPECT_THAT(times[0].wall, Each(1.0));
  EXPECT_THAT(times[1].wall, Each(2.0));
}

TEST(CliMeasure, RunsAsManyRoundsAsTheTimeAllowsAndSleepsIfAsked) {
  const auto rounds_in = [](const bench::Rounds& rounds) { return measure({{'a', 0.25}}, rounds)[0].wall.size(); };
  EXPECT_EQ(rounds_in({.seconds = 0, .least = 7}), 7U);
  EXPECT_EQ(rounds_in({.seconds = 0.75 + 20 * 0.5, .least = 7}), 20U);  // a round has two calls
  EXPECT_EQ(rounds_in({.seconds = 100, .least = 7, .most = 9}), 9U);
  EXPECT_EQ(rounds_in({.seconds = 0, .least = 9, .most = 3}), 3U);
  EXPECT_TRUE(bench::measure({}, {.seconds = 100}, Fake::kClocks).empty());
  measure({{'a', 1}, {'b', 1}}, {.seconds = 0, .least = 8, .pause = 0.5});
  EXPECT_EQ(Fake::slept, 8 * 2 * 0.5);  // before each burst
}

TEST(CliMeasure, ReportsGrowingProgress) {
  std::vector<double> parts;
  measure({{'a', 0.25}}, {.seconds = 5.75, .progress = [&](double part) { parts.push_back(part); }});
  ASSERT_EQ(parts.size(), 10U);
  EXPECT_TRUE(std::is_sorted(parts.begin(), parts.end()));
  EXPECT_LT(parts.front(), 0.2);
  EXPECT_GT(parts.back(), 0.8);
  EXPECT_LT(parts.back(), 1);
}

TEST(CliMeasure, ComputesQuartiles) {
  const auto of = [](std::vector<double> values) {
    const auto [low, median, high] = bench::quartiles(std::move(values));
    return std::vector<double>{low, median, high};
  };
  EXPECT_THAT(of({4, 1, 3, 2}), ElementsAre(1.75, 2.5, 3.25));
  EXPECT_THAT(of({5, 1, 4, 2, 3}), ElementsAre(2, 3, 4));
  EXPECT_THAT(of({7}), ElementsAre(7, 7, 7));
  EXPECT_THAT(of({}), Each(::testing::IsNan()));
}

TEST(CliMeasure, RatiosCompareTimesOfTheSameRound) {
  EXPECT_THAT(bench::ratios(std::vector<double>{2, 9, 1}, std::vector<double>{1, 3, 4}), ElementsAre(2, 3, 0.25));
}

// --- copies --------------------------------------------------------------------------------------------------------

constexpr std::byte kUntouched{0xA5};

// Bytes at a multiple of 64, or `offset` bytes after one, with 64 guard bytes on each side.
class Field {
 public:
  Field(std::size_t size, std::size_t offset) : size_(size), offset_(offset), lines_((size + offset + 63) / 64 + 2) {
    std::fill_n(memory(), 64 * lines_.size(), kUntouched);
  }
  std::byte* data() { return memory() + 64 + offset_; }
  std::vector<std::byte> content() { return {data(), data() + size_}; }
  bool kept_inside() {
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    return std::all_of(memory(), data(), untouched) &&
           std::all_of(data() + size_, memory() + 64 * lines_.size(), untouched);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::byte* memory() { return lines_.data()->bytes; }

  std::size_t size_, offset_;
  std::vector<Line> lines_;
};

Field filled(std::size_t size, std::size_t offset, std::size_t seed) {
  Field field(size, offset);
  for (std::size_t i = 0; i < size; ++i) field.data()[i] = static_cast<std::byte>((i * 131 + i / 251 + seed) % 256);
  return field;
}

struct Way {
  std::size_t reads, writes, fold;
};
constexpr Way kWays[] = {{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {1, 1, 2}, {1, 1, 4}, {1, 1, 8}};

// The bytes that copies.hpp documents for output `w`.
std::vector<std::byte> expected(const Way& way, Field& a, Field& b, std::size_t bytes, std::size_t w) {
  if (way.writes == 2) return w == 0 ? a.content() : b.content();
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (way.fold == 1) {
      result[i] = way.reads == 2 ? a.data()[i] ^ b.data()[i] : a.data()[i];
      continue;
    }
    const std::size_t block = i / bench::kCopyBlock * bench::kCopyBlock,
                      run = std::min(bench::kCopyBlock, bytes - block);
    for (std::size_t f = 0; f < way.fold; ++f) result[i] ^= a.data()[block * way.fold + f * run + (i - block)];
  }
  return result;
}

void expect_copied(const Way& way, std::size_t bytes, std::size_t offset, std::size_t threads,
                   internal::Target target) {
  Field a = filled(bytes * way.fold, offset, 1), b = filled(bytes, offset, 7);
  const auto a_before = a.content(), b_before = b.content();
  Field to[] = {{bytes, offset}, {bytes, offset}};
  const bench::Traffic traffic{{a.data(), way.reads == 2 ? b.data() : nullptr},
                               {to[0].data(), way.writes == 2 ? to[1].data() : nullptr},
                               bytes,
                               way.fold};
  const std::vector<std::byte> results[] = {expected(way, a, b, bytes, 0), expected(way, a, b, bytes, 1)};
  for (const bench::CopyKind kind : bench::copy_kinds(traffic)) {
    for (Field& field : to) std::fill_n(field.data(), bytes, kUntouched);
    bench::Copy(kind, traffic, pool_executor(threads), target).run();
    for (std::size_t w = 0; w < way.writes; ++w) {
      EXPECT_TRUE(to[w].content() == results[w]) << bench::name(kind) << ' ' << bytes << ' ' << threads;
      EXPECT_TRUE(to[w].kept_inside()) << bench::name(kind) << ' ' << bytes << ' ' << threads;
    }
    EXPECT_TRUE(a.content() == a_before && b.content() == b_before);
  }
}

TEST(CliCopies, EveryKindCopiesOnEveryTarget) {
  for (const internal::Target target : internal::compiled_targets()) {
    if (!internal::is_supported(target)) continue;
    for (const Way& way : kWays) {
      for (const std::size_t bytes : {0, 1, 63, 64, 65, 255, 256, 1000, 1024, 4159})
        expect_copied(way, bytes, 0, 1, target);
      expect_copied(way, 777, 1, 1, target);
    }
  }
}

TEST(CliCopies, ThreadsShareTheWorkAndLargeBuffersArePrefetched) {
  for (const Way& way : kWays) {
    for (const std::size_t threads : {2, 3}) expect_copied(way, 800'009, 0, threads, internal::best_target());
  }
  expect_copied(kWays[0], (std::size_t{4} << 20U) + 4159, 0, 1, internal::best_target());
}

TEST(CliCopies, SmallCopiesUseOneThread) {
  Field from(1 << 20, 0), to(1 << 20, 0);
  const auto shares = [&](std::size_t bytes, std::size_t threads) {
    const bench::Traffic traffic{{from.data(), nullptr}, {to.data(), nullptr}, bytes};
    return bench::Copy(bench::CopyKind::plain, traffic, pool_executor(threads)).shares();
  };
  EXPECT_EQ(shares(3072, 4), 1U);
  EXPECT_EQ(shares(1 << 20, 4), 4U);
  EXPECT_EQ(shares(1 << 20, 1), 1U);
}

TEST(CliCopies, TrafficSelectsTheKind) {
  using enum bench::CopyKind;
  Field a(64, 0), b(64, 0), to(64, 0), other(64, 0), askew(64, 1);
  const auto kinds = [](const bench::Traffic& traffic) { return bench::copy_kinds(traffic); };
  EXPECT_THAT(kinds({{a.data(), nullptr}, {to.data(), nullptr}, 64}), ElementsAre(memcpy, streaming, plain));
  EXPECT_THAT(kinds({{a.data(), nullptr}, {askew.data(), nullptr}, 64}), ElementsAre(memcpy, plain));
  EXPECT_THAT(kinds({{a.data(), b.data()}, {to.data(), nullptr}, 64}), ElementsAre(streaming, plain));
  EXPECT_THAT(kinds({{a.data(), b.data()}, {to.data(), other.data()}, 64}), ElementsAre(streaming, plain));
  EXPECT_THAT(kinds({{a.data(), nullptr}, {to.data(), nullptr}, 16, 4}), ElementsAre(streaming, plain));
  EXPECT_THAT(kinds({{a.data(), nullptr}, {to.data(), other.data()}, 64}), ElementsAre());
  EXPECT_THAT(kinds({{a.data(), b.data()}, {to.data(), nullptr}, 16, 4}), ElementsAre());
  EXPECT_THAT(kinds({{a.data(), nullptr}, {to.data(), nullptr}, 16, 3}), ElementsAre());
  EXPECT_THAT(kinds({}), ElementsAre());
}

}  // namespace
}  // namespace evenorm
