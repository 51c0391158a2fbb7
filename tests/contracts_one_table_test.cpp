// Equal bits through `evenorm apply`. One table of digests has the same rows through every layout of the C++ API,
// through C and through files; build/evenorm_tests --gtest_filter='Contract_OneTable.*' prints it. Other tests read
// every type from files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "contracts/digests.hpp"
#include "support/names.hpp"
#include "support/npy.hpp"
#include "support/program.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::doubles_of;
using evenorm::testing::ProgramRun;
using evenorm::testing::ProgramSetting;
using evenorm::testing::read_npy;
using evenorm::testing::run_evenorm;
using evenorm::testing::TemporaryFolder;
using evenorm::testing::word;
using evenorm::testing::write_npy;
using Words = std::vector<std::string>;
using Table = std::vector<std::pair<std::string, std::uint64_t>>;

std::string elements_as(const Array& values, std::size_t rows, std::size_t cols, bool columns_first, bool big_endian) {
  const std::size_t bytes = size_of(values.dtype());
  std::string text(values.bytes().size(), '\0');
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const auto* from = reinterpret_cast<const char*>(values.data()) + (r * cols + c) * bytes;
      char* to = text.data() + (columns_first ? c * rows + r : r * cols + c) * bytes;
      big_endian ? std::reverse_copy(from, from + bytes, to) : std::copy_n(from, bytes, to);
    }
  }
  return text;
}

Array rows_of(const Array& values, std::size_t rows, std::size_t cols, bool columns_first) {
  if (!columns_first) return values;
  Array result(values.dtype(), values.size());
  const std::string text = elements_as(values, cols, rows, true, false);
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), result.data());
  return result;
}

// How a file of the rows is written, and the arguments of the command line.
struct FileWay {
  std::string name;
  std::string descr, shape;  // of the header
  bool columns_first = false, big_endian = false;
  Words more{};
  bool piped = false;
};

std::uint64_t digest_of_file(const FileWay& way, const Operation& op, const CaseData& data) {
  const TemporaryFolder folder;
  const auto size = [](std::size_t n) { return std::vector<std::int64_t>{static_cast<std::int64_t>(n)}; };
  const std::string header = "{'descr': '" + way.descr +
                             "', 'fortran_order': " + (way.columns_first && way.more.empty() ? "True" : "False") +
                             ", 'shape': " + way.shape + ", }";
  evenorm::testing::write_file(
      folder / "x.npy",
      evenorm::testing::npy_bytes(header, elements_as(data.x, data.rows, op.cols, way.columns_first, way.big_endian)));
  write_npy(folder / "w.npy", data.weight, size(op.cols));
  write_npy(folder / "b.npy", data.bias, size(op.cols));
  Words arguments = {"apply",    way.piped ? "-" : folder / "x.npy",
                     "-o",       way.piped ? "-" : folder / "y.npy",
                     "--weight", folder / "w.npy",
                     "--bias",   folder / "b.npy",
                     "--mean",   folder / "mean.npy",
                     "--rstd",   folder / "rstd.npy"};
  arguments.insert(arguments.end(), way.more.begin(), way.more.end());
  ProgramSetting setting;
  if (way.piped) {
    setting.in_path = folder / "x.npy";
    setting.out_path = folder / "y.npy";
  }
  const ProgramRun run = run_evenorm(arguments, setting);
  EXPECT_EQ(run.status, 0) << way.name << ": " << run.err;
  if (run.status != 0) return 0;
  // The elements of a Fortran file are read in file order, columns first.
  const Array y = rows_of(read_npy(folder / "y.npy"), data.rows, op.cols, way.columns_first);
  return join_digests(
      row_digests(op, {y, doubles_of(read_npy(folder / "mean.npy")), doubles_of(read_npy(folder / "rstd.npy")), true}));
}

