// Reads and writes files so that a failed or interrupted run leaves the old outputs intact: outputs are written to
// temporary files beside their targets and renamed at the end.
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

// What the path "-" means.
enum class Dash { refused, standard_input };

// A regular file that is open for reading at any offset, or standard input. If that is a pipe, it is read once, in
// order. All functions throw Failure, which names the file.
class InputFile {
 public:
  explicit InputFile(std::string path, Dash dash = Dash::refused);

  const std::string& path() const noexcept { return path_; }            // for messages
  bool sequential() const noexcept { return sequential_; }              // a pipe
  std::optional<std::uint64_t> size() const noexcept { return size_; }  // when it was opened; empty for a pipe
  bool is(const struct stat& other) const;                              // the same file

  // Fills `bytes` from `offset` on, which in a pipe is where the last read ended. Throws Failure if the file has shrunk
  // since it was opened. read_up_to() reads less if the file ends earlier, and returns the bytes read.
  void read(std::uint64_t offset, std::span<std::byte> bytes);
  std::size_t read_up_to(std::uint64_t offset, std::span<std::byte> bytes);

  // Makes this part of a regular file, with a name of its own, the whole of it.
  void narrow(std::string path, std::uint64_t offset, std::uint64_t size);
  bool is_part() const noexcept { return start_ != 0; }

  // Sets the least size that a pipe should have, once it is known.
  void expect_size(std::uint64_t size);

 private:
  void open_standard_input();
  void open_regular();

  std::string path_;
  Descriptor descriptor_;
  bool sequential_ = false;
  std::uint64_t start_ = 0;     // the offset in a regular file
  std::uint64_t position_ = 0;  // the bytes read from a pipe
  std::optional<std::uint64_t> size_;
};

// The outputs of one run. Either all of them replace their targets, or none does. Standard output ("-" or /dev/stdout)
// and targets that are not regular files (/dev/null, a FIFO) are written directly. A terminal is refused. All functions
// throw Failure, which names the file.
class Outputs {
 public:
  Outputs() = default;
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  ~Outputs();  // removes what was not committed

  // Adds an output and returns its number. `argument` is the option that names it. Throws if it is the same file as
  // another output.
  std::size_t add(std::string argument, const std::string& path);
  const std::string& path(std::size_t output) const { return outputs_[output].path; }
  bool sequential(std::size_t output) const { return outputs_[output].sequential; }  // must be written in order
  bool has_standard_output() const;
  // Throws if an output is the same file as `input`. The output of option `replaceable` may be, if it is replaced at
  // the end.
  void expect_apart(const InputFile& input, std::string_view what, std::string_view replaceable = {}) const;
  void open();  // call it once, after all add(); does not change existing targets
  // In a sequential output, `offset` is where the last write ended.
  void write(std::size_t output, std::uint64_t offset, std::span<const std::byte> bytes);
  // Closes the files. Some file systems report only here that they are full.
  void finish();
  void commit();  // replaces all targets; if one cannot be replaced, restores the others

 private:
  struct Output {
    std::string argument;
    std::string path;       // as given by the user
    std::string target;     // absolute, with symbolic links followed; "-" for standard output
    std::string temporary;  // empty if the target is written directly; after the replacement, the name of the old file
    std::string spare;      // a third name for the exchange
    Replaced replaced = Replaced::nothing;
    bool lost = false;    // could not be restored after another output failed
    bool direct = false;  // written directly
    bool sequential = false;
    bool on_standard_output = false;        // the same file as standard output
    std::optional<struct stat> existing{};  // the target's status when add() was called
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
