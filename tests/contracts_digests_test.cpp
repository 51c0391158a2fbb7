// Equal bits: every case of the digest tables in every way on every target, compared with tests/vectors/digests.json.
// EVENORM_UPDATE_DIGESTS=1 build/evenorm_tests --gtest_filter='Contract_Digests.*' writes that file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "contracts/digests.hpp"
#include "support/cases.hpp"
#include "support/names.hpp"
#include "support/places.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::expect_same_bits;
using Json = nlohmann::ordered_json;

std::string file_name() { return evenorm::testing::in_sources("tests/vectors/digests.json"); }

bool is_updating() { return std::getenv("EVENORM_UPDATE_DIGESTS") != nullptr; }

Json read_digests() {
  std::ifstream stream(file_name());
  return stream ? Json::parse(stream) : Json::object();
}
std::string expected_digest(const char* table, const std::string& name) {
  static const Json file = read_digests();
  return file[table].value(name, "none");
}

const char* table_of(const Case& c) { return c.op.is_backward() ? "gradients" : "digests"; }

std::vector<Case> all_cases() {
  std::vector<Case> all = digest_cases();
  for (Case& c : gradient_cases()) all.push_back(std::move(c));
  return all;
}

std::string digest_on(internal::Target target, const Case& c) {
  return digest_text(digest_of(c.op, run_operation(on_target(target), c.op, digest_inputs(c))));
}

// --- groups of channels, in both passes

// Two samples of four groups: kind, type, channels of a group, pixels.
constexpr const char* kGroups[] = {"layer f32 3x15",   "layer f32 10x16", "layer f32 70x49",   "layer f32 2x1025",
                                   "layer f32 1x3000", "rms f32 5x100",   "layer bf16 8x1024", "rms bf16 33x17",
                                   "layer f16 3x2100", "rms f16 1x256",   "layer f64 9x16",    "layer f64 3x1025",
                                   "rms f64 20x49"};

Case group_case(const std::string& text) {
  const std::size_t at = text.rfind(' ') + 1;
  const std::string shape = text.substr(at), channels = shape.substr(0, shape.find('x'));
  return parse_case(text.substr(0, at) + "2x4x" + shape + " axes=2,3 parameter=1x4x" + channels + "x1");
}
std::string group_name(const Case& c) {
  const std::string sizes = std::to_string(c.shape[2]) + " x " + std::to_string(c.shape[3]);
  return same_type(c.op.kind, c.op.x, c.op.cols).name() + " = " + sizes;
}

// The digest of both passes. dgamma and dbeta are f64, to show the order in which they were summed.
std::string group_digest_on(internal::Target target, const Case& group, const std::string& way) {
  Case forward = with_way(group, way), backward = forward;
  const DType dtype = group.op.x;
  backward.op.dx = dtype;
  backward.op.dgamma = backward.op.dbeta = DType::f64;
  backward.op.weight = forward.op.weight = forward.op.bias = dtype;
  Inputs in = digest_inputs({.op = same_type_backward(group.op.kind, dtype, group.op.cols), .shape = {8, 1}});
  in.weight = make_weight(dtype, product(group.parameter));
  in.bias = make_bias(dtype, product(group.parameter));
  const Outcome y = outcome_by(forward, target, in);
  if (backward.way.statistics_given) {
    in.mean = y.mean;
    in.rstd = y.rstd;
    backward.way.statistics_given = false;
  }
  const Outcome gradients = outcome_by(backward, target, in);
  Digest digest;
  for (const Array* of : {&y.y, &gradients.dx}) digest.add(of->data(), of->bytes().size());
  std::vector<double> mean = y.mean;
  mean.resize(8);
  for (const std::vector<double>& of : {mean, y.rstd}) digest.add(of.data(), of.size() * sizeof(double));
  for (const Array* of : {&gradients.dgamma, &gradients.dbeta}) digest.add(of->data(), of->bytes().size());
  return digest_text(digest.value());
}

// --- the tests

// Expects that all ways give the same bits, and that they equal the file's.
void expect_as_in_file(const Case& c) {
  const DigestRow row = run_digest_case(c);
  for (const std::string& broken : row.differing) ADD_FAILURE() << broken;
  if (is_updating()) return;
  EXPECT_EQ(digest_text(row.digest), expected_digest(table_of(c), row.name)) << row.name << " in " << file_name();
}

class Contract_SameBits : public ::testing::TestWithParam<std::tuple<Kind, DType>> {
 protected:
  static void try_cases(
      const std::vector<Case>& cases, std::size_t at_least,
      const std::function<bool(const Case&)>& wanted = [](const Case&) { return true; }) {
    std::size_t tried = 0;
    for (const Case& c : cases) {
      if (std::tuple(c.op.kind, c.op.x) != GetParam() || !wanted(c)) continue;
      ++tried;
      expect_as_in_file(c);
    }
    EXPECT_GE(tried, at_least);
  }
};

