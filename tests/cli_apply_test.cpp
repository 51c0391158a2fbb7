// `evenorm apply`: the worked examples and the options. contracts_one_table_test.cpp checks equal bits for every type,
// target and number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "evenorm/evenorm.hpp"
#include "support/program.hpp"
#include "support/worked.hpp"

namespace evenorm::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

using Floats = std::vector<float>;

// The numbers of a nested list, and its shape as Python writes it.
Floats flat(const json& nested) {
  Floats values;
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

void expect_close(const Floats& values, const Floats& printed, double tolerance) {
  ASSERT_EQ(values.size(), printed.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], printed[i], tolerance) << i;
}

class CliApply : public ::testing::Test {
 protected:
  // Returns y.npy for x.npy.
  std::string apply(const Words& options = {}) const {
    expect_done(Words{"apply", folder / "x.npy", "-o", folder / "y.npy"} + options);
    return read_file(folder / "y.npy");
  }
  Floats floats(const Words& options = {}) const { return elements_of<float>(apply(options)); }

  TemporaryFolder folder;
};

TEST_F(CliApply, ReproducesTheVectorScaledAndShiftedByHand) {
  const json example = worked("scale_and_shift_by_hand");
  write_f32(folder / "x.npy", "(3,)", flat(example["x"]));
  write_f32(folder / "w.npy", "(3,)", flat(example["gamma"]));
  write_f32(folder / "b.npy", "(3,)", flat(example["beta"]));
  const std::string y = apply({"--weight", folder / "w.npy", "--bias", folder / "b.npy", "--rstd", folder / "r.npy"});
  EXPECT_THAT(y, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"));
  expect_close(elements_of<float>(y), {0.0991F, -1.0690F, 0.1682F}, 0.5e-4);
  expect_close(elements_of<float>(y), flat(example["printed"]["y"]), 0.5e-4);
  const std::string rstd = read_file(folder / "r.npy");
  EXPECT_THAT(rstd, HasSubstr("{'descr': '<f8', 'fortran_order': False, 'shape': (), }"));
  EXPECT_NEAR(1 / elements_of<double>(rstd)[0], example["printed"]["sigma"].get<double>(), 0.5e-4);
}

// (sequence, batch, embedding) over the last two axes, with the statistics of each position.
TEST_F(CliApply, SequencesAgreeToThePrintedDigits) {
  for (const char* name : {"two_words_one_sentence", "sequence_of_batches"}) {
    const json example = worked(name), printed = example["printed"];
    const double tolerance = printed.value("tolerance", 0.5e-4);
    write_f32(folder / "x.npy", shape_of(example["x"]), flat(example["x"]));
    const Floats y = floats({"--normalized-shape", sizes_of(example["normalized_shape"]), "--mean", folder / "mean.npy",
                             "--rstd", folder / "rstd.npy"});
    expect_close(y, flat(printed["normalised"]), tolerance);
    const auto mean = elements_of<double>(read_file(folder / "mean.npy"));
    const auto rstd = elements_of<double>(read_file(folder / "rstd.npy"));
    ASSERT_EQ(mean.size(), 2U);
    ASSERT_EQ(rstd.size(), 2U);
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_NEAR(mean[r], printed["mean"][r].get<double>(), tolerance);
      EXPECT_NEAR(1 / rstd[r], printed["std_with_eps"][r].get<double>(), tolerance);
    }
  }
}

TEST_F(CliApply, ZerosOfAnImageGiveZeros) {
  write_f32(folder / "x.npy", "(2, 3, 2, 4)", Floats(48));
  EXPECT_EQ(apply({"--normalized-shape", "2,4"}), npy_bytes_of("<f4", "(2, 3, 2, 4)", std::string(192, '\0')));
}

TEST_F(CliApply, ParametersSelectTheNormalisedAxesAndMayHaveOtherTypes) {
  const Floats x = {4, 2, 8, 1, 0, 5, -7, 3, 3, 2, 9, 1}, weight = {1, 2, 3, 4, 5, 6};
  write_f32(folder / "x.npy", "(2, 2, 3)", x);
  write_file(folder / "w.npy", npy_bytes_of("<f8", "(2, 3)", bytes_of<double>({1, 2, 3, 4, 5, 6})));
  write_file(folder / "b.npy", npy_bytes_of("<f2", "(3,)", bytes_of<std::uint16_t>({0x3c00, 0x4000, 0x4200})));
  Floats y(12);
  layer_norm<float>(x, y, 6, {.weight = weight});
  expect_close(floats({"--weight", folder / "w.npy"}), y, 1e-6);
  const Floats bias = {1, 2, 3};
  layer_norm<float>(x, y, 3, {.bias = bias});
  EXPECT_EQ(floats({"--bias", folder / "b.npy"}), y);
}

TEST_F(CliApply, TheOutputMayHaveAnotherType) {
  const Floats x = {4, 2, 8};
  write_f32(folder / "x.npy", "(3,)", x);
  const std::int64_t shape[] = {3};
  std::vector<double> y64(3);
  run({.x = {x.data(), DType::f32, shape, {}}, .y = {y64.data(), DType::f64, shape, {}}, .normalized_shape = shape});
  EXPECT_EQ(apply({"--dtype", "f64"}), npy_bytes_of("<f8", "(3,)", bytes_of(y64)));
  EXPECT_EQ(apply({"--dtype", "f32"}), apply());
  EXPECT_EQ(apply({"--dtype", "bf16"}), npy_bytes_of("<V2", "(3,)", bytes_of<std::uint16_t>({0xbe89, 0xbf89, 0x3fab})));
  EXPECT_EQ(apply({"--dtype", "f16"}), npy_bytes_of("<f2", "(3,)", bytes_of<std::uint16_t>({0xb447, 0xbc47, 0x3d58})));
}

