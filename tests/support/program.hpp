// Runs the command line as users do: a process with its status, output and resources, and folders and .npy files for
// it. This file does not depend on the library.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
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

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);

// A .npy file of any version with any header text.
std::string npy_bytes(std::string_view header, std::string_view data, char major = 1, char minor = 0);
// A valid file. descr is as in the header, and shape as in Python, for example "(2, 3)".
std::string npy_bytes_of(std::string_view descr, std::string_view shape, std::string_view data);

// Writes a file of f32 to `path`.
void write_f32(const std::string& path, std::string_view shape, const std::vector<float>& values);
// Writes a sparse file of f32 zeros of shape (rows, cols). Returns the bytes of its header.
std::size_t write_zeros(const std::string& path, std::size_t rows, std::size_t cols);

// The bytes of numbers, in this machine's order.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The elements of a .npy file that the command line wrote. They start at byte 128 or a later multiple of 64.
template <class T>
std::vector<T> elements_of(const std::string& npy);

using Words = std::vector<std::string>;
inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct ProgramRun {
  int status = -1;  // exit status; -1 if a signal ended it
  int signal = 0;
  std::string out, err;
  long max_rss_kib = 0;
  double seconds = 0, cpu_seconds = 0;  // cpu_seconds does not depend on other programs

  bool one_line() const;  // true if err is one line that begins with "evenorm: "
};

struct ProgramSetting {
  std::vector<std::string> environment{};      // "NAME=value", added to this process's environment
  std::function<void()> before_exec{};         // runs in the child; only what is safe after fork
  std::function<void(pid_t)> while_running{};  // runs in the parent
  // The bytes that the program may allocate, 0 for no limit. (max_rss_kib counts the test program too, from before
  // exec.) With sanitizers there is no limit, because they reserve far more than they use.
  std::size_t memory = 0;
  std::string in_path{};   // standard input comes from this file
  std::string out_path{};  // standard output goes to this file, not into ProgramRun::out
  std::string err_path{};  // standard error goes to this file, not into ProgramRun::err
  std::string program{};   // empty: build/evenorm
};

// Runs build/evenorm, or the program that the setting names.
ProgramRun run_evenorm(const Words& arguments, const ProgramSetting& setting = {});

// Expects status 0 and no output.
void expect_done(const Words& arguments, const ProgramSetting& setting = {});
// Expects status 2, one line on standard error that contains `error`, and nothing on standard output.
ProgramRun expect_refused(const Words& arguments, const std::string& error, const ProgramSetting& setting = {});

// Tries for some seconds until `holds` returns true.
void wait_until(const std::function<bool()>& holds);

}  // namespace evenorm::testing
