// File descriptors: ownership, writes that survive interruption, and the descriptors of the standard streams.
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

inline constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // Linux reads and writes at most 2 GiB per call

// True if a failed read or write should be repeated: after a signal, or once a non-blocking pipe is ready for `event`
// (POLLIN or POLLOUT), for which it waits.
bool try_again(int descriptor, short event) noexcept;

// Writes all of `bytes`, at `offset` if given, else at the descriptor's current offset. Returns 0 or errno.
int write_all(int descriptor, std::span<const std::byte> bytes, std::optional<std::uint64_t> offset = {}) noexcept;

// Reserves the descriptors of closed standard streams, so that no file opened later gets one of their numbers. They can
// be neither read nor written. Called once, by main.
void keep_standard_streams() noexcept;

}  // namespace evenorm::cli
