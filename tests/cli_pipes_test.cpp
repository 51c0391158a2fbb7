// `evenorm apply` from standard input to standard output: it gives the bytes that files give, and reports what is
// impossible.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "support/program.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

class CliPipes : public ::testing::Test {
 protected:
  CliPipes() : x(64 * 1024 * 6) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 2654435761U >> 11) % 1024) - 400;
    c_order = npy_bytes_of("<f4", "(64, 1024, 6)", bytes_of(x));
    fortran_order = npy_bytes("{'descr': '<f4', 'fortran_order': True, 'shape': (64, 1024, 6)}", bytes_of(x));
    write_file(folder / "x.npy", c_order);
    write_file(folder / "y.npy", "old");
    EXPECT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
    EXPECT_EQ(mkfifo((folder / "out").c_str(), 0600), 0);
  }

  // Writes `input` into one pipe in two halves, and returns the output of the other pipe.
  std::string through_pipes(const std::string& input, const Words& options, bool blocking = true) const {
    std::thread writer([&] {
      const int fd = open((folder / "in").c_str(), O_WRONLY);
      EXPECT_EQ(write(fd, input.data(), 7), 7);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(write(fd, input.data() + 7, input.size() - 7), static_cast<ssize_t>(input.size() - 7));
      close(fd);
    });
    std::string received;
    std::thread reader([&] { received = read_file(folder / "out"); });
    ProgramSetting setting{.in_path = folder / "in", .out_path = folder / "out"};
    setting.before_exec = [blocking] {
      if (blocking) return;
      fcntl(STDIN_FILENO, F_SETFL, O_RDONLY | O_NONBLOCK);
      fcntl(STDOUT_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK);
    };
    const ProgramRun run = run_evenorm(Words{"apply", "-", "-o", "-"} + options, setting);
    writer.join();
    reader.join();
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    return received;
  }

  std::string through_files(const std::string& input, const Words& options) const {
    write_file(folder / "file.npy", input);
    expect_done(Words{"apply", folder / "file.npy", "-o", folder / "result.npy"} + options);
    return read_file(folder / "result.npy");
  }

  void expect_refused(const Words& arguments, const std::string& error, const ProgramSetting& setting) const {
    testing::expect_refused(arguments, error, setting);
    EXPECT_EQ(read_file(folder / "y.npy"), "old");
  }

  TemporaryFolder folder;
  std::vector<float> x;
  std::string c_order, fortran_order;
};

TEST_F(CliPipes, GiveTheSameBytesAsFiles) {
  for (const Words& options : {Words{}, {"--axes", "1"}, {"--axes", "0,2", "--dtype", "f64"}, {"--dtype", "bf16"}}) {
    EXPECT_EQ(through_pipes(c_order, options), through_files(c_order, options));
    EXPECT_EQ(through_pipes(fortran_order, options), through_files(fortran_order, options));
  }
}

TEST_F(CliPipes, MayBeNonBlocking) { EXPECT_TRUE(through_pipes(c_order, {}, false) == through_files(c_order, {})); }

// A tensor larger than what is read at once (cli/normalize.hpp), whose rows are strided.
TEST_F(CliPipes, BufferStridedRows) {
  std::string data;
  for (int i = 0; i < 16; ++i) data += bytes_of(x);
  const std::string large = npy_bytes("{'descr': '<f4', 'fortran_order': True, 'shape': (65536, 96)}", data);
  EXPECT_TRUE(through_pipes(large, {}) == through_files(large, {}));
}

TEST_F(CliPipes, FilesOnStandardInputAndOutputStartAtTheirOffsets) {
  const std::string y = through_files(c_order, {});
  ProgramRun run = run_evenorm({"apply", "-", "-o", "-"}, {.in_path = folder / "x.npy"});
  EXPECT_EQ(run.out, y);
  EXPECT_EQ(run.err, "");
  write_file(folder / "later", "before" + c_order);
  ProgramSetting setting{.in_path = folder / "later"};
  setting.before_exec = [] { lseek(STDIN_FILENO, 6, SEEK_SET); };
  run = run_evenorm({"apply", "-", "-o", "-"}, setting);
  EXPECT_EQ(run.out, y);
}

