// Uses no stdio, which would keep what it could not write, and write it when the process ends.
#include "cli/common/streams.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <span>
#include <system_error>

#include "cli/common/text.hpp"
#include "cli/files/descriptors.hpp"

namespace evenorm::cli {
namespace {

int put(int stream, std::string_view text) noexcept { return write_all(stream, std::as_bytes(std::span(text))); }

[[noreturn]] void fail(int error) {
  throw Failure(fmt::format("standard output: {}", std::generic_category().message(error)));
}

}  // namespace

void end_by_closed_pipe() noexcept {
  std::signal(SIGPIPE, SIG_DFL);
  raise(SIGPIPE);
}

void print(std::string_view text) {
  const int error = put(STDOUT_FILENO, text);
  if (error == EPIPE) throw ReaderGone();
  if (error != 0) fail(error);
}

void print_report(std::string_view text) {
  if (const int error = put(STDOUT_FILENO, text); error != 0) fail(error);
}

void tell(std::string_view text) noexcept { (void)put(STDERR_FILENO, text); }

}  // namespace evenorm::cli
