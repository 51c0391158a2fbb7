// How far a long piece of work is, on one line of a terminal that is gone when the work is.
// Knows nothing of what the work is; shows nothing where standard error is no terminal.
#pragma once

#include <chrono>
#include <cstdint>

namespace evenorm::cli {

class Progress {
 public:
  // total: bytes of work, all told.
  Progress(std::uint64_t total, bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  void show(double seconds);

  const bool shown_;  // whether there is a terminal for it
  const std::uint64_t total_;
  const Clock::time_point start_ = Clock::now();
  std::uint64_t done_ = 0;
  double next_ = 0.5;  // seconds from the start: shorter work needs no line
  bool line_ = false;
};

}  // namespace evenorm::cli
