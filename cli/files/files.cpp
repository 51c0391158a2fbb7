#include "cli/files/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/common/text.hpp"
#include "cli/files/npz.hpp"
#include "cli/files/temporaries.hpp"

namespace evenorm::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, std::string_view what, int error, std::string_view more = "") {
  throw Failure(fmt::format("{}: {}: {}{}", path, what, std::generic_category().message(error), more));
}

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw Failure(fmt::format("{} {}", path, what));
}

constexpr const char* kStandardInput = "standard input";
constexpr const char* kStandardOutput = "standard output";

// Two uses of one character device, such as /dev/null, do not count as the same file.
bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && !S_ISCHR(a.st_mode);
}

bool is_standard_output_file(const struct stat& status) {
  struct stat output {};
  return fstat(STDOUT_FILENO, &output) == 0 && same_file(status, output);
}

// The folder of this process's descriptors. Its links stand for open files, so they are not followed as paths.
fs::path descriptors() {
  std::error_code error;
  return fs::canonical("/proc/self/fd", error);
}

// Returns the absolute path, with symbolic links followed. The folder must exist; the file need not.
fs::path resolve(const std::string& path) {
  constexpr int kMostLinks = 40;  // as in Linux
  const fs::path open_files = descriptors();
  fs::path at(path);
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const fs::path folder = fs::canonical(at.has_parent_path() ? at.parent_path() : fs::path("."), error);
    if (error) fail(path, "cannot be written", error.value());
    fs::path place = folder / at.filename();
    const fs::path link = fs::read_symlink(place, error);
    if (error || folder == open_files) return place;
    at = folder / link;
  }
  fail(path, "cannot be written", ELOOP);
}

// If `place` is a descriptor of a regular file, returns that file's own name, under which it can be replaced.
fs::path own_name(const fs::path& place) {
  std::error_code error;
  fs::path name = fs::canonical(place, error);
  return error ? place : name;
}

}  // namespace

InputFile::InputFile(std::string path, Dash dash) : path_(std::move(path)) {
  if (path_ != "-") {
    open_regular();
  } else if (dash == Dash::standard_input) {
    open_standard_input();
  } else {
    fail(path_, "is not a file (and standard input is not taken here)");
  }
}

void InputFile::open_regular() {
  // O_NONBLOCK keeps open() from waiting for a FIFO, which is refused below.
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (descriptor_.get() < 0 || fstat(descriptor_.get(), &status) != 0) fail(path_, "cannot be read", errno);
  if (S_ISDIR(status.st_mode)) fail(path_, "is a directory, but should be a file");
  if (!S_ISREG(status.st_mode)) fail(path_, "is a device or pipe, but should be a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::open_standard_input() {
  path_ = kStandardInput;
  descriptor_ = Descriptor(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  struct stat status {};
  if (descriptor_.get() < 0 || fstat(descriptor_.get(), &status) != 0) fail(path_, "cannot be read", errno);
  if (S_ISDIR(status.st_mode)) fail(path_, "is a directory, but should be a file");
  if (isatty(descriptor_.get()) == 1) fail(path_, "is a terminal, but should be a file or pipe");
  const off_t start = lseek(descriptor_.get(), 0, SEEK_CUR);
  sequential_ = !S_ISREG(status.st_mode) || start < 0;
  if (sequential_) return;
  start_ = static_cast<std::uint64_t>(start);
  const auto end = static_cast<std::uint64_t>(status.st_size);
  size_ = end - std::min(start_, end);
}

bool InputFile::is(const struct stat& other) const {
  struct stat status {};
  return fstat(descriptor_.get(), &status) == 0 && same_file(status, other);
}

std::size_t InputFile::read_up_to(std::uint64_t offset, std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t wanted = std::min(bytes.size() - done, kMostAtOnce);
    std::byte* to = bytes.data() + done;
    const ssize_t got = sequential_ ? ::read(descriptor_.get(), to, wanted)
                                    : pread(descriptor_.get(), to, wanted, static_cast<off_t>(start_ + offset + done));
    if (got < 0 && try_again(descriptor_.get(), POLLIN)) continue;
    if (got < 0) fail(path_, "cannot be read", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  position_ += done;
  return done;
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) {
  const std::size_t got = read_up_to(offset, bytes);
  if (got == bytes.size()) return;
  if (sequential_) {
    fail(path_, fmt::format("ends at byte {}, but should have {} bytes", with_commas(offset + got),
                            with_commas(size_.value_or(offset + bytes.size()))));
  }
  fail(path_, fmt::format("shrank while it was read: it ends at byte {}, but had {} bytes", with_commas(offset + got),
                          with_commas(*size_)));
}

void InputFile::narrow(std::string path, std::uint64_t offset, std::uint64_t size) {
  path_ = std::move(path);
  start_ = offset;
  size_ = size;
}

void InputFile::expect_size(std::uint64_t size) {
  if (sequential_) size_ = size;
}

Outputs::~Outputs() {
  const SignalsDeferred deferred;
  remove_temporaries();
}

void Outputs::remove_temporaries() noexcept {
  for (Output& output : outputs_) {
    if (output.temporary.empty()) continue;
    if (!output.lost) unlink(output.temporary.c_str());
    forget_temporary(output.temporary);
    output.temporary.clear();
  }
}

std::size_t Outputs::add(std::string argument, const std::string& path) {
  if (npz_path(path)) throw Failure(fmt::format("{} is {}, but outputs are .npy files", argument, path));
  Output output = path == "-" ? standard_output() : file(path);
  output.argument = std::move(argument);
  for (const Output& other : outputs_) {
    const bool same = !output.target.empty() && other.target == output.target;
    if (!same && !(output.on_standard_output && other.on_standard_output)) continue;
    throw Failure(
        fmt::format("{} is {}, but should be another file than that of {}", output.argument, path, other.argument));
  }
  outputs_.push_back(std::move(output));
  return outputs_.size() - 1;
}

// All outputs on standard output have the target "-", so that add() refuses a second one.
Outputs::Output Outputs::standard_output() {
  Output output;
  output.path = kStandardOutput;
  output.direct = output.sequential = output.on_standard_output = true;
  struct stat status {};
  if (fstat(STDOUT_FILENO, &status) != 0) fail(output.path, "cannot be written", errno);
  if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY) fail(output.path, "cannot be written", EBADF);
  output.existing = status;
  output.target = "-";
  return output;
}

Outputs::Output Outputs::file(const std::string& path) {
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) fail(path, "cannot be written", errno);
  const fs::path place = resolve(path);
  // If standard output goes to a regular file, opening or replacing that file would lose its content.
  if (place == descriptors() / std::to_string(STDOUT_FILENO)) return standard_output();
  Output output;
  output.path = path;
  output.target = own_name(place).string();
  if (!exists) return output;
  output.existing = status;
  output.on_standard_output = is_standard_output_file(status);
  if (S_ISDIR(status.st_mode)) fail(path, "is a directory, but should be a file to write");
  output.direct = !S_ISREG(status.st_mode);
  output.sequential = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  if (output.direct && output.on_standard_output) output.target = "-";
  if (S_ISCHR(status.st_mode)) output.target.clear();  // may take several outputs
  if (output.direct) return output;
  if (access(path.c_str(), W_OK) != 0) fail(path, "cannot be written", errno);
  return output;
}

bool Outputs::has_standard_output() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const Output& output) { return output.on_standard_output; });
}

