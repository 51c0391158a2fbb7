// Implements program.hpp.
#include "support/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
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

// Writes all of `bytes` or what the reader accepts: first the beginning, and the rest a little later.
void feed(int descriptor, std::string_view bytes) {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n =
        write(descriptor, &bytes[at], at == 0 ? std::min<std::size_t>(7, bytes.size()) : bytes.size() - at);
    if (n < 0) break;
    if (at == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    at += static_cast<std::size_t>(n);
  }
  close(descriptor);
}

std::string drain(int descriptor) {
  std::string all, some(1 << 16, '\0');
  for (ssize_t n = 0; (n = read(descriptor, some.data(), some.size())) > 0;)
    all.append(some, 0, static_cast<std::size_t>(n));
  close(descriptor);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Prepares the child for the program: its streams, folder, limits and signals.
void become_program(const ProgramSetting& setting, int in, int piped, const std::string& out, const std::string& err) {
  // Programs started in the background or under nohup ignore some signals, and so would their children.
  for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  alarm(kMostSeconds);
  if (!setting.in_path.empty()) redirect(STDIN_FILENO, setting.in_path);
  if (setting.input) dup2(in, STDIN_FILENO);
  if (setting.out_piped) dup2(piped, STDOUT_FILENO);
  if (!setting.out_piped) redirect(STDOUT_FILENO, out);
  redirect(STDERR_FILENO, err);
  if (!setting.folder.empty() && chdir(setting.folder.c_str()) != 0) _exit(126);
  if (setting.memory != 0 && kSanitizersCost == 1) {
    const rlimit limit{setting.memory, setting.memory};
    setrlimit(RLIMIT_DATA, &limit);
  }
  if (setting.before_exec) setting.before_exec();
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

std::vector<std::string> TemporaryFolder::state() const {
  std::vector<std::string> result;
  for (const std::string& name : names()) {
    struct stat s {};
    lstat((*this / name).c_str(), &s);
    result.push_back(name + ' ' + std::to_string(s.st_ino));
    if (!S_ISREG(s.st_mode)) continue;
    result.back() += ' ' + std::to_string(s.st_mtim.tv_sec) + ' ' + std::to_string(s.st_mtim.tv_nsec);
    if (s.st_size < 1 << 20) result.back() += ' ' + read_file(*this / name);
  }
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

std::string npy_bytes_of(std::string_view descr, std::string_view shape, std::string_view data, bool fortran_order) {
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': ";
  header.append(fortran_order ? "True" : "False").append(", 'shape': ").append(shape).append(", }");
  header.append(63 - (10 + header.size()) % 64, ' ');
  return npy_bytes(header + "\n", data);
}

void write_f32(const std::string& path, std::string_view shape, const std::vector<float>& values, bool fortran_order) {
  write_file(path, npy_bytes_of("<f4", shape, bytes_of(values), fortran_order));
}

void write_zeros(const std::string& path, std::string_view shape, std::size_t elements, bool fortran_order) {
  write_f32(path, shape, {}, fortran_order);
  fs::resize_file(path, fs::file_size(path) + elements * sizeof(float));
}

std::string safetensors_bytes(std::string_view header, std::string_view data, std::optional<std::uint64_t> length) {
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(length.value_or(header.size()) >> (8 * i) & 0xff);
  return bytes.append(header).append(data);
}

std::string safetensors_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                              std::uint64_t begin, std::uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string data_of(const std::string& npy) {
  return npy.substr(10 + static_cast<unsigned char>(npy.at(8)) + 256U * static_cast<unsigned char>(npy.at(9)));
}

template <class T>
std::vector<T> elements_of(const std::string& npy) {
  const std::string data = data_of(npy);
  std::vector<T> values(data.size() / sizeof(T));
  std::copy_n(data.data(), values.size() * sizeof(T), reinterpret_cast<char*>(values.data()));
  return values;
}
template std::vector<float> elements_of<float>(const std::string&);
template std::vector<double> elements_of<double>(const std::string&);
template std::vector<std::uint16_t> elements_of<std::uint16_t>(const std::string&);

Words words_of(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word == "''" ? "" : word);
  return words;
}

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

  int in[2] = {-1, -1}, piped[2] = {-1, -1};
  if ((setting.input && pipe2(in, O_CLOEXEC) != 0) || (setting.out_piped && pipe2(piped, O_CLOEXEC) != 0)) {
    throw std::runtime_error("pipe2 failed");
  }
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    become_program(setting, in[0], piped[1], out, err);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  if (child < 0) throw std::runtime_error("fork failed");
  close(in[0]);
  close(piped[1]);
  ProgramRun run;
  std::thread writer([&] { feed(in[1], setting.input.value_or("")); });
  std::thread reader([&] { run.out = drain(piped[0]); });
  if (setting.while_running) setting.while_running(child);
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child) throw std::runtime_error("wait4 failed");
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (WIFEXITED(status)) run.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) run.signal = WTERMSIG(status);
  for (const timeval& t : {usage.ru_utime, usage.ru_stime}) {
    run.cpu_seconds += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  writer.join();
  reader.join();
  if (setting.out_path.empty() && !setting.out_piped) run.out = read_file(out);
  if (setting.err_path.empty()) run.err = read_file(err);
  return run;
}

std::string output_of(const Words& arguments, const ProgramSetting& setting) {
  const ProgramRun run = run_evenorm(arguments, setting);
  EXPECT_EQ(run.status, 0) << "signal " << run.signal << ": " << ::testing::PrintToString(arguments);
  EXPECT_EQ(run.err, "");
  return run.out;
}

void expect_done(const Words& arguments, const ProgramSetting& setting) {
  EXPECT_EQ(output_of(arguments, setting), "");
}

ProgramRun expect_refused(const Words& arguments, const std::string& error, const ProgramSetting& setting) {
  ProgramRun run = run_evenorm(arguments, setting);
  EXPECT_EQ(run.status, 2) << error << ", signal " << run.signal;
  EXPECT_TRUE(run.one_line()) << run.err;
  EXPECT_NE(run.err.find(error), std::string::npos) << run.err << "should contain: " << error;
  EXPECT_EQ(run.out, "") << error;
  return run;
}

ProgramRun expect_refused(const TemporaryFolder& unchanged, const Words& arguments, const std::string& error,
                          const ProgramSetting& setting) {
  const auto before = unchanged.state();
  ProgramRun run = expect_refused(arguments, error, setting);
  EXPECT_EQ(unchanged.state(), before) << error;
  return run;
}

void wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(holds());
}

}  // namespace evenorm::testing
