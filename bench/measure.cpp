#include "bench/measure.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace evenorm::bench {
namespace {

constexpr std::size_t kMostCalls = std::size_t{1} << 30U;

double seconds_on(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void sleep_for(double seconds) {
  const double whole = std::floor(seconds);
  const timespec time{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

struct Burst {
  double wall, cpu;  // of all calls
};

// The processor clock is read outside the wall clock, because reading it is a system call of hundreds of nanoseconds.
Burst time_calls(const Work& work, std::size_t calls, const Clocks& clocks) {
  const double cpu = clocks.cpu(), wall = clocks.wall();
  for (std::size_t i = 0; i < calls; ++i) work.run(work.context);
  const double wall_end = clocks.wall();
  return {wall_end - wall, clocks.cpu() - cpu};
}

// The number of calls that take at least `burst` seconds, found by doubling. Two tries have to take that long, because
// one may have been interrupted.
std::size_t calls_of(const Work& work, double burst, const Clocks& clocks) {
  work.run(work.context);
  std::size_t calls = 1;
  for (; calls < kMostCalls; calls *= 2) {
    if (time_calls(work, calls, clocks).wall >= burst && time_calls(work, calls, clocks).wall >= burst) break;
  }
  return calls;
}

// The part of the whole that is done, 0 to 1. Between `least` and `most` rounds it depends on the time.
double part_done(std::size_t round, double spent, const Rounds& rounds) {
  const auto share = [](double part, double whole) { return whole > 0 ? std::min(part / whole, 1.0) : 1.0; };
  const auto done = static_cast<double>(round);
  const double needed = std::min(share(spent, rounds.seconds), share(done, static_cast<double>(rounds.least)));
  return std::max(needed, share(done, static_cast<double>(rounds.most)));
}

}  // namespace

const Clocks kSystemClocks{[] { return seconds_on(CLOCK_MONOTONIC); },
                           [] { return seconds_on(CLOCK_THREAD_CPUTIME_ID); }, sleep_for};

std::vector<Times> measure(std::span<const Work> works, const Rounds& rounds, const Clocks& clocks) {
  const double start = clocks.wall();
  std::vector<Times> times(works.size());
  std::vector<std::size_t> calls;
  for (const Work& work : works) calls.push_back(calls_of(work, rounds.burst, clocks));
  for (std::size_t round = 0; !works.empty(); ++round) {
    const double part = part_done(round, clocks.wall() - start, rounds);
    if (part >= 1) break;
    if (rounds.progress) rounds.progress(part);
    for (std::size_t i = 0; i < works.size(); ++i) {
      const std::size_t step = round % 2 == 0 ? i : works.size() - i;
      const std::size_t turn = (round + step) % works.size();
      if (rounds.pause > 0) clocks.sleep(rounds.pause);
      works[turn].run(works[turn].context);
      const Burst burst = time_calls(works[turn], calls[turn], clocks);
      times[turn].wall.push_back(burst.wall / static_cast<double>(calls[turn]));
      times[turn].cpu.push_back(burst.cpu / static_cast<double>(calls[turn]));
    }
  }
  return times;
}

Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return {kNan, kNan, kNan};
  }
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const double rest = place - static_cast<double>(below);
    return rest == 0 ? values[below] : values[below] + rest * (values[below + 1] - values[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

std::vector<double> ratios(std::span<const double> over, std::span<const double> under) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(over.size(), under.size()); ++i) result.push_back(over[i] / under[i]);
  return result;
}

}  // namespace evenorm::bench
