// Shows the progress of long work on one line of the terminal, and clears it at the end. Shows nothing if standard
// error is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>

namespace evenorm::cli {

// Whether to show a speed in bytes per second.
enum class Speed { shown, hidden };

class Progress {
 public:
  // total: all work, in bytes or other units.
  Progress(std::uint64_t total, bool wanted, Speed speed = Speed::shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::uint64_t units);

 private:
  using Clock = std::chrono::steady_clock;

  void show(double seconds);

  const bool shown_;
  const std::uint64_t total_;
  const Speed speed_;
  const Clock::time_point start_ = Clock::now();
  std::uint64_t done_ = 0;
  double next_ = 0.5;  // seconds from the start; shorter work shows no line
  bool line_ = false;
};

}  // namespace evenorm::cli
