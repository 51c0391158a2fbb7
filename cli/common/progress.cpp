#include "cli/common/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "cli/common/streams.hpp"
#include "cli/files/temporaries.hpp"

namespace evenorm::cli {

Progress::Progress(std::uint64_t total, bool wanted, Speed speed)
    : shown_(wanted && total > 0 && isatty(STDERR_FILENO) == 1), total_(total), speed_(speed) {}

Progress::~Progress() {
  if (!line_) return;
  clear_terminal_line();
  terminal_line_is_open(false);
}

void Progress::advance(std::uint64_t units) {
  done_ += units;
  if (!shown_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (seconds < next_) return;
  next_ = seconds + 0.1;
  show(seconds);
}

// Uses at most 60 columns, because a line that wraps could not be cleared.
void Progress::show(double seconds) {
  constexpr std::size_t kBar = 20;
  const double part = static_cast<double>(done_) / static_cast<double>(total_);
  std::string bar(static_cast<std::size_t>(part * kBar), '#');
  bar.resize(kBar, '.');
  terminal_line_is_open(true);
  line_ = true;
  const bool fast = speed_ == Speed::shown;
  const std::string speed = fast ? fmt::format("  {:.2f} GB/s", static_cast<double>(done_) / seconds * 1e-9) : "";
  tell(fmt::format("\r[{}] {:3.0f} %{}  {:.0f} s left   ", bar, part * 100, speed, seconds / part * (1 - part)));
}

}  // namespace evenorm::cli
