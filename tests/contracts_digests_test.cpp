// Equal bits: every case of the digest tables in every way on every target, compared with tests/vectors/digests.json.
// EVENORM_UPDATE_DIGESTS=1 build/evenorm_tests --gtest_filter='Contract_Digests.*' writes that file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "contracts/backward_digests.hpp"
#include "contracts/digests.hpp"
#include "contracts/fp_mode.hpp"
#include "contracts/scattered.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"
#include "support/places.hpp"

namespace evenorm::contracts {
namespace {

using Json = nlohmann::ordered_json;

std::string file_name() { return evenorm::testing::in_sources("tests/vectors/digests.json"); }

bool is_updating() { return std::getenv("EVENORM_UPDATE_DIGESTS") != nullptr; }

const Json& expected_digests() {
  static const Json file = [] {
    std::ifstream stream(file_name());
    return stream ? Json::parse(stream) : Json::object();
  }();
  return file;
}

std::string digest_on(internal::Target target, const Operation& op, const CaseData& data) {
  const Outcome outcome = run_operation(on_target(target), op, data.x, data.weight, data.bias);
  return digest_text(join_digests(row_digests(op, outcome)));
}

std::string digest_on(internal::Target target, const GradientCase& c, const BackwardInputs& inputs) {
  return digest_text(gradients_digest(run_backward(gradients_on_target(target), c.op, inputs)));
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

// Two samples of four groups of channels, whose runs have so many pixels: both passes.
struct GroupsCase {
  Kind kind;
  DType dtype;
  std::int64_t channels, pixels;

  std::string name() const {
    const Operation op = same_type(kind, dtype, static_cast<std::size_t>(channels * pixels));
    return op.name() + " = " + std::to_string(channels) + " x " + std::to_string(pixels);
  }
};

constexpr GroupsCase kGroups[] = {
    {Kind::layer, DType::f32, 3, 15},    {Kind::layer, DType::f32, 10, 16},  {Kind::layer, DType::f32, 70, 49},
    {Kind::layer, DType::f32, 2, 1025},  {Kind::layer, DType::f32, 1, 3000}, {Kind::rms, DType::f32, 5, 100},
    {Kind::layer, DType::bf16, 8, 1024}, {Kind::rms, DType::bf16, 33, 17},   {Kind::layer, DType::f16, 3, 2100},
    {Kind::rms, DType::f16, 1, 256},     {Kind::layer, DType::f64, 9, 16},   {Kind::layer, DType::f64, 3, 1025},
    {Kind::rms, DType::f64, 20, 49},
};

// The digest of both passes, with channels-last memory or not, and with given or computed statistics. dgamma and dbeta
// are f64, to show the order in which they were summed.
std::string digest_on(internal::Target target, const GroupsCase& c, bool channels_last, bool given,
                      const Executor& executor) {
  using Bytes = std::vector<std::byte>;
  const Shape shape{2, 4, c.channels, c.pixels}, parameter{1, 4, c.channels, 1}, tail{c.channels, c.pixels};
  const Shape dense{4 * c.channels * c.pixels, c.channels * c.pixels, c.pixels, 1};
  const Shape last{4 * c.channels * c.pixels, c.channels, 1, 4 * c.channels}, rows{2, 4};
  const Shape& strides = channels_last ? last : dense;
  const std::size_t bytes = size_of(c.dtype), elements = product(parameter);
  std::vector<std::size_t> order;
  for (const std::ptrdiff_t offset : element_offsets(shape, strides, bytes)) {
    order.push_back(static_cast<std::size_t>(offset) / bytes);
  }
  const BackwardInputs in = make_gradient_inputs({same_type_backward(c.kind, c.dtype, product(tail)), product(rows)});
  const auto placed = [&](const Array& from) {
    return permuted({from.bytes().begin(), from.bytes().end()}, bytes, order, true);
  };
  const Bytes x = placed(in.x), dy = placed(in.dy);
  const Array weight = make_weight(c.dtype, elements), bias = make_bias(c.dtype, elements);
  Bytes y(x.size()), dx(x.size());
  std::vector<double> mean(8), rstd(8), dweight(elements), dbias(elements);

  Forward f{.kind = c.kind, .x = {x.data(), c.dtype, shape, strides}, .y = {y.data(), c.dtype, shape, strides}};
  f.normalized_shape = tail;
  f.weight = {weight.data(), c.dtype, parameter, {}};
  f.bias = {bias.data(), c.dtype, parameter, {}};
  if (c.kind == Kind::layer) f.mean = {mean.data(), DType::f64, rows, {}};
  f.rstd = {rstd.data(), DType::f64, rows, {}};
  on_target(target)(f, executor);

  Backward b{.kind = c.kind, .x = f.x, .dy = {dy.data(), c.dtype, shape, strides}, .normalized_shape = tail};
  b.weight = f.weight;
  if (given && c.kind == Kind::layer) b.mean = {mean.data(), DType::f64, rows, {}};
  if (given) b.rstd = {rstd.data(), DType::f64, rows, {}};
  b.dx = {dx.data(), c.dtype, shape, strides};
  b.dweight = {dweight.data(), DType::f64, parameter, {}};
  b.dbias = {dbias.data(), DType::f64, parameter, {}};
  gradients_on_target(target)(b, executor);

  Digest digest;
  for (const Bytes& of : {permuted(y, bytes, order, false), permuted(dx, bytes, order, false)}) {
    digest.add(of.data(), of.size());
  }
  for (const auto* of : {&mean, &rstd, &dweight, &dbias}) digest.add(of->data(), of->size() * sizeof(double));
  return digest_text(digest.value());
}

// Expects that all ways give the same bits in a table's row, and that they equal the file's under `table`.
void expect_as_in_file(const char* table, const DigestRow& row) {
  EXPECT_TRUE(row.differing.empty()) << row.name << " has different bits for" << joined(row.differing);
  if (is_updating()) return;
  const std::string expected = expected_digests()[table].value(row.name, "none");
  EXPECT_EQ(digest_text(row.digest), expected) << row.name << " has different bits from " << file_name();
}

using Group = std::tuple<Kind, DType>;

class Contract_SameBits : public ::testing::TestWithParam<Group> {};

TEST_P(Contract_SameBits, HoldInEveryWayOnEveryTarget_Whole) {
  const auto [kind, dtype] = GetParam();
  std::size_t cases = 0;
  for (const Operation& op : digest_cases()) {
    if (op.kind != kind || op.x != dtype) continue;
    ++cases;
    expect_as_in_file("digests", run_digest_case(op, runnable_targets()));
  }
  EXPECT_GT(cases, 20u);
}

TEST_P(Contract_SameBits, HoldForGradientsInEveryWayOnEveryTarget_Whole) {
  const auto [kind, dtype] = GetParam();
  std::size_t cases = 0;
  for (const GradientCase& c : gradient_cases()) {
    if (c.op.forward.kind != kind || c.op.forward.x != dtype) continue;
    ++cases;
    expect_as_in_file("gradients", run_gradient_case(c, runnable_targets()));
  }
  EXPECT_GT(cases, 15u);
}

// Two block lengths, and many rows. These cases are fast enough to run always.
TEST_P(Contract_SameBits, TwoTableCasesInEveryWay) {
  const auto [kind, dtype] = GetParam();
  for (const std::size_t cols : {65, 2049}) {
    expect_as_in_file("digests", run_digest_case(same_type(kind, dtype, cols), runnable_targets()));
  }
}

TEST_P(Contract_SameBits, SomeGradientsInEveryWay) {
  using Size = std::pair<std::size_t, std::size_t>;
  constexpr Size kSizes[] = {{3, 768}, {130, 33}, {1000, 65}, {2, 2049}, {3, 20000}};
  const auto [kind, dtype] = GetParam();
  std::size_t cases = 0;
  for (const GradientCase& c : gradient_cases()) {
    if (c.op.forward.kind != kind || c.op.forward.x != dtype) continue;
    if (std::ranges::find(kSizes, Size{c.rows, c.op.forward.cols}) == std::end(kSizes)) continue;
    ++cases;
    expect_as_in_file("gradients", run_gradient_case(c, runnable_targets()));
  }
  EXPECT_EQ(cases, std::size(kSizes));
}

std::string group_name(const ::testing::TestParamInfo<Group>& info) {
  return evenorm::testing::word(std::get<0>(info.param)) + "_" + evenorm::testing::word(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Contract_SameBits,
                         ::testing::Combine(::testing::ValuesIn(kBothKinds), ::testing::ValuesIn(kAllTypes)),
                         group_name);

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
  Json digests = Json::object(), gradients = Json::object(), groups = Json::object();
  for (const Operation& op : digest_cases()) digests[op.name()] = digest_on(target, op, make_case_data(op));
  for (const GradientCase& c : gradient_cases()) gradients[c.name()] = digest_on(target, c, make_gradient_inputs(c));
  for (const GroupsCase& c : kGroups) groups[c.name()] = digest_on(target, c, false, false, {});
  const Json file{
      {"numerics_revision", numerics_revision()}, {"digests", digests}, {"gradients", gradients}, {"groups", groups}};
  for (const char* table : {"digests", "gradients", "groups"}) {
    const std::vector<std::string> broken = broken_promises(expected_digests(), file, table);
    ASSERT_TRUE(broken.empty()) << "different bits need a new EVENORM_NUMERICS_REVISION:" << joined(broken);
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
  std::ifstream stream(file_name());
  ASSERT_TRUE(stream) << file_name();
  const Json file = Json::parse(stream);
  EXPECT_EQ(file["numerics_revision"], numerics_revision());
  EXPECT_EQ(file["digests"].size(), digest_cases().size());
  for (const Operation& op : digest_cases()) EXPECT_TRUE(file["digests"].contains(op.name())) << op.name();
  EXPECT_EQ(file["gradients"].size(), gradient_cases().size());
  for (const GradientCase& c : gradient_cases()) EXPECT_TRUE(file["gradients"].contains(c.name())) << c.name();
  EXPECT_EQ(file["groups"].size(), std::size(kGroups));
}

// The whole table in one way only, which is fast enough for an emulator.
TEST(Contract_Digests, EqualTheFileOnEveryTarget) {
  for (const Operation& op : digest_cases()) {
    const CaseData data = make_case_data(op);
    const std::string expected = expected_digests()["digests"].value(op.name(), "none");
    for (const internal::Target target : runnable_targets()) {
      EXPECT_EQ(digest_on(target, op, data), expected) << op.name() << " on " << internal::name(target);
    }
  }
}

TEST(Contract_Digests, OfGradientsEqualTheFileOnEveryTarget) {
  for (const GradientCase& c : gradient_cases()) {
    const BackwardInputs inputs = make_gradient_inputs(c);
    const std::string expected = expected_digests()["gradients"].value(c.name(), "none");
    for (const internal::Target target : runnable_targets()) {
      EXPECT_EQ(digest_on(target, c, inputs), expected) << c.name() << " on " << internal::name(target);
    }
  }
}

TEST(Contract_Digests, OfGroupsEqualTheFileOnEveryTarget) {
  for (const GroupsCase& c : kGroups) {
    const std::string expected = expected_digests()["groups"].value(c.name(), "none");
    for (const internal::Target target : runnable_targets()) {
      const std::string where = c.name() + " on " + std::string(internal::name(target));
      for (const bool last : {false, true}) {
        EXPECT_EQ(digest_on(target, c, last, false, pool_executor(2)), expected) << where << last;
        EXPECT_EQ(digest_on(target, c, last, true, {}), expected) << where << last;
      }
    }
  }
}

// Two cases of the table, short for tools/mutants.
TEST(Contract_SameBits, TwoCasesInEveryWayOnEveryTarget) {
  for (const std::size_t cols : {65, 2049}) {  // their f64 sums depend on the order of additions
    const DigestRow row = run_digest_case(same_type(Kind::layer, DType::f32, cols), runnable_targets());
    EXPECT_TRUE(row.differing.empty()) << row.name << " has different bits for" << joined(row.differing);
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

// Rows of one operation, and the gradients that every way of computing them must give.
struct Rows {
  BackwardOperation op;
  BackwardInputs inputs = {};
  BackwardOutcome expected = {};

  Rows(const BackwardOperation& operation, std::size_t rows, const std::string& of_dy = "normal")
      : op(operation), inputs(evenorm::testing::inputs_of(op, {"normal"}, {of_dy}, rows)) {
    expected = run_backward(gradients_on_target(runnable_targets()[0]), op, inputs);
    EXPECT_TRUE(expected.kept_inside);
  }

  void expect_same(internal::Target target, const Executor& executor, const BackwardLayout& layout = {}) const {
    const BackwardOutcome found = run_backward(gradients_on_target(target), op, inputs, layout, executor);
    EXPECT_TRUE(found.has_the_bits_of(expected)) << op.name() << " on " << internal::name(target);
    EXPECT_TRUE(found.kept_inside) << op.name() << " on " << internal::name(target);
  }
};

// dgamma and dbeta are f64 here, to show the order in which they were summed. Rounding to f32 would hide it.
BackwardOperation with_wide_sums(BackwardOperation op) {
  op.dgamma = op.dbeta = DType::f64;
  return op;
}

// Outputs above 8 MiB use non-temporal stores.
TEST(Contract_GradientsSameBits, HoldWithStreamingStores_Whole) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Rows rows(same_type_backward(Kind::layer, dtype, 1031), 8400 / size_of(dtype));
    for (const internal::Target target : runnable_targets()) {
      rows.expect_same(target, pool_executor(2), {.dx = {.offset = 1}});
      rows.expect_same(target, {}, {.in_place = InPlace::of_dy});
    }
  }
}

// Short, for tools/mutants.
TEST(Contract_GradientsSameBits, HoldForOneCaseOnEveryTarget) {
  const Rows rows(with_wide_sums(same_type_backward(Kind::layer, DType::f32, 65)), 200);
  for (const internal::Target target : runnable_targets()) {
    for (const Executor& executor : {Executor{}, pool_executor(7), reversed_executor(64)}) {
      rows.expect_same(target, executor);
    }
  }
}

// 29 row blocks for 3 tasks, which cannot be divided evenly. Sums of numbers of one size would be exact in any order.
TEST(Contract_GradientsSameBits, SharesOfRowBlocksAreSubtrees) {
  const Rows rows(with_wide_sums(same_type_backward(Kind::rms, DType::f32, 33)), 1900, "wide_exponents");
  for (const std::size_t threads : {2, 3, 64}) rows.expect_same(runnable_targets()[0], reversed_executor(threads));
}

// The forward pass scales this row, which loses digits of its smallest element. The other two elements cancel.
TEST(Contract_GradientsSameBits, HoldForPrecomputedStatisticsOfAScaledRow) {
  BackwardOperation op = same_type_backward(Kind::layer, DType::f32, 3);
  op.forward.weight.reset();
  op.forward.eps = 0;
  BackwardInputs inputs;
  inputs.x = Array(DType::f32, std::vector<double>{0x1p127, -0x1p127, 0x1.8p-148});
  inputs.dy = Array(DType::f32, std::vector<double>{0, 0, 0x1p127});
  for (const internal::Target target : runnable_targets()) {
    inputs.mean = inputs.rstd = {};
    const BackwardOutcome found = run_backward(gradients_on_target(target), op, inputs);
    add_statistics(target, op.forward, inputs);
    EXPECT_TRUE(run_backward(gradients_on_target(target), op, inputs).has_the_bits_of(found)) << internal::name(target);
  }
}

// The second row's mean needs its low part, so the row is found anew; the first row has statistics of its own making.
TEST(Contract_GradientsSameBits, HoldForGivenStatisticsBesideARowThatIsFoundAnew) {
  BackwardOperation op = same_type_backward(Kind::layer, DType::f64, 3);
  op.forward.weight.reset();
  op.dgamma = op.dbeta = {};
  const auto array = [](const std::vector<double>& values) { return Array(DType::f64, values); };
  const BackwardInputs one{array({-1, 2, 0}), array({3, 1, 2}), {}, {0.25}, {0.5}};
  const BackwardInputs both{array({-1, 2, 0, 5, -7, 1}), array({3, 1, 2, 1, 2, 3}), {}, {0.25, 9}, {0.5, 1}};
  for (const internal::Target target : runnable_targets()) {
    const Array alone = run_backward(gradients_on_target(target), op, one).dx;
    const Array beside = run_backward(gradients_on_target(target), op, both).dx;
    EXPECT_TRUE(std::ranges::equal(alone.bytes(), std::span(beside.bytes()).first(alone.bytes().size())));
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