TEST_P(Contract_SameBits, HoldInEveryWayOnEveryTarget_Whole) { try_cases(digest_cases(), 20); }
TEST_P(Contract_SameBits, HoldForGradientsInEveryWayOnEveryTarget_Whole) { try_cases(gradient_cases(), 15); }

// Two block lengths, and many rows. These cases are fast enough to run always.
TEST_P(Contract_SameBits, TwoTableCasesInEveryWay) {
  try_cases(digest_cases(), 2, [](const Case& c) {
    return (c.op.cols == 65 || c.op.cols == 2049) && c.op.weight == c.op.x && c.op.bias == c.op.x;
  });
}
TEST_P(Contract_SameBits, SomeGradientsInEveryWay) {
  const std::vector<Shape> shapes = {{3, 768}, {130, 33}, {1000, 65}, {2, 2049}, {3, 20000}};
  try_cases(gradient_cases(), shapes.size(),
            [&](const Case& c) { return std::ranges::find(shapes, c.shape) != shapes.end(); });
}

INSTANTIATE_TEST_SUITE_P(Kinds, Contract_SameBits,
                         ::testing::Combine(::testing::ValuesIn(kBothKinds), ::testing::ValuesIn(kAllTypes)),
                         [](const auto& test) {
                           return evenorm::testing::word(std::get<0>(test.param)) + "_" +
                                  evenorm::testing::word(std::get<1>(test.param));
                         });

// The cases of `table` whose digests differ between the files `before` and `now` of the same revision.
std::vector<std::string> broken_promises(const Json& before, const Json& now, const char* table) {
  std::vector<std::string> broken;
  if (before.value("numerics_revision", 0) != now["numerics_revision"]) return broken;
  const Json known = before.value(table, Json::object());
  for (const auto& [name, digest] : now[table].items()) {
    if (known.value(name, digest) != digest) broken.push_back(name);
  }
  return broken;
}

void write_file() {
  const internal::Target target = runnable_targets()[0];
  Json file{{"numerics_revision", numerics_revision()}, {"digests", {}}, {"gradients", {}}, {"groups", {}}};
  for (const Case& c : all_cases()) file[table_of(c)][digest_name(c)] = digest_on(target, c);
  for (const char* text : kGroups) {
    const Case group = group_case(text);
    file["groups"][group_name(group)] = group_digest_on(target, group, "");
  }
  for (const char* table : {"digests", "gradients", "groups"}) {
    const std::vector<std::string> broken = broken_promises(read_digests(), file, table);
    ASSERT_TRUE(broken.empty()) << "different bits need a new EVENORM_NUMERICS_REVISION: " << broken[0];
  }
  std::ofstream(file_name()) << file.dump(1) << '\n';
}

TEST(Contract_Digests, ChangeOnlyWithTheRevision) {
  const auto file = [](int revision, const char* digest) {
    return Json{{"numerics_revision", revision}, {"digests", {{"one", "0a"}, {"other", digest}}}};
  };
  EXPECT_EQ(broken_promises(file(1, "0b"), file(1, "0c"), "digests"), std::vector<std::string>{"other"});
  EXPECT_TRUE(broken_promises(file(1, "0b"), file(1, "0b"), "digests").empty());
  EXPECT_TRUE(broken_promises(file(1, "0b"), file(2, "0c"), "digests").empty());
  const Json without = {{"numerics_revision", 1}, {"digests", {{"one", "0a"}}}};
  EXPECT_TRUE(broken_promises(without, file(1, "0b"), "digests").empty()) << "a new case breaks no promise";
}

TEST(Contract_Digests, FileHoldsEveryCaseOfThisRevision) {
  if (is_updating()) write_file();
  const Json file = read_digests();
  EXPECT_EQ(file["numerics_revision"], numerics_revision());
  EXPECT_EQ(file["digests"].size() + file["gradients"].size(), all_cases().size());
  EXPECT_EQ(file["groups"].size(), std::size(kGroups));
}

// The whole table in one way only, which is fast enough for an emulator.
void expect_equal_the_file(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::string expected = expected_digest(table_of(c), digest_name(c));
    for (const internal::Target target : runnable_targets()) {
      EXPECT_EQ(digest_on(target, c), expected) << digest_name(c) << " on " << internal::name(target);
    }
  }
}
TEST(Contract_Digests, EqualTheFileOnEveryTarget) { expect_equal_the_file(digest_cases()); }
TEST(Contract_Digests, OfGradientsEqualTheFileOnEveryTarget) { expect_equal_the_file(gradient_cases()); }

TEST(Contract_Digests, OfGroupsEqualTheFileOnEveryTarget) {
  for (const char* text : kGroups) {
    const Case group = group_case(text);
    for (const internal::Target target : runnable_targets()) {
      for (const char* way : {"threads=2", "given", "threads=2 x=last y=last dx=last", "given x=last y=last dx=last"}) {
        EXPECT_EQ(group_digest_on(target, group, way), expected_digest("groups", group_name(group)))
            << text << " " << way << " on " << internal::name(target);
      }
    }
  }
}

