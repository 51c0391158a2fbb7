// Runs the command line as users do: a process with its status, output and resources, and folders, .npy and
// .safetensors files for it. This file does not depend on the library.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenorm::testing {

// A folder that is removed with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const;  // of everything in it, including hidden files, sorted
  std::vector<std::string> state() const;  // the names with inodes, times, and contents of less than 1 MiB

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);

// A .npy file of any version with any header text.
std::string npy_bytes(std::string_view header, std::string_view data, char major = 1, char minor = 0);
// A valid file. descr is as in the header, and shape as in Python, for example "(2, 3)".
std::string npy_bytes_of(std::string_view descr, std::string_view shape, std::string_view data,
                         bool fortran_order = false);

// Writes a file of f32 to `path`.
void write_f32(const std::string& path, std::string_view shape, const std::vector<float>& values,
               bool fortran_order = false);
// Writes a sparse file of f32 zeros.
void write_zeros(const std::string& path, std::string_view shape, std::size_t elements, bool fortran_order = false);

// A .safetensors file with any header, and any length of it (by default the true one).
std::string safetensors_bytes(std::string_view header, std::string_view data,
                              std::optional<std::uint64_t> length = std::nullopt);
// One entry of a header: "name":{"dtype":...}.
std::string safetensors_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                              std::uint64_t begin, std::uint64_t end);

// The bytes of numbers, in this machine's order.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The data and the elements of a .npy file of version 1.
std::string data_of(const std::string& npy);
template <class T>
std::vector<T> elements_of(const std::string& npy);
inline std::vector<float> floats_in(const std::string& path) { return elements_of<float>(read_file(path)); }

using Words = std::vector<std::string>;
inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The words of a command line. '' is an empty word.
Words words_of(const std::string& line);

struct ProgramRun {
  int status = -1;  // exit status; -1 if a signal ended it
  int signal = 0;
  std::string out, err;
  double seconds = 0, cpu_seconds = 0;  // cpu_seconds does not depend on other programs

  bool one_line() const;  // true if err is one line that begins with "evenorm: "
};

struct ProgramSetting {
  std::vector<std::string> environment{};      // "NAME=value", added to this process's environment
  std::function<void()> before_exec{};         // runs in the child; only what is safe after fork
  std::function<void(pid_t)> while_running{};  // runs in the parent
  // The bytes that the program may allocate, 0 for no limit. With sanitizers there is no limit, because they reserve
  // far more than they use.
  std::size_t memory = 0;
  std::string in_path{};               // standard input comes from this file
  std::optional<std::string> input{};  // standard input is a pipe in which these bytes arrive, in two parts
  std::string out_path{};              // standard output goes to this file, not into ProgramRun::out
  std::string err_path{};              // standard error goes to this file, not into ProgramRun::err
  std::string program{};               // empty: build/evenorm
  bool out_piped = false;              // standard output is a pipe
  std::string folder{};                // empty: runs in this process's folder
};

// Runs build/evenorm, or the program that the setting names.
ProgramRun run_evenorm(const Words& arguments, const ProgramSetting& setting = {});

// Expects status 0 and nothing on standard error. Returns standard output.
std::string output_of(const Words& arguments, const ProgramSetting& setting = {});
// Expects status 0 and no output.
void expect_done(const Words& arguments, const ProgramSetting& setting = {});
// Expects status 2, one line on standard error that contains `error`, and nothing on standard output.
ProgramRun expect_refused(const Words& arguments, const std::string& error, const ProgramSetting& setting = {});
// Also expects that nothing in `unchanged` changes.
ProgramRun expect_refused(const TemporaryFolder& unchanged, const Words& arguments, const std::string& error,
                          const ProgramSetting& setting = {});

// Tries for some seconds until `holds` returns true.
void wait_until(const std::function<bool()>& holds);

}  // namespace evenorm::testing
