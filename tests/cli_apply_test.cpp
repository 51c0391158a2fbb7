// `evenorm apply` as its users run it: the worked examples, the options, and the same bits as the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "evenorm/evenorm.hpp"
#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

using nlohmann::json;
using testing::bytes_of;
using testing::elements_of;
using ::testing::HasSubstr;
using testing::in_sources;
using testing::npy_bytes;
using testing::npy_bytes_of;
using testing::ProgramRun;
using testing::read_file;
using testing::run_evenorm;
using testing::TemporaryFolder;
using testing::write_file;

json worked(const std::string& name) {
  return json::parse(read_file(in_sources("tests/vectors/worked/" + name + ".json")));
}

// The numbers of a nested list, and its shape as Python writes it.
std::vector<float> flat(const json& nested) {
  std::vector<float> values;
  for (const json& value : nested.flatten()) values.push_back(value.get<float>());
  return values;
}

std::string shape_of(const json& nested) {
  std::string shape = "(";
  for (const json* level = &nested; level->is_array(); level = &level->front()) {
    shape += std::to_string(level->size()) + ", ";
  }
  return shape + ")";
}

std::string sizes_of(const json& shape) {
  std::string text;
  for (const json& size : shape) text += (text.empty() ? "" : ",") + std::to_string(size.get<int>());
  return text;
}

void write_f32(const std::string& path, const std::string& shape, const std::vector<float>& values) {
  write_file(path, npy_bytes_of("<f4", shape, bytes_of(values)));
}

void expect_close(const std::vector<float>& values, const std::vector<float>& printed, double tolerance) {
  ASSERT_EQ(values.size(), printed.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], printed[i], tolerance) << i;
}

void expect_done(const ProgramRun& run) {
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out + run.err, "");
}

TEST(CliApply_Worked, ScaleAndShiftByHand) {
  const TemporaryFolder folder;
  const json example = worked("scale_and_shift_by_hand");
  write_f32(folder / "x.npy", "(3,)", flat(example["x"]));
  write_f32(folder / "w.npy", "(3,)", flat(example["gamma"]));
  write_f32(folder / "b.npy", "(3,)", flat(example["beta"]));
  expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--weight", folder / "w.npy", "--bias",
                           folder / "b.npy", "--rstd", folder / "rstd.npy"}));
  const std::string y = read_file(folder / "y.npy");
  EXPECT_THAT(y, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"));
  expect_close(elements_of<float>(y), {0.0991F, -1.0690F, 0.1682F}, 0.5e-4);
  expect_close(elements_of<float>(y), flat(example["printed"]["y"]), 0.5e-4);
  const std::string rstd = read_file(folder / "rstd.npy");
  EXPECT_THAT(rstd, HasSubstr("{'descr': '<f8', 'fortran_order': False, 'shape': (), }"));
  EXPECT_NEAR(1 / elements_of<double>(rstd)[0], example["printed"]["sigma"].get<double>(), 0.5e-4);
}

// (sequence, batch, embedding) over the last two axes, with the statistics of each position.
class CliApply_WorkedSequences : public ::testing::TestWithParam<const char*> {};

TEST_P(CliApply_WorkedSequences, AgreeToTheDigitsPrinted) {
  const TemporaryFolder folder;
  const json example = worked(GetParam()), printed = example["printed"];
  const double tolerance = printed.value("tolerance", 0.5e-4);
  write_f32(folder / "x.npy", shape_of(example["x"]), flat(example["x"]));
  expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--normalized-shape",
                           sizes_of(example["normalized_shape"]), "--mean", folder / "mean.npy", "--rstd",
                           folder / "rstd.npy"}));
  expect_close(elements_of<float>(read_file(folder / "y.npy")), flat(printed["normalised"]), tolerance);
  const auto mean = elements_of<double>(read_file(folder / "mean.npy"));
  const auto rstd = elements_of<double>(read_file(folder / "rstd.npy"));
  ASSERT_EQ(mean.size(), 2U);
  ASSERT_EQ(rstd.size(), 2U);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_NEAR(mean[r], printed["mean"][r].get<double>(), tolerance);
    EXPECT_NEAR(1 / rstd[r], printed["std_with_eps"][r].get<double>(), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, CliApply_WorkedSequences,
                         ::testing::Values("two_words_one_sentence", "sequence_of_batches"),
                         [](const auto& test) { return std::string(test.param); });

