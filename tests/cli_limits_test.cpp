// The command line with little memory and a small stack. Tensors larger than the memory are processed; their files are
// sparse and hold zeros. With a small stack (ulimit -s), results are the same and no temporary files are left.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "support/cli.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

struct Layout {
  const char* name;
  bool fortran_order;
  const char* inner_shape;  // with the size of one outer index: 3 KiB times 64 elements of f32
  const char* axes;
  bool pipe;
};

std::ostream& operator<<(std::ostream& stream, const Layout& layout) { return stream << layout.name; }

class CliLarge : public InFolder, public ::testing::WithParamInterface<Layout> {
 protected:
  // Processes at least `bytes` of zeros in an eighth of that memory.
  void pass(std::size_t bytes) {
    const Layout& layout = GetParam();
    const std::size_t outer = bytes / (768 * 64 * 4) + 1;
    write_zeros(folder / "x.npy", "(" + std::to_string(outer) + ", " + layout.inner_shape + ")", outer * 768 * 64,
                layout.fortran_order);
    ProgramSetting setting{.memory = bytes / 8};
    if (layout.pipe) {
      const std::string fifo = folder / "pipe";
      ASSERT_EQ(std::system(("mkfifo " + fifo + " && (cat " + (folder / "x.npy") + " > " + fifo + " &)").c_str()), 0);
      setting.in_path = fifo;
    }
    const std::string x = layout.pipe ? "-" : "x.npy";
    const json whole = report("apply " + x + " -o /dev/null --mean mean.npy --axes " + layout.axes, setting);
    EXPECT_EQ(std::filesystem::file_size(folder / "mean.npy"), 128 + 8 * whole["rows"].get<std::size_t>());
    EXPECT_GT(whole["pieces"].get<int>(), 8);
  }
};

TEST_P(CliLarge, ProcessesHalfAGibibyteInAnEighthOfIt) { pass(std::size_t{512} << 20); }

TEST_P(CliLarge, ProcessesEightGibibytesInOne_Slow) { pass(std::size_t{8} << 30); }

INSTANTIATE_TEST_SUITE_P(Layouts, CliLarge,
                         ::testing::Values(Layout{"Rows", false, "64, 768", "-1", false},
                                           Layout{"RowsFromAPipe", false, "64, 768", "-1", true},
                                           Layout{"FortranOrder", true, "64, 768", "-1", false},
                                           Layout{"Channels", false, "768, 64", "1", false}),
                         [](const auto& test) { return std::string(test.param.name); });

// One outer index is larger than what is read at once, so the image is processed in parts.
TEST(CliLarge, NormalisesOneLargeImageOverItsChannels) {
  const TemporaryFolder folder;
  write_zeros(folder / "x.npy", "(1, 64, 2097152)", std::size_t{128} << 20);
  expect_done({"apply", folder / "x.npy", "-o", "/dev/null", "--axes", "1"}, {.memory = std::size_t{64} << 20});
}

// --- a small stack -------------------------------------------------------------------------------------------------

void small_stack() {
  const rlimit limit{std::size_t{96} << 10U, std::size_t{96} << 10U};
  setrlimit(RLIMIT_STACK, &limit);
}

class CliStack : public InFolder {
 protected:
  CliStack() {
    std::vector<double> x(std::size_t{8} * 48 * 256);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * i % 1009);
    for (const char* order : {"C", "Fortran"}) {
      write(order, npy_bytes_of("<f8", "(8, 48, 256)", bytes_of(x), order[0] == 'F'));
    }
  }
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers need more stack by themselves";
  }

  void expect_the_same(const std::string& line, const Words& outputs = {}) const {
    Words usual;
    const auto names = folder.names();
    for (const bool small : {false, true}) {
      Words results{output(line, {.before_exec = small ? small_stack : nullptr})};
      for (const std::string& name : outputs) {
        results.push_back(read(name));
        std::filesystem::remove(folder / name);
      }
      EXPECT_TRUE(!small || results == usual) << line;
      usual = std::move(results);
      EXPECT_EQ(folder.names(), names);
    }
  }
};

TEST_F(CliStack, TextsAreTheSame) {
  for (const char* line : {"info", "--help", "completion zsh", "manual", "explain 4,2,8 --grad 1,0,-1 --round 2",
                           "explain --slips --json", "explain ./C --axes 1 --rows 0,17"}) {
    expect_the_same(line);
  }
}

TEST_F(CliStack, OutputsAreTheSame) {
  for (const char* order : {"C", "Fortran"}) {
    for (const char* threads : {"1", "3"}) {
      for (const char* axis : {"-1", "1"}) {
        const std::string file = order, more = std::string(" --dtype bf16 --threads ") + threads + " --axes " + axis;
        expect_the_same("apply " + file + " -o y --rstd r" + more, {"y", "r"});
        expect_the_same("grad " + file + " " + file + " -o y --dweight dw" + more, {"y", "dw"});
      }
    }
  }
}

// True if a thread of another process blocks a signal.
bool blocks(const std::filesystem::path& task, int signal) {
  const std::string status = read_file(task / "status");
  const unsigned long mask = std::stoul(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
  return (mask >> (static_cast<unsigned>(signal) - 1) & 1U) != 0;
}

// The handler must run on the working thread, which can be interrupted safely, to remove the temporary file.
TEST_F(CliStack, SignalsReachTheThreadThatWorks) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const auto names = folder.names();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ProgramSetting interrupted{.before_exec = small_stack};
    interrupted.while_running = [&](pid_t child) {
      wait_until([&] { return folder.names().size() > names.size(); });
      for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(child) + "/task")) {
        EXPECT_EQ(blocks(task, signal), task.path().filename() == std::to_string(child)) << task;
      }
      kill(child, signal);
    };
    EXPECT_EQ(run_line("apply C -o y --mean fifo", interrupted).signal, signal);
    EXPECT_EQ(folder.names(), names);
  }
}

}  // namespace
}  // namespace evenorm::testing
