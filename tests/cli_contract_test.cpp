// `evenorm apply` gives the library's bits for every type, on every target, with threads and in place.
// normalize_test.cpp has every order of a file.
#include "contracts/digests.hpp"
#include "contracts/verify.hpp"
#include "support/cli.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::Operation;
using contracts::Outcome;

std::string descr_of(DType dtype) { return dtype == DType::bf16 ? "<V2" : "<f" + std::to_string(size_of(dtype)); }

class Contract_CommandLine : public InFolder, public ::testing::WithParamInterface<DType> {
 protected:
  void write_array(const char* name, const Array& values, const std::string& shape) const {
    const auto* data = reinterpret_cast<const char*>(values.data());
    write(name, npy_bytes_of(descr_of(values.dtype()), shape, {data, values.bytes().size()}));
  }

  Outcome applied(const Operation& op, const contracts::Inputs& data, const std::string& y, const std::string& options,
                  const Words& environment = {}) const {
    const std::string cols = std::to_string(op.cols), rows = std::to_string(data.x.size() / op.cols);
    write_array("x.npy", data.x, "(" + rows + ", " + cols + ")");
    std::string line = "apply x.npy --rstd rstd.npy -o " + y + options;
    line += op.kind == Kind::rms ? " --rms" : " --mean mean.npy";
    if (op.zero_centered) line += " --zero-centered";
    if (op.weight) write_array("w.npy", data.weight, "(" + cols + ",)");
    if (op.weight) line += " --weight w.npy";
    if (op.bias) write_array("b.npy", data.bias, "(" + cols + ",)");
    if (op.bias) line += " --bias b.npy";
    done(line, {.environment = environment});
    const std::string npy = read(y), bytes = data_of(npy);
    EXPECT_THAT(npy, HasSubstr("'" + descr_of(op.y) + "'"));
    Outcome outcome{.y = Array(op.y, bytes.size() / size_of(op.y))};
    outcome.rstd = doubles("rstd.npy");
    std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), outcome.y.data());
    if (op.kind == Kind::layer) outcome.mean = doubles("mean.npy");
    return outcome;
  }
};

TEST_P(Contract_CommandLine, GivesTheSameBits) {
  const auto targets = contracts::runnable_targets();
  for (const Kind kind : contracts::kBothKinds) {
    for (const std::size_t cols : {1, 33, 768, 5000, 65541}) {
      Operation op = contracts::same_type(kind, GetParam(), cols);
      op.zero_centered = cols == 33;
      if (cols == 768) op.weight = op.bias = DType::f32;
      const contracts::Case c = contracts::case_of(op, 7);
      const contracts::Inputs data = digest_inputs(c);
      const Outcome expected = plain_outcome(c, data);
      EXPECT_EQ(applied(op, data, "y.npy", "").difference_to(expected), "") << op.name();
      EXPECT_EQ(applied(op, data, "x.npy", " --threads 2").difference_to(expected), "") << op.name() << ", in place";
      for (const internal::Target target : targets) {
        const std::string forced = "EVENORM_TARGET=" + std::string(internal::name(target));
        EXPECT_EQ(applied(op, data, "y.npy", "", {forced}).difference_to(expected), "") << op.name() << forced;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_CommandLine,
                         ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::testing
