// Timing: works beside each other, round by round, so that what the machine does meanwhile meets all of them alike.
// Knows nothing of what they do.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace evenorm::bench {

// Something to be timed: run(context), again and again.
struct Work {
  void (*run)(void* context);
  void* context;
};

template <class Function>
Work work_of(Function& function) {
  return {[](void* context) { (*static_cast<Function*>(context))(); }, &function};
}

// Seconds a call, one for each round: of the wall's clock, and of the calling thread's processor time.
struct Times {
  std::vector<double> wall, cpu;
};

struct Rounds {
  double seconds;  // of all of it, for `least` to `most` rounds
  std::size_t least = 7, most = 2000;
  double burst = 2e-4;                             // seconds that the calls timed together take at least
  double pause = 0;                                // seconds of sleep before each burst: others' threads stop spinning
  std::function<void(double part)> progress = {};  // told before each round how much of the whole is done, 0 to 1
};

// What times are taken from, in seconds.
struct Clocks {
  double (*wall)();
  double (*cpu)();
  void (*sleep)(double seconds);
};
extern const Clocks kSystemClocks;

// In each round every work in turn, in an order that moves on by one from round to round; before each burst of calls
// one that is not timed, so that its own caches and threads are warm. Of several threads' work, cpu is the calling
// thread's.
std::vector<Times> measure(std::span<const Work> works, const Rounds& rounds, const Clocks& clocks = kSystemClocks);

// The values a quarter, a half and three quarters up the sorted ones, interpolated (as NumPy's percentile does).
// NaN of no values.
struct Quartiles {
  double low, median, high;
};
Quartiles quartiles(std::vector<double> values);

// Round by round.
std::vector<double> ratios(std::span<const double> over, std::span<const double> under);

}  // namespace evenorm::bench
