#include "cli/files/descriptors.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace evenorm::cli {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Descriptor old(std::exchange(fd_, other.release()));
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::release() noexcept { return std::exchange(fd_, -1); }

bool try_again(int descriptor, short event) noexcept {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  pollfd pipe{descriptor, event, 0};
  poll(&pipe, 1, -1);
  return true;
}

int write_all(int descriptor, std::span<const std::byte> bytes, std::optional<std::uint64_t> offset) noexcept {
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t wanted = std::min(bytes.size() - done, kMostAtOnce);
    const std::byte* from = bytes.data() + done;
    const ssize_t put = offset ? pwrite(descriptor, from, wanted, static_cast<off_t>(*offset + done))
                               : ::write(descriptor, from, wanted);
    if (put < 0 && try_again(descriptor, POLLOUT)) continue;
    if (put < 0) return errno;
    done += static_cast<std::size_t>(put);
  }
  return 0;
}

void keep_standard_streams() noexcept {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_PATH) < 0) open("/", O_PATH);
  }
}

}  // namespace evenorm::cli