Table digests_by_file(const Operation& op) {
  const CaseData data = make_case_data(op);
  const std::string rows = std::to_string(data.rows), cols = std::to_string(op.cols);
  const std::string rows_first = "(" + rows + ", " + cols + ")", columns_first = "(" + cols + ", " + rows + ")";
  Table table;
  for (const FileWay& way : {FileWay{"evenorm apply", "<f4", rows_first},
                             FileWay{"evenorm apply --threads 2", "<f4", rows_first, false, false, {"--threads", "2"}},
                             FileWay{"evenorm apply --axes 0", "<f4", columns_first, true, false, {"--axes", "0"}},
                             FileWay{"evenorm apply, Fortran order", "<f4", rows_first, true},
                             FileWay{"evenorm apply, big endian", ">f4", rows_first, false, true},
                             FileWay{"evenorm apply - -o -", "<f4", rows_first, false, false, {}, true}}) {
    table.emplace_back(way.name, digest_of_file(way, op, data));
  }
  return table;
}

void expect_one_digest(const std::string& name, const Table& table) {
  std::printf("%s on %s\n", name.c_str(), std::string(internal::name(internal::active_target())).c_str());
  for (const auto& [way, digest] : table) {
    std::printf("  %-40s %s\n", way.c_str(), digest_text(digest).c_str());
    EXPECT_EQ(digest_text(digest), digest_text(table[0].second)) << name << ", " << way;
  }
}

TEST(Contract_OneTable, HasOneDigestForEveryLayoutInCppCAndOnTheCommandLine) {
  for (const std::size_t cols : {33, 768, 1025}) {
    const Operation op = same_type(Kind::layer, DType::f32, cols);
    Table table = digests_by_way(op, internal::active_target());
    const Table files = digests_by_file(op);
    table.insert(table.end(), files.begin(), files.end());
    expect_one_digest(op.name(), table);
    EXPECT_GT(table.size(), 30u);
  }
}

Outcome apply(const Operation& op, const CaseData& data, const Words& environment, const Words& more, bool in_place) {
  const TemporaryFolder folder;
  const auto rows = static_cast<std::int64_t>(data.rows), cols = static_cast<std::int64_t>(op.cols);
  const std::string x = folder / "x.npy", y = in_place ? x : folder / "y.npy";
  write_npy(x, data.x, {rows, cols});
  Words arguments{"apply", x, "-o", y, "--rstd", folder / "rstd.npy"};
  const auto add = [&arguments](const Words& words) { arguments.insert(arguments.end(), words.begin(), words.end()); };
  add(more);
  if (op.kind == Kind::rms) add({"--rms"});
  if (op.kind == Kind::layer) add({"--mean", folder / "mean.npy"});
  if (op.zero_centered) add({"--zero-centered"});
  if (op.weight) {
    write_npy(folder / "weight.npy", data.weight, {cols});
    add({"--weight", folder / "weight.npy"});
  }
  if (op.bias) {
    write_npy(folder / "bias.npy", data.bias, {cols});
    add({"--bias", folder / "bias.npy"});
  }
  const auto run = run_evenorm(arguments, {.environment = environment});
  EXPECT_EQ(run.status, 0) << run.err;
  Outcome outcome{read_npy(y), {}, doubles_of(read_npy(folder / "rstd.npy")), true};
  if (op.kind == Kind::layer) outcome.mean = doubles_of(read_npy(folder / "mean.npy"));
  return outcome;
}

class Contract_CommandLine : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_CommandLine, GivesTheSameBits) {
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {1, 33, 768, 5000, 65541}) {
      Operation op = same_type(kind, GetParam(), cols);
      op.zero_centered = cols == 33;
      if (cols == 768) op.weight = op.bias = DType::f32;
      const CaseData data = make_case_data(op);
      const auto expected =
          row_digests(op, run_operation(on_target(runnable_targets()[0]), op, data.x, data.weight, data.bias));
      EXPECT_EQ(row_digests(op, apply(op, data, {}, {}, false)), expected) << op.name();
      EXPECT_EQ(row_digests(op, apply(op, data, {}, {"--threads", "2"}, true)), expected) << op.name();
      for (const internal::Target target : runnable_targets()) {
        const std::string forced = "EVENORM_TARGET=" + std::string(internal::name(target));
        EXPECT_EQ(row_digests(op, apply(op, data, {forced}, {}, false)), expected) << op.name() << forced;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_CommandLine,
                         ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::contracts
