// What all benchmarks time with: rivals interleaved round by round, medians, paired ratios, buffers.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace evenorm::bench {

double median(std::vector<double> values);

struct Rival {
  std::string name;
  std::function<void()> work;
  std::vector<double> times{};  // in seconds, one for each round
};

// Round by round, each rival in turn, in an order that moves on by one each round.
void measure(std::vector<Rival>& rivals, double seconds);

// The median of the rounds' ratios.
double median_ratio(const Rival& over, const Rival& under);

// Aligned to 64 bytes, as the rivals' own allocators do. Zeros at first, so that every page is there.
struct Buffer {
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data;
};

// `count` normal numbers, as f32 or bf16.
void fill_normal(Buffer& x, std::size_t count, bool bf16);

}  // namespace evenorm::bench
