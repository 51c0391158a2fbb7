// See files.hpp.
#include "files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "temporaries.hpp"
#include "text.hpp"

namespace evenorm::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw Failure(fmt::format("{}: {}: {}", path, what, std::generic_category().message(error)));
}

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw Failure(fmt::format("{} {}", path, what));
}

void refuse_dash(const std::string& path) {
  if (path == "-") fail("-", "is not a file (/dev/stdout is, for an output)");
}

// Absolute, symbolic links followed; the file itself need not exist, its folder must.
std::string resolve(const std::string& path) {
  std::error_code error;
  fs::path whole = fs::canonical(path, error);
  if (!error) return whole.string();
  const fs::path given(path);
  const fs::path folder = fs::canonical(given.has_parent_path() ? given.parent_path() : fs::path("."), error);
  if (error || !given.has_filename()) fail(path, "cannot be written", error ? error.value() : EISDIR);
  return (folder / given.filename()).string();
}

}  // namespace

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

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  refuse_dash(path_);
  // Without O_NONBLOCK a FIFO would make open() wait before it can be refused.
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (descriptor_.get() < 0 || fstat(descriptor_.get(), &status) != 0) fail(path_, "cannot be read", errno);
  if (S_ISDIR(status.st_mode)) fail(path_, "is a directory, but should be a .npy file");
  if (!S_ISREG(status.st_mode)) fail(path_, "is a device or pipe, but should be a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  constexpr std::size_t kPiece = std::size_t{1} << 30;  // Linux reads at most 2 GiB at a time
  while (!bytes.empty()) {
    const ssize_t got =
        pread(descriptor_.get(), bytes.data(), std::min(bytes.size(), kPiece), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot be read", errno);
    if (got == 0) {
      fail(path_, fmt::format("shrank while it was read: it ends at byte {}, but had {} bytes", with_commas(offset),
                              with_commas(size_)));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

Outputs::~Outputs() {
  const SignalsDeferred deferred;
  for (const Output& output : outputs_) {
    if (output.temporary.empty()) continue;
    unlink(output.temporary.c_str());
    forget_temporary(output.temporary);
  }
}

std::size_t Outputs::add(std::string argument, const std::string& path) {
  refuse_dash(path);
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) fail(path, "cannot be written", errno);
  Output output;
  output.argument = std::move(argument);
  output.path = path;
  output.target = resolve(path);
  if (exists && S_ISDIR(status.st_mode)) fail(path, "is a directory, but should be a file to write");
  output.direct = exists && !S_ISREG(status.st_mode);
  if (exists && !output.direct) {
    if (access(path.c_str(), W_OK) != 0) fail(path, "cannot be written", errno);
    output.mode = status.st_mode & 0777U;
  }
  for (const Output& other : outputs_) {
    // A character device such as /dev/null takes several outputs without harm.
    if (other.target != output.target || (exists && S_ISCHR(status.st_mode))) continue;
    throw Failure(
        fmt::format("{} is {}, but should be another file than that of {}", output.argument, path, other.argument));
  }
  outputs_.push_back(std::move(output));
  return outputs_.size() - 1;
}

void Outputs::open() {
  for (Output& output : outputs_) {
    if (!output.direct) {
      open_temporary(output);
      continue;
    }
    output.descriptor = Descriptor(::open(output.target.c_str(), O_WRONLY | O_CLOEXEC));
    // Through /dev/stdout a pipe's target is a name that only /proc can open.
    if (output.descriptor.get() < 0 && errno == ENOENT) {
      output.descriptor = Descriptor(::open(output.path.c_str(), O_WRONLY | O_CLOEXEC));
    }
    if (output.descriptor.get() < 0) fail(output.path, "cannot be written", errno);
  }
}

void Outputs::open_temporary(Output& output) {
  const fs::path folder = fs::path(output.target).parent_path();
  const SignalsDeferred deferred;
  for (unsigned i = 0; i < 1000; ++i) {
    // Short, so that it fits wherever the target's name does. Taken names are those of killed runs or of this one.
    const std::string path = (folder / fmt::format(".evenorm-{}-{}.tmp", getpid(), i)).string();
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) fail(output.path, "cannot be written beside its place", errno);
    output.descriptor = Descriptor(fd);
    output.temporary = path;
    remember_temporary(path);
    if (output.mode != 0666) fchmod(fd, output.mode);  // an existing target keeps its permissions
    return;
  }
  fail(output.path, "cannot be written beside its place", EEXIST);
}

void Outputs::write(std::size_t output, std::span<const std::byte> bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  const Output& out = outputs_[output];
  while (!bytes.empty()) {
    const ssize_t put = ::write(out.descriptor.get(), bytes.data(), std::min(bytes.size(), kPiece));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(out.path, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void Outputs::close_all() {
  for (Output& output : outputs_) {
    // Some file systems report a full disk only here.
    if (close(output.descriptor.release()) != 0 && errno != EINTR) fail(output.path, "cannot be written", errno);
  }
}

void Outputs::commit() {
  close_all();
  const SignalsDeferred deferred;
  for (Output& output : outputs_) {
    if (output.direct) continue;
    if (std::rename(output.temporary.c_str(), output.target.c_str()) != 0) {
      fail(output.path, "cannot be replaced", errno);
    }
    forget_temporary(output.temporary);
    output.temporary.clear();
  }
}

}  // namespace evenorm::cli
