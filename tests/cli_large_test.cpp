// Tensors larger than the available memory. The inputs are sparse files of zeros, and the outputs are discarded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/program.hpp"

namespace evenorm::testing {
namespace {

struct Layout {
  const char* name;
  const char* fortran_order;
  const char* inner_shape;  // with the size of one outer index: 3 KiB times 64 elements of f32
  const char* axes;
  bool pipe;
};

std::ostream& operator<<(std::ostream& stream, const Layout& layout) { return stream << layout.name; }

class CliLarge : public ::testing::TestWithParam<Layout> {
 protected:
  // Processes at least `bytes` of zeros in an eighth of that memory.
  void pass(std::size_t bytes) {
    const Layout& layout = GetParam();
    const TemporaryFolder folder;
    const std::size_t outer = bytes / (768 * 64 * 4) + 1;
    const std::string shape = "(" + std::to_string(outer) + ", " + layout.inner_shape + ")";
    const std::string header = npy_bytes(
        std::string("{'descr': '<f4', 'fortran_order': ") + layout.fortran_order + ", 'shape': " + shape + "}", "");
    write_file(folder / "x.npy", header);
    std::filesystem::resize_file(folder / "x.npy", header.size() + outer * 768 * 64 * 4);
    const std::vector<std::string> arguments{"apply",  layout.pipe ? "-" : folder / "x.npy",
                                             "-o",     "/dev/null",
                                             "--axes", layout.axes,
                                             "--mean", folder / "mean.npy",
                                             "--json"};
    ProgramSetting setting{.memory = bytes / 8};
    if (layout.pipe) {
      const std::string fifo = folder / "pipe";
      ASSERT_EQ(std::system(("mkfifo " + fifo + " && (cat " + (folder / "x.npy") + " > " + fifo + " &)").c_str()), 0);
      setting.in_path = fifo;
    }
    const ProgramRun run = run_evenorm(arguments, setting);
    ASSERT_EQ(run.status, 0) << run.err;
    const auto report = nlohmann::json::parse(run.out);
    EXPECT_EQ(std::filesystem::file_size(folder / "mean.npy"), 128 + 8 * report["rows"].get<std::size_t>());
    EXPECT_GT(report["pieces"].get<int>(), 8);
  }
};

TEST_P(CliLarge, ProcessesHalfAGibibyteInAnEighthOfIt) { pass(std::size_t{512} << 20); }

TEST_P(CliLarge, ProcessesEightGibibytesInOne_Slow) { pass(std::size_t{8} << 30); }

INSTANTIATE_TEST_SUITE_P(Layouts, CliLarge,
                         ::testing::Values(Layout{"Rows", "False", "64, 768", "-1", false},
                                           Layout{"RowsFromAPipe", "False", "64, 768", "-1", true},
                                           Layout{"FortranOrder", "True", "64, 768", "-1", false},
                                           Layout{"Channels", "False", "768, 64", "1", false}),
                         [](const auto& test) { return std::string(test.param.name); });

// One outer index is larger than what is read at once, so the image is processed in parts.
TEST(CliLarge, NormalisesOneLargeImageOverItsChannels) {
  const TemporaryFolder folder;
  const std::string header = npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 64, 2097152)}", "");
  write_file(folder / "x.npy", header);
  std::filesystem::resize_file(folder / "x.npy", header.size() + (std::size_t{512} << 20));
  const ProgramRun run =
      run_evenorm({"apply", folder / "x.npy", "-o", "/dev/null", "--axes", "1"}, {.memory = std::size_t{64} << 20});
  EXPECT_EQ(run.status, 0) << run.err;
}

}  // namespace
}  // namespace evenorm::testing
