// File descriptors: who closes them, how bytes go through them whatever interrupts, and the three that stand for the
// standard streams. Knows nothing of names or of what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace evenorm::cli {

// Owns an open file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const noexcept { return fd_; }
  int release() noexcept;

 private:
  int fd_;
};

inline constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // Linux reads and writes at most 2 GiB at a time

// Whether a read or write that failed is to be tried again: after a signal, or once a pipe that does not block is
// ready for `event` (POLLIN or POLLOUT).
bool try_again(int descriptor, short event) noexcept;

// All of `bytes`, at `offset` where there is one, else where the descriptor stands. 0, or what errno was.
int write_all(int descriptor, std::span<const std::byte> bytes, std::optional<std::uint64_t> offset = {}) noexcept;

// Standard streams that are closed are opened so that they can be neither read nor written: what is opened later would
// take their numbers, and be read or written in their place. Called once, by main.
void keep_standard_streams() noexcept;

}  // namespace evenorm::cli
