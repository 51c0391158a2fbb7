// Implements program.hpp.
#include "support/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "support/places.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kMostSeconds = 300;  // SIGALRM ends hangs

void redirect(int descriptor, const std::string& path) {
  const int file = open(path.c_str(), descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY | O_CREAT, 0666);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "evenorm-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(path_)) result.push_back(entry.path().filename().string());
  std::sort(result.begin(), result.end());
  return result;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::string npy_bytes(std::string_view header, std::string_view data, char major, char minor) {
  std::string bytes = "\x93NUMPY";
  bytes += {major, minor};
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  for (std::size_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes.append(header).append(data);
}

std::string npy_bytes_of(std::string_view descr, std::string_view shape, std::string_view data) {
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': " + std::string(shape);
  header += ", }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  return npy_bytes(header + "\n", data);
}

void write_f32(const std::string& path, std::string_view shape, const std::vector<float>& values) {
  write_file(path, npy_bytes_of("<f4", shape, bytes_of(values)));
}

std::size_t write_zeros(const std::string& path, std::size_t rows, std::size_t cols) {
  const std::string header = npy_bytes_of("<f4", "(" + std::to_string(rows) + ", " + std::to_string(cols) + ")", "");
  write_file(path, header);
  fs::resize_file(path, header.size() + rows * cols * sizeof(float));
  return header.size();
}

template <class T>
std::vector<T> elements_of(const std::string& npy) {
  const std::size_t start = 10 + static_cast<unsigned char>(npy.at(8)) + 256U * static_cast<unsigned char>(npy.at(9));
  std::vector<T> values((npy.size() - start) / sizeof(T));
  std::memcpy(values.data(), npy.data() + start, values.size() * sizeof(T));
  return values;
}
template std::vector<float> elements_of<float>(const std::string&);
template std::vector<double> elements_of<double>(const std::string&);
template std::vector<std::uint16_t> elements_of<std::uint16_t>(const std::string&);

bool ProgramRun::one_line() const {
  return err.starts_with("evenorm: ") && std::count(err.begin(), err.end(), '\n') == 1 && err.back() == '\n';
}

ProgramRun run_evenorm(const Words& arguments, const ProgramSetting& setting) {
  const TemporaryFolder folder;
  const std::string out = setting.out_path.empty() ? folder / "out" : setting.out_path;
  const std::string err = setting.err_path.empty() ? folder / "err" : setting.err_path;
  std::vector<std::string> words{setting.program.empty() ? program() : setting.program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  environment.insert(environment.begin(), setting.environment.begin(), setting.environment.end());
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);

  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    // Programs started in the background or under nohup ignore some signals, and so would their children.
    for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    alarm(kMostSeconds);
    if (!setting.in_path.empty()) redirect(STDIN_FILENO, setting.in_path);
    redirect(STDOUT_FILENO, out);
    redirect(STDERR_FILENO, err);
    if (setting.memory != 0 && kSanitizersCost == 1) {
      const rlimit limit{setting.memory, setting.memory};
      setrlimit(RLIMIT_DATA, &limit);
    }
    if (setting.before_exec) setting.before_exec();
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  if (child < 0) throw std::runtime_error("fork failed");
  if (setting.while_running) setting.while_running(child);
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child) throw std::runtime_error("wait4 failed");
  ProgramRun run;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (WIFEXITED(status)) run.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) run.signal = WTERMSIG(status);
  run.max_rss_kib = usage.ru_maxrss;
  for (const timeval& t : {usage.ru_utime, usage.ru_stime}) {
    run.cpu_seconds += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  if (setting.out_path.empty()) run.out = read_file(out);
  if (setting.err_path.empty()) run.err = read_file(err);
  return run;
}

void expect_done(const Words& arguments, const ProgramSetting& setting) {
  const ProgramRun run = run_evenorm(arguments, setting);
  EXPECT_EQ(run.status, 0) << "signal " << run.signal;
  EXPECT_EQ(run.out + run.err, "");
}

ProgramRun expect_refused(const Words& arguments, const std::string& error, const ProgramSetting& setting) {
  ProgramRun run = run_evenorm(arguments, setting);
  EXPECT_EQ(run.status, 2) << error << ", signal " << run.signal;
  EXPECT_TRUE(run.one_line()) << run.err;
  EXPECT_NE(run.err.find(error), std::string::npos) << run.err << "should contain: " << error;
  EXPECT_EQ(run.out, "") << error;
  return run;
}

void wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(holds());
}

}  // namespace evenorm::testing
