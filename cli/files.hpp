// Bytes from and to files, so that a failed or interrupted run leaves what was there before: inputs through pread,
// outputs into temporary files beside their targets, renamed at the end. Knows nothing of what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// A regular file, open for reading. All throw Failure, which names the file.
class InputFile {
 public:
  explicit InputFile(std::string path);

  const std::string& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return size_; }  // when it was opened

  // Fills `bytes` from `offset` on; a file that ends before has shrunk since it was opened.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
};

// The outputs of one run: all of them replace their targets, or none does. A target that is not a regular file
// (/dev/null, a FIFO) is written directly. All throw Failure, which names the file.
class Outputs {
 public:
  Outputs() = default;
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  ~Outputs();  // removes what was not committed

  // Names an output, `argument` being the option that did. Two of them cannot be the same file.
  std::size_t add(std::string argument, const std::string& path);
  void open();  // once, after all are named; the existing targets stay as they are
  void write(std::size_t output, std::span<const std::byte> bytes);
  void commit();

 private:
  struct Output {
    std::string argument;
    std::string path;       // as the user gave it
    std::string target;     // absolute, symbolic links followed
    std::string temporary;  // empty where the target is written directly, and once it is renamed
    bool direct = false;
    unsigned mode = 0666;
    Descriptor descriptor;
  };

  static void open_temporary(Output& output);
  void close_all();

  std::vector<Output> outputs_;
};

}  // namespace evenorm::cli