TEST_F(CliPipes, StatisticsMayBeTheOutput) {
  const ProgramRun run =
      run_evenorm({"apply", folder / "x.npy", "-o", "/dev/null", "--mean", "-"}, {.in_path = "/dev/null"});
  EXPECT_EQ(run.status, 0) << run.err;
  (void)through_files(c_order, {"--mean", folder / "mean.npy"});
  EXPECT_EQ(run.out, read_file(folder / "mean.npy"));
}

TEST_F(CliPipes, InputThatEndsEarlyIsAnError) {
  const auto refused = [&](const std::string& input, const std::string& error) {
    std::thread writer([&] { write_file(folder / "in", input); });
    expect_refused({"apply", "-", "-o", folder / "y.npy"}, error, {.in_path = folder / "in"});
    writer.join();
  };
  refused(c_order.substr(0, c_order.size() - 5),
          "standard input ends at byte 1,572,987, but should have 1,572,992 bytes");
  // Sanitizers report this error themselves.
  if (kSanitizersCost == 1) {
    refused(npy_bytes_of("<f4", "(576460752303423488,)", ""), "bytes of memory cannot be allocated");
  }
  refused(npy_bytes_of("<f4", "(64, 1000000000, 2)", ""), "standard input ends at byte 128");
}

TEST_F(CliPipes, LimitTheBufferedSize) {
  const std::string header = npy_bytes_of("<f4", "(1000, 1000000)", "");
  std::thread writer([&] { write_file(folder / "in", header); });
  expect_refused({"apply", "-", "-o", folder / "y.npy", "--axes", "0"},
                 "standard input is a pipe whose rows are not contiguous: 1,000,000,000 elements would",
                 {.in_path = folder / "in"});
  writer.join();
}

TEST_F(CliPipes, ReportAClosedOutputInOneLine) {
  std::thread reader([&] {
    const int fd = open((folder / "out").c_str(), O_RDONLY);
    char byte = 0;
    EXPECT_EQ(read(fd, &byte, 1), 1);
    close(fd);
  });
  expect_refused({"apply", folder / "x.npy", "-o", "-"}, "standard output: cannot be written: Broken pipe",
                 {.out_path = folder / "out"});
  reader.join();
  ProgramSetting closed;
  closed.before_exec = [] { close(STDOUT_FILENO); };
  expect_refused({"apply", folder / "x.npy", "-o", "-"}, "standard output: cannot be written: Bad file", closed);
  closed.before_exec = [] { close(STDIN_FILENO); };
  expect_refused({"apply", "-", "-o", folder / "y.npy"}, "standard input: cannot be read: Bad file", closed);
  expect_refused({"apply", folder / "x.npy", "-o", "-"}, "standard output: cannot be written: No space",
                 {.out_path = "/dev/full"});
}

TEST_F(CliPipes, DoNotOverwriteAnInputThatIsRead) {
  expect_refused({"apply", folder / "x.npy", "-o", "-"}, "X and standard output are the same file",
                 {.out_path = folder / "x.npy"});
  expect_refused({"apply", folder / "x.npy", "-o", "/dev/stdout"}, "X and standard output are the same file",
                 {.out_path = folder / "x.npy"});
  EXPECT_EQ(read_file(folder / "x.npy"), c_order);
}

TEST_F(CliPipes, RejectTerminals) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal) + unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const auto soon = [] { alarm(5); };  // a terminal that nobody reads accepts little output
  expect_refused({"apply", folder / "x.npy", "-o", "-"}, "standard output is a terminal",
                 {.before_exec = soon, .out_path = name});
  expect_refused({"apply", folder / "x.npy", "-o", name}, "is a terminal, but should be a file or pipe",
                 {.before_exec = soon});
  expect_refused({"apply", "-", "-o", folder / "y.npy"}, "standard input is a terminal", {.in_path = name});
  close(terminal);
}

}  // namespace
}  // namespace evenorm::testing
