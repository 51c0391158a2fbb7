// What must not outlive this process: temporary files, and an unfinished line on the terminal. Every signal that would
// end the process removes them first, but SIGKILL, which no process can catch. Knows nothing of what they are for.
#pragma once

#include <cstddef>
#include <string>

namespace evenorm::cli {

// While one lives, those signals wait, but for faults such as SIGSEGV; the first that came is served when the last one
// ends. Kept around the steps during which the list of temporary files and the file system disagree.
class SignalsDeferred {
 public:
  SignalsDeferred() noexcept;
  ~SignalsDeferred();
  SignalsDeferred(const SignalsDeferred&) = delete;
  SignalsDeferred& operator=(const SignalsDeferred&) = delete;
};

// Both are called while signals are deferred. Throws Failure where the path is too long or there are too many.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path) noexcept;

// While a line on the terminal at standard error is open, those signals clear it.
void terminal_line_is_open(bool open) noexcept;
void clear_terminal_line() noexcept;

// Sets the handlers, where a signal has its default action, and makes writes to closed pipes and past the file size
// limit return errors instead of ending the process. Called once, by main.
void set_up_signals() noexcept;

}  // namespace evenorm::cli