// Two cases of the table, short for tools/mutants: their f64 sums depend on the order of additions.
TEST(Contract_SameBits, TwoCasesInEveryWayOnEveryTarget) {
  for (const char* text : {"layer f32 weight=f32 bias=f32 7x65", "layer f32 weight=f32 bias=f32 7x2049"}) {
    expect_as_in_file(parse_case(text));
  }
}

TEST(Contract_Digests, DependOnEveryBit) {
  Digest a, b, c;
  const unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, last[] = {1, 2, 3, 4, 5, 6, 7, 8, 137};
  a.add(bytes, sizeof bytes);
  b.add(last, sizeof last);
  c.add(bytes, 8);
  EXPECT_NE(a.value(), b.value());
  EXPECT_NE(a.value(), c.value());
  EXPECT_EQ(digest_text(0x0123456789ABCDEF), "0123456789abcdef");
}

// --- gradients that are not in the table ---------------------------------------------------------------------------

// Outputs above 8 MiB use non-temporal stores.
TEST(Contract_GradientsSameBits, HoldWithStreamingStores_Whole) {
  expect_same_bits("layer f32 weight=f32 dx=f32 dgamma=f32 dbeta=f32 2100x1031 {threads=2 dx=+1,dx@dy}");
  expect_same_bits("layer bf16 weight=bf16 dx=bf16 dgamma=bf16 dbeta=bf16 4200x1031 {threads=2 dx=+1,dx@dy}");
}

// Short, for tools/mutants.
TEST(Contract_GradientsSameBits, HoldForOneCaseOnEveryTarget) {
  expect_same_bits("layer f32 weight=f32 dx=f32 dgamma=f64 dbeta=f64 200x65 {threads=1,threads=7,tasks=64}");
}

// 29 row blocks for 3 tasks, which cannot be divided evenly. Sums of numbers of one size would be exact in any order.
TEST(Contract_GradientsSameBits, SharesOfRowBlocksAreSubtrees) {
  expect_same_bits("rms f32 weight=f32 dx=f32 dgamma=f64 dbeta=f64 1900x33 dy:wide_exponents tasks={2,3,64}");
}

// Plans, with and without sums over rows and precomputed statistics.
TEST(Contract_GradientsSameBits, HoldForPlans) {
  for (const DType dtype : kAllTypes) {
    expect_same_bits(
        "{layer,rms} $ weight=$ dx=$ {dgamma=$ dbeta=$,dx=$} {1x5,70x64,130x200,9x3000} "
        "x:normal,mean_1e4 entry=plan {tasks=5,given}",
        name(dtype));
    expect_same_bits("{layer,rms} $ weight=$ dgamma=$ dbeta=$ accumulate {70x64,9x3000} entry=plan", name(dtype));
  }
}

// The forward pass scales this row, which loses digits of its smallest element. The other two elements cancel.
TEST(Contract_GradientsSameBits, HoldForPrecomputedStatisticsOfAScaledRow) {
  const Inputs in{Array(DType::f32, std::vector<double>{0x1p127, -0x1p127, 0x1.8p-148}),
                  Array(DType::f32, std::vector<double>{0, 0, 0x1p127})};
  const Case c = parse_case("layer f32 dx=f32 dgamma=f32 dbeta=f32 eps=0 1x3 given");
  EXPECT_EQ(differences(c, in, plain_outcome(c, in)), "");
}

// The second row's mean needs its low part, so the row is found anew; the first row has statistics of its own making.
TEST(Contract_GradientsSameBits, HoldForGivenStatisticsBesideARowThatIsFoundAnew) {
  const Operation op = parse_case("layer f64 dx=f64 2x3").op;
  const auto array = [](const std::vector<double>& values) { return Array(DType::f64, values); };
  const Inputs one{array({-1, 2, 0}), array({3, 1, 2}), {}, {0.25}, {0.5}};
  const Inputs both{array({-1, 2, 0, 5, -7, 1}), array({3, 1, 2, 1, 2, 3}), {}, {0.25, 9}, {0.5, 1}};
  for (const internal::Target target : runnable_targets()) {
    const Outcome alone = run_operation(on_target(target), op, one);
    EXPECT_TRUE(run_operation(on_target(target), op, both).row(op, 0).has_the_bits_of(alone)) << internal::name(target);
  }
}

#if defined(__x86_64__) || defined(__aarch64__)
// Shows that the floating-point modes of the other tests take effect.
TEST(Contract_Digests, ModesTakeEffect) {
  volatile double third = 3, tiny = 0x1p-1074;
  const double nearest = 1 / third;
  {
    const FpModeScope scope(FpMode::upward);
    EXPECT_GT(1 / third, nearest);
  }
  {
    const FpModeScope scope(FpMode::flush_to_zero);
    EXPECT_EQ(tiny * 1, 0);
    EXPECT_TRUE(scope.is_as_set());
  }
  EXPECT_EQ(1 / third, nearest);
  EXPECT_EQ(tiny * 1, 0x1p-1074);
}
#endif

}  // namespace
}  // namespace evenorm::contracts
