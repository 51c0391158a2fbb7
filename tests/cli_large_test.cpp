// Tensors larger than the available memory. The inputs are sparse files of zeros, and the outputs are discarded.
#include <cstdlib>
#include <filesystem>

#include "support/cli.hpp"

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

class CliLarge : public ::testing::TestWithParam<Layout> {
 protected:
  // Processes at least `bytes` of zeros in an eighth of that memory.
  void pass(std::size_t bytes) {
    const Layout& layout = GetParam();
    const TemporaryFolder folder;
    const std::size_t outer = bytes / (768 * 64 * 4) + 1;
    write_zeros(folder / "x.npy", "(" + std::to_string(outer) + ", " + layout.inner_shape + ")", outer * 768 * 64,
                layout.fortran_order);
    ProgramSetting setting{.memory = bytes / 8};
    if (layout.pipe) {
      const std::string fifo = folder / "pipe";
      ASSERT_EQ(std::system(("mkfifo " + fifo + " && (cat " + (folder / "x.npy") + " > " + fifo + " &)").c_str()), 0);
      setting.in_path = fifo;
    }
    const json report = report_of({"apply", layout.pipe ? "-" : folder / "x.npy", "-o", "/dev/null", "--axes",
                                   layout.axes, "--mean", folder / "mean.npy"},
                                  setting);
    EXPECT_EQ(std::filesystem::file_size(folder / "mean.npy"), 128 + 8 * report["rows"].get<std::size_t>());
    EXPECT_GT(report["pieces"].get<int>(), 8);
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

}  // namespace
}  // namespace evenorm::testing
