// Texts on standard output and standard error, and what a run makes of streams that nobody reads.
// Knows nothing of what the texts say.
#pragma once

#include <exception>
#include <string_view>

namespace evenorm::cli {

// What print throws where the reader of standard output has gone, as `head` does: reason enough to end, and no error.
class ReaderGone : public std::exception {
 public:
  const char* what() const noexcept override { return "standard output is no longer read"; }
};

// Ends this process as programs end whose reader has gone, by SIGPIPE. Returns where that is blocked.
void end_by_closed_pipe() noexcept;

// Writes to standard output at once. Throws Failure where it is full or closed, ReaderGone where nobody reads it.
void print(std::string_view text);

// The same of a report on work that takes effect only once that is written: Failure where nobody reads it, too.
void print_report(std::string_view text);

// Writes to standard error at once, or not at all where that is full, closed or unread: there is no place to say so.
void tell(std::string_view text) noexcept;

}  // namespace evenorm::cli