TEST(CliApply_Worked, ZerosOfAnImageGiveZeros) {
  const TemporaryFolder folder;
  write_f32(folder / "x.npy", "(2, 3, 2, 4)", std::vector<float>(48));
  expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--normalized-shape", "2,4"}));
  EXPECT_EQ(read_file(folder / "y.npy"), npy_bytes_of("<f4", "(2, 3, 2, 4)", std::string(192, '\0')));
}

class CliApply_Rows : public ::testing::Test {
 protected:
  static constexpr std::size_t kRows = 37, kCols = 129;

  CliApply_Rows() : x(kRows * kCols), weight(kCols), bias(kCols) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::ldexp((i * 2654435761U) % 65536, -13)) + 9;
    for (std::size_t i = 0; i < kCols; ++i) {
      weight[i] = 1 + static_cast<float>(i) / 256;
      bias[i] = static_cast<float>(i % 5) - 2;
    }
    write_f32(folder / "x.npy", "(37, 129)", x);
    write_f32(folder / "w.npy", "(129,)", weight);
    write_f32(folder / "b.npy", "(129,)", bias);
  }

  std::vector<float> apply(std::vector<std::string> options) {
    std::vector<std::string> arguments{"apply", folder / "x.npy", "-o", folder / "y.npy"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    expect_done(run_evenorm(arguments));
    return elements_of<float>(read_file(folder / "y.npy"));
  }

  TemporaryFolder folder;
  std::vector<float> x, weight, bias;
};

TEST_F(CliApply_Rows, GivesTheLibrarysBits) {
  std::vector<float> y(x.size());
  std::vector<double> mean(kRows), rstd(kRows);
  layer_norm<float>(x, y, kCols, {.weight = weight, .bias = bias, .eps = 1e-12, .mean = mean, .rstd = rstd});
  EXPECT_EQ(apply({"--weight", folder / "w.npy", "--bias", folder / "b.npy", "--eps", "1e-12", "--mean",
                   folder / "mean.npy", "--rstd", folder / "rstd.npy"}),
            y);
  EXPECT_EQ(elements_of<double>(read_file(folder / "mean.npy")), mean);
  EXPECT_EQ(elements_of<double>(read_file(folder / "rstd.npy")), rstd);
  layer_norm<float>(x, y, kCols);
  EXPECT_EQ(apply({}), y);
}

TEST_F(CliApply_Rows, GivesTheLibrarysBitsOfRmsNorm) {
  std::vector<float> y(x.size());
  rms_norm<float>(x, y, kCols, {.weight = weight, .zero_centered = true});
  EXPECT_EQ(apply({"--rms", "--zero-centered", "--weight", folder / "w.npy"}), y);
}

TEST_F(CliApply_Rows, ThreadsAndTargetsDoNotChangeBits) {
  const std::vector<float> y = apply({"--weight", folder / "w.npy"});
  for (const char* threads : {"0", "2", "7"}) EXPECT_EQ(apply({"--weight", folder / "w.npy", "--threads", threads}), y);
  for (const std::string& target : supported_targets()) {
    const auto run = run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--weight", folder / "w.npy"},
                                 {.environment = {"EVENORM_TARGET=" + target}});
    expect_done(run);
    EXPECT_EQ(elements_of<float>(read_file(folder / "y.npy")), y) << target;
  }
}

