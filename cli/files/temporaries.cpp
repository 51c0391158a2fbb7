// The list of temporary files is a fixed array, because a signal handler can neither allocate nor lock.
#include "cli/files/temporaries.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>
#include <string_view>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

// A signal handler may access only lock-free atomics and static storage.
struct Slot {
  std::atomic<bool> used{false};
  std::array<char, PATH_MAX> path{};
};
constexpr std::size_t kSlots = 8;
std::array<Slot, kSlots> slots;
std::atomic<bool> line_open{false};
std::atomic<int> deferrals{0};
std::atomic<int> pending{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void remove_all_and_die(int signal) {
  for (const Slot& slot : slots) {
    if (slot.used) unlink(slot.path.data());
  }
  if (line_open) clear_terminal_line();
  // The default action ends the process once the handler returns, and shows the shell the signal.
  std::signal(signal, SIG_DFL);
  raise(signal);
}

template <std::size_t N>
bool is_among(const std::array<int, N>& signals, int signal) {
  return std::find(signals.begin(), signals.end(), signal) != signals.end();
}

// A fault of the process itself cannot be deferred: it would recur at once or end the process.
constexpr std::array kFaults{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

extern "C" void evenorm_cli_on_signal(int signal) {
  if (deferrals > 0 && !is_among(kFaults, signal)) {
    pending = signal;
  } else {
    remove_all_and_die(signal);
  }
}

}  // namespace

SignalsDeferred::SignalsDeferred() noexcept { ++deferrals; }

SignalsDeferred::~SignalsDeferred() {
  if (--deferrals > 0) return;
  if (const int signal = pending.exchange(0); signal != 0) remove_all_and_die(signal);
}

void remember_temporary(const std::string& path) {
  if (path.size() >= PATH_MAX) throw Failure(fmt::format("{}: the path is too long", printable(path, 64)));
  for (Slot& slot : slots) {
    if (slot.used) continue;
    std::memcpy(slot.path.data(), path.c_str(), path.size() + 1);
    slot.used = true;
    return;
  }
  throw Failure(fmt::format("at most {} files can be written at once", kSlots));
}

void forget_temporary(const std::string& path) noexcept {
  for (Slot& slot : slots) {
    if (slot.used && path == slot.path.data()) slot.used = false;
  }
}

void terminal_line_is_open(bool open) noexcept { line_open = open; }

// Safe in a signal handler.
void clear_terminal_line() noexcept {
  constexpr std::string_view kClear = "\r\x1b[K";
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, kClear.data(), kClear.size());
}

void set_up_signals() noexcept {
  constexpr std::array kHarmless{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction action {};
    const bool is_default = sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
    if (!is_default || is_among(kHarmless, signal)) continue;
    action = {};
    action.sa_handler = evenorm_cli_on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace evenorm::cli