void Outputs::expect_apart(const InputFile& input, std::string_view what, std::string_view replaceable) const {
  for (const Output& output : outputs_) {
    if (!output.existing || !input.is(*output.existing)) continue;
    if (output.direct) throw Failure(fmt::format("{} and {} are the same file", what, output.path));
    if (output.argument == replaceable && !input.is_part()) continue;
    throw Failure(fmt::format("{} is {}, but should be another file than {}", output.argument, output.path, what));
  }
}

void Outputs::open() {
  for (Output& output : outputs_) {
    if (output.direct) {
      open_direct(output);
    } else {
      open_temporary(output);
    }
  }
}

void Outputs::open_direct(Output& output) {
  // Standard output is duplicated: opening it again would begin at another offset, or fail for an unnamed pipe.
  const int fd = output.target == "-" ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                                      : ::open(output.path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) fail(output.path, "cannot be written", errno);
  output.descriptor = Descriptor(fd);
  if (isatty(fd) == 1) fail(output.path, "is a terminal, but should be a file or pipe");
}

void Outputs::open_temporary(Output& output) {
  const fs::path folder = fs::path(output.target).parent_path();
  const SignalsDeferred deferred;
  for (unsigned i = 0; i < 1000; ++i) {
    // The name is short, so that it fits wherever the target's name does. It may be taken by a killed run or by this
    // one.
    std::string path = (folder / fmt::format(".evenorm-{}-{}.tmp", getpid(), i)).string();
    output.spare = (folder / fmt::format(".evenorm-{}-{}.old", getpid(), i)).string();
    const mode_t mode = output.existing ? 0600 : 0666;  // until take_after() sets the permissions of the old file
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) fail(output.path, "cannot have a temporary file in its folder", errno);
    output.descriptor = Descriptor(fd);
    output.temporary = std::move(path);  // a copy could throw, and the file would not be removed
    remember_temporary(output.temporary);
    if (output.existing) take_after(fd, *output.existing);
    return;
  }
  fail(output.path, "cannot have a temporary file in its folder", EEXIST);
}

void Outputs::write(std::size_t output, std::uint64_t offset, std::span<const std::byte> bytes) {
  const Output& out = outputs_[output];
  const auto place = out.sequential ? std::nullopt : std::optional(offset);
  if (const int error = write_all(out.descriptor.get(), bytes, place); error != 0) {
    fail(out.path, "cannot be written", error);
  }
}

void Outputs::finish() {
  for (Output& output : outputs_) {
    const int fd = output.descriptor.release();
    if (fd >= 0 && close(fd) != 0 && errno != EINTR) fail(output.path, "cannot be written", errno);
  }
}

void Outputs::commit() {
  finish();
  const SignalsDeferred deferred;
  Output* refused = nullptr;
  if (const int error = replace_all(refused); error != 0) fail_to_replace(*refused, error);
  remove_temporaries();
}

// Returns 0 or errno. On failure, it takes back the outputs that are already replaced.
int Outputs::replace_all(Output*& refused) noexcept {
  const auto last =
      std::find_if(outputs_.rbegin(), outputs_.rend(), [](const Output& output) { return !output.direct; });
  for (Output& output : outputs_) {
    if (output.direct) continue;
    const int error = &output == &*last ? replace_for_good(output.temporary, output.target)
                                        : replace(output.temporary, output.target, output.spare, output.replaced);
    if (error == 0) continue;
    refused = &output;
    for (Output* done = outputs_.data(); done != refused; ++done) {
      done->lost = !done->direct && take_back(done->temporary, done->target, done->spare, done->replaced) != 0;
    }
    return error;
  }
  return 0;
}

void Outputs::fail_to_replace(const Output& refused, int error) const {
  std::string lost;
  for (const Output& output : outputs_) {
    if (!output.lost) continue;
    lost += fmt::format("; {} has been replaced, and its old content is in {}", output.path, output.temporary);
  }
  fail(refused.path, "cannot be replaced", error, lost);
}

}  // namespace evenorm::cli
