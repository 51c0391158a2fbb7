// `evenorm grad` where something is wrong, or ends in the middle: one line, status 2, and all three outputs as they
// were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/program.hpp"
#include "support/sanitized.hpp"

namespace evenorm {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::kSanitizersCost;
using testing::npy_bytes_of;
using testing::ProgramRun;
using testing::ProgramSetting;
using testing::read_file;
using testing::run_evenorm;
using testing::TemporaryFolder;
using testing::Words;
using testing::write_file;
using testing::operator+;

class CliGradRefused : public ::testing::Test {
 protected:
  CliGradRefused() {
    const std::string six = bytes_of<float>({4, 2, 8, 1, 2, 4});
    write_file(folder / "x.npy", npy_bytes_of("<f4", "(2, 3)", six));
    write_file(folder / "dy.npy", npy_bytes_of("<f4", "(2, 3)", six));
    write_file(folder / "other.npy", npy_bytes_of("<f4", "(3, 2)", six));
    write_file(folder / "scalar.npy", npy_bytes_of("<f4", "()", bytes_of<float>({1})));
    write_file(folder / "empty.npy", "");
    write_file(folder / "w2.npy", npy_bytes_of("<f4", "(2,)", bytes_of<float>({1, 2})));
    for (const char* name : kOutputs) write_file(folder / name, "old");
  }

  Words from(const std::string& x, const std::string& dy) const { return {"grad", folder / x, folder / dy}; }
  Words three() const {
    return {"-o", folder / "dx.npy", "--dweight", folder / "dw.npy", "--dbias", folder / "db.npy"};
  }

  void expect_untouched() const {
    for (const char* name : kOutputs) EXPECT_EQ(read_file(folder / name), "old") << name;
  }

  void expect_refused(const Words& arguments, const std::string& error, const ProgramSetting& setting = {}) const {
    const auto names = folder.names();
    const std::string x = read_file(folder / "x.npy"), dy = read_file(folder / "dy.npy");
    const ProgramRun run = run_evenorm(arguments, setting);
    EXPECT_EQ(run.status, 2) << error << ", signal " << run.signal;
    EXPECT_EQ(run.out, "") << error;
    EXPECT_TRUE(run.one_line()) << run.err;
    EXPECT_THAT(run.err, HasSubstr(error));
    EXPECT_EQ(folder.names(), names) << error;
    EXPECT_EQ(read_file(folder / "x.npy"), x);
    EXPECT_EQ(read_file(folder / "dy.npy"), dy);
    expect_untouched();
  }

