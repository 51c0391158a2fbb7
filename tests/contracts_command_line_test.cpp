// Equal bits through the command line: `evenorm apply` on files gives the digests that the library gives in memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "contracts/digests.hpp"
#include "support/names.hpp"
#include "support/npy.hpp"

#if defined(EVENORM_BINARY)
namespace evenorm::contracts {
namespace {

using evenorm::testing::read_npy;
using evenorm::testing::write_npy;
using Path = std::filesystem::path;

std::vector<double> doubles(const Array& values) {
  if (values.dtype() != DType::f64) throw std::runtime_error("statistics that are not f64");
  std::vector<double> result(values.size());
  std::copy_n(values.data(), values.bytes().size(), reinterpret_cast<std::byte*>(result.data()));
  return result;
}

class Folder {
 public:
  explicit Folder(const std::string& name) : path_(Path(::testing::TempDir()) / ("evenorm_" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  Path operator/(const char* name) const { return path_ / name; }

 private:
  Path path_;
};

// `evenorm apply` on the case's rows.
Outcome apply(const Folder& folder, const Operation& op, const CaseData& data, const std::string& environment,
              const std::string& more, bool in_place) {
  const auto rows = static_cast<std::int64_t>(data.rows), cols = static_cast<std::int64_t>(op.cols);
  const Path x = folder / "x.npy", y = in_place ? x : folder / "y.npy";
  write_npy(x, data.x, {rows, cols});
  std::string command = environment + " " + EVENORM_BINARY + " apply " + x.string() + " -o " + y.string() + " --rstd " +
                        (folder / "rstd.npy").string() + more;
  if (op.kind == Kind::rms) command += " --rms";
  if (op.kind == Kind::layer) command += " --mean " + (folder / "mean.npy").string();
  if (op.zero_centered) command += " --zero-centered";
  if (op.weight) {
    write_npy(folder / "weight.npy", data.weight, {cols});
    command += " --weight " + (folder / "weight.npy").string();
  }
  if (op.bias) {
    write_npy(folder / "bias.npy", data.bias, {cols});
    command += " --bias " + (folder / "bias.npy").string();
  }
  EXPECT_EQ(std::system((command + " > " + (folder / "log").string()).c_str()), 0) << command;
  Outcome outcome{read_npy(y), {}, doubles(read_npy(folder / "rstd.npy")), true};
  if (op.kind == Kind::layer) outcome.mean = doubles(read_npy(folder / "mean.npy"));
  return outcome;
}

class Contract_CommandLine : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_CommandLine, GivesTheSameBits) {
  const Folder folder("command_line_" + evenorm::testing::word(GetParam()));
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {1, 33, 768, 5000, 65541}) {
      Operation op = same_type(kind, GetParam(), cols);
      op.zero_centered = cols == 33;
      if (cols == 768) op.weight = op.bias = DType::f32;
      const CaseData data = make_case_data(op);
      const auto expected =
          row_digests(op, run_operation(on_target(runnable_targets()[0]), op, data.x, data.weight, data.bias));
      EXPECT_EQ(row_digests(op, apply(folder, op, data, "", "", false)), expected) << op.name();
      EXPECT_EQ(row_digests(op, apply(folder, op, data, "", " --threads 2", true)), expected) << op.name();
      for (const internal::Target target : runnable_targets()) {
        const std::string forced = "EVENORM_TARGET=" + std::string(internal::name(target));
        EXPECT_EQ(row_digests(op, apply(folder, op, data, forced, "", false)), expected) << op.name() << forced;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_CommandLine,
                         ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

TEST(Contract_CommandLine, UnknownTargetsAreRefused) {
  EXPECT_NE(std::system("EVENORM_TARGET=bogus " EVENORM_BINARY " info > /dev/null 2>&1"), 0);
}

}  // namespace
}  // namespace evenorm::contracts
#endif
