// Writes text to standard output and standard error, and handles streams that nobody reads.
#pragma once

#include <exception>
#include <string_view>

namespace evenorm::cli {

// print() throws it if the reader of standard output has gone, as `head` does. The run then ends, but not as an error.
class ReaderGone : public std::exception {
 public:
  const char* what() const noexcept override { return "standard output is no longer read"; }
};

// Ends this process by SIGPIPE, as is usual when the reader has gone. Returns only if that signal is blocked.
void end_by_closed_pipe() noexcept;

// Writes to standard output at once. Throws Failure if it is full or closed, and ReaderGone if nobody reads it.
void print(std::string_view text);

// Writes a report that must be complete before outputs are replaced. Throws Failure, also if nobody reads it.
void print_report(std::string_view text);

// Writes to standard error at once. Ignores failure, which could not be reported anywhere.
void tell(std::string_view text) noexcept;

}  // namespace evenorm::cli
