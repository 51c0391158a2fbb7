// See host.h.
#include "bench/host.h"

#include <algorithm>
#include <new>

#include "bench/measure.hpp"

namespace {

using namespace evenorm::bench;

int measure_into(std::span<const bench_work> given, const bench_rounds& rounds, double* wall, double* cpu,
                 std::size_t most) {
  std::vector<Work> works;
  for (const bench_work& work : given) works.push_back({work.run, work.context});
  const std::vector<Times> times = measure(works, {.seconds = rounds.seconds,
                                                   .least = std::min(rounds.least, most),
                                                   .most = std::min(rounds.most, most),
                                                   .burst = rounds.burst,
                                                   .pause = rounds.pause});
  for (std::size_t i = 0; i < times.size(); ++i) {
    std::copy(times[i].wall.begin(), times[i].wall.end(), wall + i * most);
    std::copy(times[i].cpu.begin(), times[i].cpu.end(), cpu + i * most);
  }
  return times.empty() ? 0 : static_cast<int>(times[0].wall.size());
}

}  // namespace

int bench_measure(const bench_work* works, int count, const bench_rounds* rounds, double* wall, double* cpu, int most) {
  if (works == nullptr || rounds == nullptr || wall == nullptr || cpu == nullptr || count < 0 || most < 0) return -1;
  try {
    return measure_into({works, static_cast<std::size_t>(count)}, *rounds, wall, cpu, static_cast<std::size_t>(most));
  } catch (const std::bad_alloc&) {
    return -1;
  }
}
