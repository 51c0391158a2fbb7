// A C function around measure(), for the driver in Python: build/bench/libevenorm_bench_host.so.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "bench/measure.hpp"

extern "C" {
#pragma GCC visibility push(default)

// run(context) is called repeatedly: bench_run with what bench_make returned (rival.h).
struct bench_work {
  void (*run)(void* context);
  void* context;
};

// evenorm::bench::Rounds without defaults.
struct bench_rounds {
  double seconds;
  std::size_t least, most;
  double burst, pause;
};

// Writes the seconds per call of work i in round r to wall[i * most + r] and cpu[i * most + r]. Returns the number of
// rounds, at most `most`.
int bench_measure(const bench_work* given, int count, const bench_rounds* rounds, double* wall, double* cpu, int most) {
  const auto room = static_cast<std::size_t>(most);
  std::vector<evenorm::bench::Work> works;
  for (const bench_work& work : std::span(given, static_cast<std::size_t>(count))) {
    works.push_back({work.run, work.context});
  }
  const auto times = evenorm::bench::measure(works, {.seconds = rounds->seconds,
                                                     .least = std::min(rounds->least, room),
                                                     .most = std::min(rounds->most, room),
                                                     .burst = rounds->burst,
                                                     .pause = rounds->pause});
  for (std::size_t i = 0; i < times.size(); ++i) {
    std::ranges::copy(times[i].wall, wall + i * room);
    std::ranges::copy(times[i].cpu, cpu + i * room);
  }
  return times.empty() ? 0 : static_cast<int>(times[0].wall.size());
}

#pragma GCC visibility pop
}