TEST_F(CliApply_Rows, ParametersNameTheNormalisedAxes) {
  write_f32(folder / "x.npy", "(37, 3, 43)", x);
  write_f32(folder / "w.npy", "(3, 43)", weight);
  write_f32(folder / "b.npy", "(3, 43)", bias);
  std::vector<float> y(x.size());
  layer_norm<float>(x, y, kCols, {.bias = bias});
  EXPECT_EQ(apply({"--bias", folder / "b.npy"}), y);
  layer_norm<float>(x, y, kCols, {.weight = weight});
  EXPECT_EQ(apply({"--weight", folder / "w.npy"}), y);
}

TEST_F(CliApply_Rows, TheResultCanReplaceTheInput) {
  const std::vector<float> y = apply({});
  expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "x.npy"}));
  EXPECT_EQ(elements_of<float>(read_file(folder / "x.npy")), y);
}

TEST(CliApply_Types, EachGivesItsOwn) {
  const TemporaryFolder folder;
  const auto apply = [&](const std::string& descr, const std::string& data) {
    write_file(folder / "x.npy", npy_bytes_of(descr, "(3,)", data));
    expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy"}));
    std::string y = read_file(folder / "y.npy");
    EXPECT_THAT(y, HasSubstr("'descr': '" + descr + "'"));
    return y;
  };
  // xhat = (-2/3, -8/3, 10/3) / sqrt(56/9 + 1e-5); f16's bits of it
  const double sigma = std::sqrt(56.0 / 9 + 1e-5);
  const auto y64 = elements_of<double>(apply("<f8", bytes_of<double>({4, 2, 8})));
  EXPECT_NEAR(y64[0], -2 / 3.0 / sigma, 1e-15);
  EXPECT_NEAR(y64[2], 10 / 3.0 / sigma, 1e-15);
  const auto y16 = elements_of<std::uint16_t>(apply("<f2", bytes_of<std::uint16_t>({0x4400, 0x4000, 0x4800})));
  EXPECT_EQ(y16, (std::vector<std::uint16_t>{0xb447, 0xbc47, 0x3d58}));
}

TEST(CliApply_Types, ParametersAreFreeOfTheInputs) {
  const TemporaryFolder folder;
  write_f32(folder / "x.npy", "(3,)", {4, 2, 8});
  write_file(folder / "w.npy", npy_bytes_of("<f8", "(3,)", bytes_of<double>({1.5, 1, 0.5})));
  write_file(folder / "b.npy", npy_bytes_of("<f2", "(3,)", bytes_of<std::uint16_t>({0x3800, 0, 0xb800})));
  expect_done(run_evenorm(
      {"apply", folder / "x.npy", "-o", folder / "y.npy", "--weight", folder / "w.npy", "--bias", folder / "b.npy"}));
  expect_close(elements_of<float>(read_file(folder / "y.npy")), {0.0991F, -1.0690F, 0.1682F}, 0.5e-4);
}

TEST(CliApply_Types, TheOutputsCanBeAnother) {
  const TemporaryFolder folder;
  const std::vector<float> x = {4, 2, 8};
  write_f32(folder / "x.npy", "(3,)", x);
  const auto apply = [&](const std::string& dtype) {
    expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--dtype", dtype}));
    return read_file(folder / "y.npy");
  };
  const std::int64_t shape[] = {3};
  std::vector<double> y64(3);
  run({.x = {x.data(), DType::f32, shape, {}}, .y = {y64.data(), DType::f64, shape, {}}, .normalized_shape = shape});
  EXPECT_EQ(apply("f64"), npy_bytes_of("<f8", "(3,)", bytes_of(y64)));
  EXPECT_EQ(apply("f32"), npy_bytes_of("<f4", "(3,)", bytes_of(elements_of<float>(apply("f32")))));
  EXPECT_EQ(apply("bf16"), npy_bytes_of("<V2", "(3,)", bytes_of<std::uint16_t>({0xbe89, 0xbf89, 0x3fab})));
  EXPECT_EQ(apply("f16"), npy_bytes_of("<f2", "(3,)", bytes_of<std::uint16_t>({0xb447, 0xbc47, 0x3d58})));
}

