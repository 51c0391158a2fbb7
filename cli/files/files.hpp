// Bytes from and to files, so that a failed or interrupted run leaves what was there before: inputs through pread,
// outputs into temporary files beside their targets, renamed at the end. Knows nothing of what the bytes mean.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/files/descriptors.hpp"
#include "cli/files/replace.hpp"

namespace evenorm::cli {

// Whether the path "-" means standard input, or is refused.
enum class Dash { refused, standard_input };

// A regular file, open for reading at any place; or standard input, which is read once and in order where it is a pipe.
// All throw Failure, which names the file.
class InputFile {
 public:
  explicit InputFile(std::string path, Dash dash = Dash::refused);

  const std::string& path() const noexcept { return path_; }  // as people are told it
  bool sequential() const noexcept { return sequential_; }
  std::optional<std::uint64_t> size() const noexcept { return size_; }  // when it was opened; a pipe's is not known
  bool is(const struct stat& other) const;                              // the same file

  // Fills `bytes` from `offset` on; a file that ends before has shrunk since it was opened. Of a pipe, `offset` is
  // where the last read ended.
  void read(std::uint64_t offset, std::span<std::byte> bytes);
  std::size_t read_up_to(std::uint64_t offset, std::span<std::byte> bytes);  // fewer only where the file ends

  // Of a pipe: what it should hold at least, once that is known.
  void expect_size(std::uint64_t size);

 private:
  void open_standard_input();
  void open_regular();

  std::string path_;
  Descriptor descriptor_;
  bool sequential_ = false;
  std::uint64_t start_ = 0;     // of a file that comes as standard input: where that stands
  std::uint64_t position_ = 0;  // of a pipe: the bytes read
  std::optional<std::uint64_t> size_;
};

// The outputs of one run: all of them replace their targets, or none does. A target that is not a regular file
// (/dev/null, a FIFO) is written directly, and so is standard output, named "-" or /dev/stdout; a terminal is refused.
// All throw Failure, which names the file.
class Outputs {
 public:
  Outputs() = default;
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  ~Outputs();  // removes what was not committed

  // Names an output, `argument` being the option that did. Two of them cannot be the same file.
  std::size_t add(std::string argument, const std::string& path);
  const std::string& path(std::size_t output) const { return outputs_[output].path; }
  bool sequential(std::size_t output) const { return outputs_[output].sequential; }  // can only be written in order
  bool has_standard_output() const;  // one of them is what standard output is
  // Throws where an output is this input. One that is replaced at the end may be, if it is `replaceable`'s.
  void expect_apart(const InputFile& input, std::string_view what, std::string_view replaceable = {}) const;
  void open();  // once, after all are named; the existing targets stay as they are
  // In order, `offset` is where the last write to the output ended.
  void write(std::size_t output, std::uint64_t offset, std::span<const std::byte> bytes);
  // All is written. Called before commit() by who must know: some file systems tell only here that they are full.
  void finish();
  void commit();  // all outputs take their places; where one is refused, the others' old files come back

 private:
  struct Output {
    std::string argument;
    std::string path;       // as the user gave it
    std::string target;     // absolute, symbolic links followed; "-" where standard output is written
    std::string temporary;  // empty where the target is written directly; once replaced, the name of the old file
    std::string spare;      // a third name for their exchange
    Replaced replaced = Replaced::nothing;
    bool lost = false;  // replaced for good though another was refused
    bool direct = false;
    bool sequential = false;
    bool on_standard_output = false;        // the file that it is, written by whichever name
    std::optional<struct stat> existing{};  // as it was when it was named
    Descriptor descriptor;
  };

  static Output standard_output();
  static Output file(const std::string& path);
  static void open_direct(Output& output);
  static void open_temporary(Output& output);
  int replace_all(Output*& refused) noexcept;
  [[noreturn]] void fail_to_replace(const Output& refused, int error) const;
  void remove_temporaries() noexcept;

  std::vector<Output> outputs_;
};

}  // namespace evenorm::cli
