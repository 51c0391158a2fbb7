// How far a long piece of work is, on one line of a terminal that is gone when the work is.
// Knows nothing of what the work is; shows nothing where standard error is no terminal.
#pragma once

#include <chrono>
#include <cstdint>

namespace evenorm::cli {

// Whether the work is bytes, whose speed says something.
enum class Speed { shown, hidden };

class Progress {
 public:
  // total: bytes of work, or other units, all told.
  Progress(std::uint64_t total, bool wanted, Speed speed = Speed::shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::uint64_t units);

 private:
  using Clock = std::chrono::steady_clock;

  void show(double seconds);

  const bool shown_;  // whether there is a terminal for it
  const std::uint64_t total_;
  const Speed speed_;
  const Clock::time_point start_ = Clock::now();
  std::uint64_t done_ = 0;
  double next_ = 0.5;  // seconds from the start: shorter work needs no line
  bool line_ = false;
};

}  // namespace evenorm::cli
