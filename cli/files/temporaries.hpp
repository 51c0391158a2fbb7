// Removes temporary files, and an unfinished line on the terminal, before a signal ends the process. SIGKILL cannot be
// caught.
#pragma once

#include <cstddef>
#include <string>

namespace evenorm::cli {

// Defers signals while an object lives, except faults such as SIGSEGV. The end of the last object handles the last
// signal that came. Use it while the list of temporary files differs from the file system.
class SignalsDeferred {
 public:
  SignalsDeferred() noexcept;
  ~SignalsDeferred();
  SignalsDeferred(const SignalsDeferred&) = delete;
  SignalsDeferred& operator=(const SignalsDeferred&) = delete;
};

// Call both while signals are deferred. Throws Failure if the path is too long or there are too many files.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path) noexcept;

// While a line on the terminal at standard error is open, a signal that ends the process clears it.
void terminal_line_is_open(bool open) noexcept;
void clear_terminal_line() noexcept;

// Sets handlers for signals that have their default action. Writes to closed pipes and beyond the file size limit then
// return errors instead of ending the process. Called once, by main.
void set_up_signals() noexcept;

}  // namespace evenorm::cli
