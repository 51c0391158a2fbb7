// Times several pieces of work in turn, round by round, so that disturbances of the machine affect all of them alike.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace evenorm::bench {

// Something to be timed: run(context) is called repeatedly.
struct Work {
  void (*run)(void* context);
  void* context;
};

template <class Function>
Work work_of(Function& function) {
  return {[](void* context) { (*static_cast<Function*>(context))(); }, &function};
}

// Seconds of a call, one value for each round: of the wall clock, and of the calling thread's processor time.
struct Times {
  std::vector<double> wall, cpu;
};

struct Rounds {
  double seconds;  // of all rounds together, whose number is from `least` to `most`
  std::size_t least = 7, most = 2000;
  double burst = 2e-4;  // seconds that the calls timed together take at least
  double pause = 0;     // seconds of sleep before each burst, until other threads stop spinning
  std::function<void(double part)> progress = {};  // called before each round with the part that is done, 0 to 1
};

// The clocks, in seconds.
struct Clocks {
  double (*wall)();
  double (*cpu)();
  void (*sleep)(double seconds);
};
extern const Clocks kSystemClocks;

// Each round runs every work once, in an order that moves on by one from round to round and turns round each time: what
// ran before leaves its mark on the caches, even though one call that is not timed precedes each burst of calls. If a
// work has several threads, cpu is the calling thread's time.
std::vector<Times> measure(std::span<const Work> works, const Rounds& rounds, const Clocks& clocks = kSystemClocks);

// Interpolated quartiles, as NumPy's percentile gives them; NaN if there are no values.
struct Quartiles {
  double low, median, high;
};
Quartiles quartiles(std::vector<double> values);

// The quotients, round by round.
std::vector<double> ratios(std::span<const double> over, std::span<const double> under);

}  // namespace evenorm::bench