// (batch, channels, points): the channels of each point, and what --axes can look like.
TEST(CliApply_Axes, AreAnyOfThem) {
  const TemporaryFolder folder;
  const std::vector<float> x = {4, 40, 2, 20, 8, 80, 1, 7, 1, 8, 1, 9}, weight = {1.5F, 1, 0.5F};
  write_f32(folder / "x.npy", "(2, 3, 2)", x);
  write_f32(folder / "w.npy", "(3,)", weight);
  std::vector<float> expected(x.size());
  for (const std::size_t first : {0, 1, 6, 7}) {
    const std::vector<float> row = {x[first], x[first + 2], x[first + 4]};
    std::vector<float> y(3);
    layer_norm<float>(row, y, 3, {.weight = weight});
    for (std::size_t i = 0; i < 3; ++i) expected[first + 2 * i] = y[i];
  }
  for (const std::vector<std::string>& axes :
       {std::vector<std::string>{"--axes", "1"}, {"--axes", "-2"}, {"--axes=-2"}, {"--axes=1"}}) {
    std::vector<std::string> arguments{"apply",    folder / "x.npy", "-o",     folder / "y.npy",
                                       "--weight", folder / "w.npy", "--mean", folder / "mean.npy"};
    arguments.insert(arguments.end(), axes.begin(), axes.end());
    expect_done(run_evenorm(arguments));
    EXPECT_EQ(elements_of<float>(read_file(folder / "y.npy")), expected);
    EXPECT_THAT(read_file(folder / "mean.npy"), HasSubstr("'shape': (2, 2), }"));
  }
  std::vector<float> last_two(x.size());
  layer_norm<float>(x, last_two, 6);
  for (const char* axes : {"1,2", "-2,-1", "-1,1"}) {
    expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--axes", axes}));
    EXPECT_EQ(elements_of<float>(read_file(folder / "y.npy")), last_two);
  }
}

TEST(CliApply_Json, TellsWhatWasDone) {
  const TemporaryFolder folder;
  write_file(folder / "x.npy",
             npy_bytes("{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3, 4)}", std::string(96, '\0')));
  const ProgramRun run = run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--axes", "1,-1", "--rms",
                                      "--eps", "+0.25", "--dtype", "f64", "--rstd", "/dev/null", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1);
  json report = json::parse(run.out);
  EXPECT_GT(report["seconds"].get<double>(), 0);
  report.erase("seconds");
  const json expected = {{"input", folder / "x.npy"},
                         {"shape", {2, 3, 4}},
                         {"dtype", "f32"},
                         {"order", "Fortran"},
                         {"axes", {1, 2}},
                         {"normalized_shape", {3, 4}},
                         {"rows", 2},
                         {"kind", "rms"},
                         {"eps", 0.25},
                         {"zero_centered", false},
                         {"weight", false},
                         {"bias", false},
                         {"output_dtype", "f64"},
                         {"target", target()},
                         {"threads", 1},
                         {"pieces", 1},
                         {"outputs", {{"y", folder / "y.npy"}, {"rstd", "/dev/null"}}}};
  EXPECT_EQ(report, expected);
}

TEST(CliApply_Shapes, ZeroRowsAndOneColumn) {
  const TemporaryFolder folder;
  write_f32(folder / "x.npy", "(0, 5)", {});
  expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--mean", folder / "mean.npy"}));
  EXPECT_EQ(read_file(folder / "y.npy"), npy_bytes_of("<f4", "(0, 5)", ""));
  EXPECT_EQ(read_file(folder / "mean.npy"), npy_bytes_of("<f8", "(0,)", ""));
  write_f32(folder / "x.npy", "(2, 1)", {7, -3});
  expect_done(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy"}));
  EXPECT_EQ(elements_of<float>(read_file(folder / "y.npy")), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace evenorm