  static constexpr const char* kOutputs[] = {"dx.npy", "dw.npy", "db.npy"};
  TemporaryFolder folder;
};

TEST_F(CliGradRefused, ShapesThatDoNotFit) {
  expect_refused(from("x.npy", "other.npy") + three(),
                 "other.npy has shape (3, 2), but should have that of " + (folder / "x.npy") + ", (2, 3)");
  expect_refused(from("x.npy", "scalar.npy") + three(), "scalar.npy has shape (), but should have that of ");
  expect_refused(from("scalar.npy", "scalar.npy") + three(), "has shape (), but should have an axis to normalise");
  expect_refused(from("x.npy", "dy.npy") + three() + Words{"--weight", folder / "w2.npy"},
                 "weight has shape (2), but " + (folder / "x.npy") + " has shape (2, 3), which should end in it");
  expect_refused(from("x.npy", "dy.npy") + three() + Words{"--weight", folder / "w2.npy", "--axes", "1"},
                 "weight has shape (2), but the axes normalised have shape (3)");
  expect_refused(from("x.npy", "dy.npy") + three() + Words{"--zero-centered"}, "weight is absent");
  expect_refused(from("x.npy", "dy.npy") + three() + Words{"--eps", "-1"}, "eps is -1, but it should be finite");
  write_file(folder / "none.npy", npy_bytes_of("<f4", "(2, 0)", ""));
  expect_refused(from("none.npy", "none.npy") + three(), "normalized_shape is (0), but it should have at least one");
}

TEST_F(CliGradRefused, FilesThatAreNone) {
  expect_refused(from("none.npy", "dy.npy") + three(), "none.npy: cannot be read: No such file");
  expect_refused(from("x.npy", "none.npy") + three(), "none.npy: cannot be read: No such file");
  expect_refused(from("empty.npy", "dy.npy") + three(), "empty.npy is empty, but should be a .npy file");
  expect_refused(from("x.npy", "empty.npy") + three(), "empty.npy is empty, but should be a .npy file");
  write_file(folder / "short.npy", read_file(folder / "dy.npy").substr(0, 150));
  expect_refused(from("x.npy", "short.npy") + three(), "short.npy has 22 bytes of data, but should have 24");
  write_file(folder / "int.npy", npy_bytes_of("<i4", "(2, 3)", std::string(24, 'x')));
  expect_refused(from("x.npy", "int.npy") + three(), "int.npy has type '<i4'");
  expect_refused({"grad", "-", "-", "-o", folder / "dx.npy"}, "X and DY are both standard input, but only one can be");
}

TEST_F(CliGradRefused, WrongUse) {
  const Words good = from("x.npy", "dy.npy");
  expect_refused(good, "no output is given, but there should be one at least: -o, --dweight or --dbias");
  expect_refused({"grad", folder / "x.npy"}, "DY is required");
  expect_refused(good + Words{"-o", ""}, "-o");
  expect_refused(good + Words{"--dweight", folder / "dw.npy", "--dtype", "f32"}, "--dtype is given, but -o is not");
  expect_refused(good + Words{"-o", folder / "dx.npy", "--param-dtype", "f32"},
                 "--param-dtype is given, but neither --dweight nor --dbias is");
  expect_refused(good + three() + Words{"--dtype", "f8"}, "--dtype is 'f8', but should be f64, f32, bf16 or f16");
  expect_refused(good + three() + Words{"--param-dtype", "int"}, "--param-dtype is 'int', but should be f64");
  expect_refused(good + three() + Words{"--bias", folder / "w2.npy"}, "--bias");
}

TEST_F(CliGradRefused, OutputsThatAreTheSameFile) {
  const Words good = from("x.npy", "dy.npy");
  const std::string dx = folder / "dx.npy";
  expect_refused(good + Words{"-o", dx, "--dweight", dx}, "--dweight is " + dx + ", but should be another file than");
  expect_refused(good + Words{"--dweight", dx, "--dbias", folder / "./dx.npy"}, "than that of --dweight");
  expect_refused(good + Words{"-o", "-", "--dbias", "-"}, "--dbias is -, but should be another file than that of -o");
  expect_refused(good + Words{"-o", "-", "--json"}, "--json goes to standard output, but an output is there already");
  expect_refused(good + Words{"--dweight", folder / "x.npy"}, "x.npy, but should be another file than X");
  expect_refused(good + Words{"-o", dx, "--dbias", folder / "dy.npy"}, "dy.npy, but should be another file than DY");
  write_file(folder / "w.npy", npy_bytes_of("<f4", "(3,)", bytes_of<float>({1, 2, 3})));
  expect_refused(good + Words{"--weight", folder / "w.npy", "--dweight", folder / "w.npy"},
                 "w.npy, but should be another file than the weight");
}

// The last of the three fails, and the others are not replaced.
TEST_F(CliGradRefused, OutputsThatCannotBeWritten) {
  const Words good = from("x.npy", "dy.npy") + Words{"-o", folder / "dx.npy", "--dweight", folder / "dw.npy"};
  expect_refused(good + Words{"--dbias", "/dev/full"}, "/dev/full: cannot be written: No space left on device");
  expect_refused(good + Words{"--dbias", folder / "no/db.npy"}, "db.npy: cannot be written: No such file");
  expect_refused(good + Words{"--dbias", "/tmp"}, "/tmp is a directory, but should be a file to write");
}

TEST_F(CliGradRefused, MoreMemoryThanThereIs) {
  if (kSanitizersCost != 1) GTEST_SKIP() << "sanitizers have a word of their own about this one";
  ASSERT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  std::thread writer([&] { write_file(folder / "in", npy_bytes_of("<f4", "(65536, 65536)", "")); });
  const std::string header = npy_bytes_of("<f4", "(65536, 65536)", "");
  write_file(folder / "huge.npy", header);
  std::filesystem::resize_file(folder / "huge.npy", header.size() + (std::uintmax_t{16} << 30U));
  expect_refused(Words{"grad", "-", folder / "huge.npy"} + three(), "17,179,869,184 bytes of memory cannot be had",
                 {.memory = std::size_t{64} << 20U, .in_path = folder / "in"});
  writer.join();
}

// A pipe that ends early, and signals while more of it is awaited.
TEST_F(CliGradRefused, InputsThatEndInTheMiddle) {
  ASSERT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  const std::string dy = read_file(folder / "dy.npy");
  std::thread writer([&] { write_file(folder / "in", dy.substr(0, 140)); });
  expect_refused(Words{"grad", folder / "x.npy", "-"} + three(), "standard input ends at byte 140, but should have",
                 {.in_path = folder / "in"});
  writer.join();
  const auto names = folder.names();
  for (const int signal : {SIGINT, SIGTERM}) {
    ProgramSetting setting{.in_path = folder / "in"};
    setting.while_running = [&](pid_t child) {
      std::ofstream pipe(folder / "in", std::ios::binary);
      pipe << dy.substr(0, 140) << std::flush;
      for (int i = 0; i < 1000 && folder.names().size() < names.size() + 3; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_EQ(folder.names().size(), names.size() + 3);  // a temporary file for each output
      kill(child, signal);
    };
    const ProgramRun run = run_evenorm(Words{"grad", folder / "x.npy", "-"} + three(), setting);
    EXPECT_EQ(run.signal, signal);
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(folder.names(), names);
    expect_untouched();
  }
}

}  // namespace
}  // namespace evenorm
