// See timing.hpp.
#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <random>

namespace evenorm::bench {
namespace {

double seconds_of(const std::function<void()>& work, std::size_t repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(repeats);
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(std::vector<Rival>& rivals, double seconds) {
  for (auto& rival : rivals) rival.work();
  double slowest = 0;
  for (auto& rival : rivals) slowest = std::max(slowest, seconds_of(rival.work, 1));
  const auto repeats = static_cast<std::size_t>(std::max(1.0, 2e-4 / slowest));
  const double round = slowest * static_cast<double>(repeats * rivals.size());
  const auto rounds = static_cast<std::size_t>(std::clamp(seconds / round, 7.0, 2000.0));
  for (std::size_t r = 0; r < rounds; ++r) {
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      Rival& rival = rivals[(r + i) % rivals.size()];
      rival.times.push_back(seconds_of(rival.work, repeats));
    }
  }
}

double median_ratio(const Rival& over, const Rival& under) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < over.times.size(); ++i) ratios.push_back(over.times[i] / under.times[i]);
  return median(ratios);
}

Buffer::Buffer(std::size_t bytes) : data(new (std::align_val_t{64}) std::byte[bytes]) { std::memset(data, 0, bytes); }
Buffer::~Buffer() { ::operator delete[](data, std::align_val_t{64}); }

void fill_normal(Buffer& x, std::size_t count, bool bf16) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(generator);
    if (bf16) {
      std::memcpy(x.data + 2 * i, reinterpret_cast<const std::byte*>(&value) + 2, 2);
    } else {
      std::memcpy(x.data + 4 * i, &value, 4);
    }
  }
}

}  // namespace evenorm::bench