// (batch, channels, points): normalises the channels of each point, with every spelling of --axes.
TEST_F(CliApply, NormalisesAnyAxes) {
  const Floats x = {4, 40, 2, 20, 8, 80, 1, 7, 1, 8, 1, 9}, weight = {1.5F, 1, 0.5F};
  write_f32(folder / "x.npy", "(2, 3, 2)", x);
  write_f32(folder / "w.npy", "(3,)", weight);
  Floats expected(x.size()), last_two(x.size());
  for (const std::size_t first : {0, 1, 6, 7}) {
    const Floats row = {x[first], x[first + 2], x[first + 4]};
    Floats y(3);
    layer_norm<float>(row, y, 3, {.weight = weight});
    for (std::size_t i = 0; i < 3; ++i) expected[first + 2 * i] = y[i];
  }
  for (const Words& axes : {Words{"--axes", "1"}, {"--axes", "-2"}, {"--axes=-2"}, {"--axes=1"}}) {
    EXPECT_EQ(floats(axes + Words{"--weight", folder / "w.npy", "--mean", folder / "mean.npy"}), expected);
    EXPECT_THAT(read_file(folder / "mean.npy"), HasSubstr("'shape': (2, 2), }"));
  }
  layer_norm<float>(x, last_two, 6);
  for (const char* axes : {"1,2", "-2,-1", "-1,1"}) EXPECT_EQ(floats({"--axes", axes}), last_two);
}

// (batch, channels, points): the channels are normalised in pairs.
TEST_F(CliApply, NormalisesGroupsOfChannels) {
  const Floats x = {4, 40, 2, 20, 8, 80, 1, 7, 1, 8, 1, 9, 3, 5, 2, 6}, weight = {1.5F, 1, 0.5F, 2};
  write_f32(folder / "x.npy", "(2, 4, 2)", x);
  write_f32(folder / "w.npy", "(4,)", weight);
  Floats expected(x.size());
  for (const std::size_t first : {0, 4, 8, 12}) {
    Floats of_row;
    for (std::size_t i = 0; i < 4; ++i) of_row.push_back(weight[first / 2 % 4 + i / 2]);
    const std::span<const float> row(&x[first], 4);
    layer_norm<float>(row, std::span(&expected[first], 4), 4, {.weight = of_row, .bias = of_row});
  }
  const Words options{"--groups", "2", "--weight", folder / "w.npy", "--bias", folder / "w.npy"};
  EXPECT_EQ(floats(options + Words{"--mean", folder / "mean.npy"}), expected);
  EXPECT_THAT(read_file(folder / "mean.npy"), HasSubstr("'shape': (2, 2), }"));
  write_f32(folder / "w.npy", "(1, 4, 1)", weight);
  EXPECT_EQ(floats(options), expected);
  const json report =
      json::parse(run_evenorm(Words{"apply", folder / "x.npy", "-o", "/dev/null", "--json"} + options).out);
  EXPECT_EQ(report["groups"], 2);
  EXPECT_EQ(report["shape"], json({2, 4, 2}));
  EXPECT_EQ(report["axes"], json({1, 2}));
  EXPECT_EQ(report["normalized_shape"], json({2, 2}));
  EXPECT_EQ(report["rows"], 4);
}

// (batch, points, channels): one scale for each channel of each sample.
TEST_F(CliApply, AWeightMayVaryFromSampleToSample) {
  const Floats x = {4, 2, 8, 1, 7, 3, 0, 5, 9, 2, 2, 1}, weight = {1, 2, 3, 4, 5, 6};
  write_f32(folder / "x.npy", "(2, 2, 3)", x);
  write_f32(folder / "w.npy", "(2, 1, 3)", weight);
  Floats expected(x.size());
  for (const std::size_t sample : {0, 1}) {
    layer_norm<float>(std::span<const float>(&x[6 * sample], 6), std::span(&expected[6 * sample], 6), 3,
                      {.weight = std::span<const float>(&weight[3 * sample], 3)});
  }
  EXPECT_EQ(floats({"--axes", "-1", "--weight", folder / "w.npy"}), expected);
}

TEST_F(CliApply, JsonReportsWhatWasDone) {
  write_file(folder / "x.npy",
             npy_bytes("{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3, 4)}", std::string(96, '\0')));
  const auto run = run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy", "--axes", "1,-1", "--rms", "--eps",
                                "+0.25", "--dtype", "f64", "--rstd", "/dev/null", "--json"});
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

TEST_F(CliApply, AcceptsZeroRowsAndOneColumn) {
  write_f32(folder / "x.npy", "(0, 5)", {});
  EXPECT_EQ(apply({"--mean", folder / "mean.npy"}), npy_bytes_of("<f4", "(0, 5)", ""));
  EXPECT_EQ(read_file(folder / "mean.npy"), npy_bytes_of("<f8", "(0,)", ""));
  write_f32(folder / "x.npy", "(0, 4, 3)", {});
  EXPECT_EQ(apply({"--groups", "2"}), npy_bytes_of("<f4", "(0, 4, 3)", ""));
  write_f32(folder / "x.npy", "(2, 1)", {7, -3});
  EXPECT_EQ(floats(), (Floats{0, 0}));
  EXPECT_EQ(floats({"--groups", "1"}), (Floats{0, 0}));
}

}  // namespace
}  // namespace evenorm::testing
