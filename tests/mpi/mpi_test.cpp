// evenorm/mpi.hpp in processes that mpirun starts: bytes, errors and deadlines (gather.cpp), and norms of split rows,
// which examples/mpi_norm.cpp compares with the unsplit norm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <tuple>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Sets Open MPI's environment variables, which other MPIs ignore: run as root, allow more processes than processors,
// use no ssh, and avoid what a container may forbid.
ProgramRun mpirun(int processes, const std::string& program, const Words& arguments) {
  ProgramSetting setting;
  setting.program = EVENORM_MPIEXEC;
  setting.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                         "OMPI_MCA_rmaps_base_oversubscribe=1",
                         "OMPI_MCA_hwloc_base_binding_policy=none",
                         "OMPI_MCA_plm=isolated",
                         "OMPI_MCA_btl_vader_single_copy_mechanism=none"};
  return run_evenorm(Words{"-n", std::to_string(processes), example(program)} + arguments, setting);
}

// The lines with this beginning, sorted, because processes print in any order.
Words lines_of(const std::string& text, const std::string& beginning) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(beginning)) lines.push_back(line);
  }
  std::ranges::sort(lines);
  return lines;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// --- the header ----------------------------------------------------------------------------------------------------

// The largest size needs several gathers.
TEST(Mpi_Gather, BringsAllBytesToAll) {
  for (const int processes : {1, 3}) {
    const ProgramRun run = mpirun(processes, "mpi_gather", {"bytes", "0", "1", "248", "100003", "33554433"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(count(run.out, "bytes are right"), static_cast<std::size_t>(5 * processes)) << run.out;
    EXPECT_THAT(run.out, Not(HasSubstr("WRONG")));
  }
}

TEST(Mpi_Gather, RejectsInvalidCommunicators) {
  const ProgramRun run = mpirun(1, "mpi_gather", {"lifecycle"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out,
            "0 Error: MPI is not initialised: MPI_Init should be called before\n"
            "0 Error: comm is MPI_COMM_NULL\n"
            "0 Error: deadline is 0 ms, but it should be more than 0\n"
            "0 done\n"
            "0 8 bytes are right\n"
            "0 Error: MPI is finalised: its communicators are gone\n"
            "0 Error: MPI is finalised: its communicators are gone\n");
}

// The processes that stopped waiting continue with a new communicator. The memory of the abandoned gather is kept.
TEST(Mpi_Gather, IsAbandonedAfterTheDeadline) {
  const ProgramRun run = mpirun(3, "mpi_gather", {"late"});
  EXPECT_EQ(run.status, 0) << run.err;
  const std::string late = "no answer from all 3 processes within 300 ms";
  Words expected = {"2 done"};
  for (const std::string rank : {"0 ", "1 "}) {
    expected.push_back(rank + "CommunicationError: " + late);
    expected.push_back(rank + "CommunicationError: an earlier gather has failed: " + late);
  }
  for (const std::string rank : {"0 ", "1 ", "2 "}) expected.push_back(rank + "1000 bytes are right");
  std::ranges::sort(expected);
  EXPECT_THAT(lines_of(run.out, ""), ElementsAreArray(expected));
}

// A program error that MPI detects: processes that receive more than fits get MPI's message.
TEST(Mpi_Gather, ReportsMpisErrors) {
  const ProgramRun run = mpirun(3, "mpi_gather", {"uneven"});
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(lines_of(run.out, "0 "),
              Contains(AllOf(StartsWith("0 CommunicationError: MPI_"), HasSubstr("truncated"))));
}

// --- norms ---------------------------------------------------------------------------------------------------------

constexpr std::size_t kResults = 8;  // y, dx, dweight and dbias of both norms

class Mpi_NormBits : public ::testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(Mpi_NormBits, EqualTheUnsplitNormIfCutsAreAtBlocks) {
  const auto& [processes, dtype] = GetParam();
  const std::string even[] = {"", "", "2048,2048", "2048,2048,2048", "2048,2048,2048,2048"};
  const std::string empty[] = {"", "", "0,3077", "1024,0,2053", "0,2048,0,1029"};
  const auto places = static_cast<std::size_t>(processes);
  for (const Words& words : {Words{"10300"}, Words{std::to_string(2048 * processes), "--columns", even[places]},
                             Words{"3077", "--columns", empty[places], "--mean", "1e6"}}) {
    const Words arguments = Words{"12"} + words + Words{"--dtype", dtype, "--repeat", "20"};
    const ProgramRun run = mpirun(processes, "mpi_norm", arguments);
    EXPECT_EQ(run.status, 0) << run.out << run.err;
    EXPECT_EQ(count(run.out, "the same bits"), kResults) << run.out;
    EXPECT_THAT(run.out, AllOf(HasSubstr("columns, all cut at multiples of 1024"),
                               HasSubstr("20 runs of the passes; all is as it should be")));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mpi_NormBits,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::Values("f32", "bf16")),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
                         });

// The mean is so large that its last places are visible.
TEST(Mpi_Norm, KeepsItsBoundsForAnyCuts) {
  for (const char* columns : {"100,500,300", "0,899,1"}) {
    for (const char* dtype : {"f32", "bf16"}) {
      const Words words = {"20", "900", "--columns", columns, "--dtype", dtype, "--mean", "1e6", "--repeat", "20"};
      const ProgramRun run = mpirun(3, "mpi_norm", words);
      EXPECT_EQ(run.status, 0) << run.out << run.err;
      EXPECT_EQ(count(run.out, "the same bits") + count(run.out, "apart at most"), kResults) << run.out;
      EXPECT_EQ(count(run.out, "all are within their bounds"), 2u) << run.out;
    }
  }
}

TEST(Mpi_Norm, ReportsDisagreementsToAllProcesses) {
  const ProgramRun run = mpirun(3, "mpi_norm", {"8", "4000", "--disagree"});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  const std::string text = ": x has 8 rows in process 0, but 9 rows in process 2";
  EXPECT_THAT(lines_of(run.err, "process "),
              ElementsAreArray({"process 0" + text, "process 1" + text, "process 2" + text}));
}

TEST(Mpi_Norm, DoesNotWaitForAProcessThatHangs) {
  const ProgramRun run = mpirun(3, "mpi_norm", {"8", "4000", "--hang", "100", "--deadline", "700"});
  EXPECT_EQ(run.status, 1);
  const std::string text = ": no answer from all 3 processes within 700 ms";
  EXPECT_THAT(lines_of(run.err, "process "), ElementsAreArray({"process 0" + text, "process 1" + text}));
  EXPECT_LT(run.seconds, 50);
}

TEST(Mpi_Norm, RejectsWrongUse) {
  const ProgramRun missing = mpirun(2, "mpi_norm", {"8"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(lines_of(missing.err, "mpi_norm: "), ElementsAreArray({"mpi_norm: COLUMNS is required"}));
  const ProgramRun columns = mpirun(2, "mpi_norm", {"8", "100", "--columns", "50,30"});
  EXPECT_EQ(columns.status, 2);
  EXPECT_THAT(lines_of(columns.err, "mpi_norm: "),
              ElementsAreArray({"mpi_norm: --columns has 80 columns for 2 processes, but there are 100 for 2"}));
}

}  // namespace
}  // namespace evenorm::testing
