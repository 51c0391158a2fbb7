// `evenorm explain`: the worked examples at their printed digits, evenorm's own bits, and what is said in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "evenorm/evenorm.hpp"
#include "support/explained.hpp"
#include "support/places.hpp"
#include "support/program.hpp"
#include "support/safetensors.hpp"

namespace evenorm {
namespace {

using nlohmann::json;
using testing::bytes_of;
using testing::elements_of;
using testing::expect_wrong_use;
using ::testing::HasSubstr;
using testing::in_sources;
using testing::json_of;
using ::testing::Not;
using testing::npy_bytes;
using testing::npy_bytes_of;
using testing::ProgramRun;
using testing::ProgramSetting;
using testing::read_file;
using testing::run_evenorm;
using testing::safetensors_bytes;
using testing::safetensors_entry;
using testing::step;
using testing::TemporaryFolder;
using testing::text_of;
using testing::write_file;

json worked(const std::string& name) {
  return json::parse(read_file(in_sources("tests/vectors/worked/" + name + ".json")));
}

std::vector<double> numbers(const json& nested) {
  if (!nested.is_array()) return {nested.get<double>()};
  std::vector<double> values;
  for (const json& value : nested.flatten()) values.push_back(value.get<double>());
  return values;
}

// `printed` to its last decimal: half a unit of it, and what the printed inputs leave open.
void expect_printed(const json& values, const json& printed, int decimals, double tolerance = 0) {
  const std::vector<double> have = numbers(values), want = numbers(printed);
  ASSERT_EQ(have.size(), want.size());
  const double allowed = std::max(tolerance, 0.5 * std::pow(10, -decimals));
  for (std::size_t i = 0; i < have.size(); ++i) EXPECT_NEAR(have[i], want[i], allowed) << i;
}

TEST(CliExplain_Worked, ScaleAndShiftByHand) {
  const json example = worked("scale_and_shift_by_hand"), printed = example["printed"];
  const json document = json_of(
      {example["x"].dump(), "--weight", example["gamma"].dump(), "--bias", example["beta"].dump(), "--round", "2"});
  ASSERT_EQ(document["rows"].size(), 1U);
  const json& row = document["rows"][0];
  expect_printed(row["y"], printed["y"], 4);
  expect_printed(step(row, "y")["exact"], printed["y"], 4);
  expect_printed(step(row, "sigma")["exact"], printed["sigma"], 4);
  expect_printed(step(row, "mean")["exact"], 4.6667, 4);
  expect_printed(step(row, "var")["exact"], 6.2222, 4);
  EXPECT_EQ(step(row, "y")["rounded"], printed["y_rounded"]);
  EXPECT_EQ(step(row, "mean")["rounded"], 4.67);
  EXPECT_EQ(step(row, "deviation")["rounded"], json({-0.67, -2.67, 3.33}));
  EXPECT_EQ(step(row, "var")["rounded"], 6.22);
  EXPECT_EQ(step(row, "sigma")["rounded"], 2.49);
  EXPECT_EQ(step(row, "xhat")["rounded"], json({-0.27, -1.07, 1.34}));
  EXPECT_EQ(step(row, "mean")["formulas"], json({"mean = (4 + 2 + 8) / 3 = 4.6667"}));
}

// All of the page, as a reader sees it. To change it on purpose: run the command and look at every line.
TEST(CliExplain_Worked, ScaleAndShiftByHandReadsAsRecorded) {
  EXPECT_EQ(text_of({"4 2 8", "--weight", "1.5 1 0.5", "--bias", "0.5 0 -0.5", "--round", "2"}),
            read_file(in_sources("tests/vectors/explain/scale_and_shift_by_hand.txt")));
}

TEST(CliExplain_Worked, TwoWordsOneSentence) {
  const json example = worked("two_words_one_sentence"), printed = example["printed"];
  const json document = json_of({example["x"].dump(), "--normalized-shape", "1,3"});
  EXPECT_EQ(document["shapes"], json({{"x", {2, 1, 3}}, {"rows", {2}}, {"normalized_shape", {1, 3}}}));
  ASSERT_EQ(document["rows"].size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const json& row = document["rows"][i];
    EXPECT_EQ(row["index"], json({i}));
    expect_printed(step(row, "mean")["exact"], printed["mean"][i], 4);
    expect_printed(step(row, "sigma")["exact"], printed["std_with_eps"][i], 4);
    expect_printed(step(row, "xhat")["exact"], printed["normalised"][i], 4);
    expect_printed(row["y"], printed["normalised"][i], 4);
  }
  const std::string text = text_of({"[[[0.2 0.1 0.3]] [[0.5 0.1 0.1]]]", "--normalized-shape", "1,3"});
  for (const char* line : {"\nrow [0]  (row 0 of 2, counted from 0)\n", "mean = (0.2 + 0.1 + 0.3) / 3 = 0.2000\n",
                           "sigma = sqrt(0.006667 + 0.00001) = 0.08171\n", "[[ 0.0000 -1.2238  1.2238]]\n",
                           "\nrow [1]  (row 1 of 2, counted from 0)\n", "mean = (0.5 + 0.1 + 0.1) / 3 = 0.2333\n",
                           "sigma = sqrt(0.03556 + 0.00001) = 0.1886\n", "[[ 1.4140 -0.7070 -0.7070]]\n",
                           "f32 holds 0.2 as 0.2000000029"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(CliExplain_Worked, SequenceOfBatches) {
  const json example = worked("sequence_of_batches"), printed = example["printed"];
  const double tolerance = printed["tolerance"].get<double>();
  const json document = json_of({example["x"].dump(), "--axes", "1,2", "--batch-axis", "1"});
  for (std::size_t i = 0; i < 2; ++i) {
    const json& row = document["rows"][i];
    expect_printed(step(row, "mean")["exact"], printed["mean"][i], 4, 1e-4);
    expect_printed(step(row, "sigma")["exact"], printed["std_with_eps"][i], 4, 1e-4);
    expect_printed(step(row, "xhat")["exact"], printed["normalised"][i], 4, tolerance);
    expect_printed(row["y"], printed["normalised"][i], 4, tolerance);
    EXPECT_NEAR(row["check"]["mean"].get<double>(), 0, 1e-7);
    EXPECT_NEAR(row["check"]["var"].get<double>(), row["check"]["expected"].get<double>(), 1e-6);
    EXPECT_LT(row["check"]["expected"], 1);
  }
  EXPECT_THAT(document["warnings"][0].get<std::string>(),
              HasSubstr("Here 3 samples are mixed. Over axis 2 (--axes 2)"));
}

TEST(CliExplain_Worked, ZerosGiveBetaExactly) {
  const TemporaryFolder folder;
  write_file(folder / "x.npy", npy_bytes_of("<f4", "(2, 3, 2, 4)", bytes_of(std::vector<float>(48))));
  const std::vector<float> beta{1, -2, 3, 4, 5, 6, 7, 0.1F};
  write_file(folder / "b.npy", npy_bytes_of("<f4", "(2, 4)", bytes_of(beta)));
  const json document = json_of({folder / "x.npy", "--bias", folder / "b.npy", "--rows", "all"});
  ASSERT_EQ(document["rows"].size(), 6U);
  for (const json& row : document["rows"]) {
    EXPECT_EQ(row["y"], document["bias"]);
    EXPECT_EQ(row["largest_difference"], 0);
    EXPECT_THAT(row["notes"][0].get<std::string>(), HasSubstr("the result is exactly beta, whatever eps and gamma"));
  }
  EXPECT_EQ(document["rows"][4]["index"], json({1, 1}));
}

// The row that is shown is the row of `evenorm apply`, bit for bit.
TEST(CliExplain, ResultIsThatOfApply) {
  const TemporaryFolder folder;
  std::vector<float> x(6 * 50), w(50), b(50);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7919) % 1013) / 31.0F + 100;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 7) / 3.0F - 1;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) / 7.0F;
  write_file(folder / "x.npy", npy_bytes_of("<f4", "(2, 3, 50)", bytes_of(x)));
  write_file(folder / "w.npy", npy_bytes_of("<f4", "(50,)", bytes_of(w)));
  write_file(folder / "b.npy", npy_bytes_of("<f4", "(50,)", bytes_of(b)));
  for (const bool rms : {false, true}) {
    std::vector<std::string> options{"--weight", folder / "w.npy", "--bias", folder / "b.npy", "--zero-centered"};
    if (rms) options.emplace_back("--rms");
    std::vector<std::string> apply{"apply", folder / "x.npy", "-o", folder / "y.npy", "--rstd", folder / "r.npy"};
    apply.insert(apply.end(), options.begin(), options.end());
    ASSERT_EQ(run_evenorm(apply).status, 0);
    const std::vector<float> y = elements_of<float>(read_file(folder / "y.npy"));
    const std::vector<double> rstd = elements_of<double>(read_file(folder / "r.npy"));
    options.insert(options.begin(), {folder / "x.npy", "--rows", "4,1"});
    const json document = json_of(options);
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t r = i == 0 ? 4 : 1;
      const json& row = document["rows"][i];
      EXPECT_EQ(row["row"], r);
      EXPECT_EQ(row["rstd"].get<double>(), rstd[r]);
      for (std::size_t c = 0; c < 50; ++c) EXPECT_EQ(row["y"][c].get<float>(), y[r * 50 + c]);
      const double exact = 1 / step(row, "sigma")["exact"].get<double>();
      EXPECT_NEAR(exact / rstd[r], 1, 2 * 0x1p-24);  // the contract
      EXPECT_EQ(row["steps"].size(), rms ? 5U : 7U);
      const double check = row["check"][rms ? "mean_square" : "var"].get<double>();  // before scale and shift
      EXPECT_NEAR(check, row["check"]["expected"].get<double>(), 1e-6);
    }
  }
}

TEST(CliExplain, AxesTakeAnyPlaceInTheShape) {
  const json document = json_of({"[[[1 2] [3 4]] [[5 6] [7 9]]]", "--axes", "-3,1"});
  EXPECT_EQ(document["axes"], json({0, 1}));
  EXPECT_EQ(document["shapes"]["rows"], json({2}));
  EXPECT_EQ(document["rows"][1]["x"], json({{2, 4}, {6, 9}}));
  EXPECT_EQ(step(document["rows"][1], "mean")["exact"], 5.25);
  const json middle = json_of({"[[[1 2] [3 4]] [[5 6] [7 9]]]", "--axes", "1", "--rows", "3"});
  EXPECT_EQ(middle["rows"][0]["index"], json({1, 1}));
  EXPECT_EQ(middle["rows"][0]["x"], json({6, 9}));
}

// Rows of a file are read as they lie in it, and nothing else of it.
TEST(CliExplain, RowsOfAFileInAnyOrder) {
  const TemporaryFolder folder;
  const std::vector<double> columns_first = {1, 5, 2, 6, 3, 7, 4, 9};
  write_file(folder / "f.npy",
             npy_bytes("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 4), }", bytes_of(columns_first)));
  EXPECT_EQ(json_of({folder / "f.npy", "--rows", "1"})["rows"][0]["x"], json({5, 6, 7, 9}));
  EXPECT_EQ(json_of({folder / "f.npy", "--rows", "2", "--axes", "0"})["rows"][0]["x"], json({3, 7}));
  std::string swapped = bytes_of(columns_first);
  for (std::size_t i = 0; i < swapped.size(); i += 8) std::reverse(&swapped[i], &swapped[i] + 8);
  write_file(folder / "b.npy", npy_bytes("{'descr': '>f8', 'fortran_order': False, 'shape': (4, 2), }", swapped));
  EXPECT_EQ(json_of({folder / "b.npy", "--rows", "3"})["rows"][0]["x"], json({4, 9}));
}

TEST(CliExplain, LargeFilesAreNotReadWhole) {
  const TemporaryFolder folder;
  const std::string header = npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (2097152, 1024), }", "");
  write_file(folder / "x.npy", header);
  std::filesystem::resize_file(folder / "x.npy", header.size() + (std::uintmax_t{8} << 30U));
  ProgramSetting setting;
  setting.memory = std::size_t{64} << 20U;
  const ProgramRun run = run_evenorm({"explain", folder / "x.npy", "--rows", "2097151", "--json"}, setting);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["rows"][0]["row"], 2097151);
}

TEST(CliExplain, ParametersOfAModel) {
  const TemporaryFolder folder;
  const std::vector<float> weight = {1.5F, 1, 0.5F}, bias = {0.5F, 0, -0.5F};
  const std::string header = "{" + safetensors_entry("a.norm.weight", "F32", "3", 0, 12) + "," +
                             safetensors_entry("a.norm.bias", "F32", "3", 12, 24) + "}";
  write_file(folder / "m.safetensors", safetensors_bytes(header, bytes_of(weight) + bytes_of(bias)));
  const json named = json_of({"4 2 8", "--params", folder / "m.safetensors", "--name", "a.norm"});
  const json typed = json_of({"4 2 8", "--weight", "1.5 1 0.5", "--bias", "0.5 0 -0.5"});
  EXPECT_EQ(named["rows"], typed["rows"]);
}

TEST(CliExplain, RmsTakesNoMeanOff) {
  const json row = json_of({"4 2 8", "--rms"})["rows"][0];
  EXPECT_EQ(step(row, "mean_square")["exact"], 28);
  EXPECT_NEAR(step(row, "rms")["exact"].get<double>(), std::sqrt(28), 1e-15);
  EXPECT_FALSE(row.contains("mean"));
  const std::string text = text_of({"4 2 8", "--rms"});
  EXPECT_THAT(text, HasSubstr("mean_square = (4^2 + 2^2 + 8^2) / 3 = (16 + 4 + 64) / 3 = 84 / 3 = 28\n"));
  EXPECT_THAT(text, HasSubstr("y[0] = 1 * 0.7559 = 0.7559\n"));
  EXPECT_THAT(text, Not(HasSubstr("beta")));
  EXPECT_THAT(text_of({"4 2 8", "--rms", "--bias", "1 2 3"}), HasSubstr("y[0] = 1 * 0.7559 + 1 = 1.7559\n"));
}

TEST(CliExplain, ExactStepsAndRoundedResultDifferByTheType) {
  for (const auto& [dtype, u] : {std::pair{"f64", 0x1p-53}, {"f32", 0x1p-24}, {"bf16", 0x1p-9}, {"f16", 0x1p-11}}) {
    const json document = json_of({"4 2 8", "--dtype", dtype});
    EXPECT_EQ(document["dtype"], dtype);
    const double difference = document["rows"][0]["largest_difference"].get<double>();
    EXPECT_GT(difference, 0) << dtype;
    EXPECT_LE(difference, 4 * u * 1.34) << dtype;
    EXPECT_DOUBLE_EQ(step(document["rows"][0], "xhat")["exact"][1].get<double>(),
                     -8.0 / 3 / std::sqrt(56.0 / 9 + 1e-5));
  }
  EXPECT_THAT(text_of({"4 2 8", "--dtype", "bf16"}), HasSubstr("[-0.2676 -1.0703  1.3359]\n"));
}

TEST(CliExplain, NegativeNumbersMayComeFirst) {
  EXPECT_EQ(json_of({"-1 2 3"})["rows"][0]["x"], json({-1, 2, 3}));
  EXPECT_EQ(json_of({"[-.5 1]", "--weight", "-.5 1", "--bias", "-1 -1"})["bias"], json({-1, -1}));
}

TEST(CliExplain, BatchAxisIsJudged) {
  const std::string mixed = text_of({"[[1 2] [3 5]]", "--axes", "0", "--batch-axis", "0"});
  EXPECT_THAT(mixed, HasSubstr("WARNING: Axis 0, the batch, is among the normalised axis 0"));
  EXPECT_THAT(mixed, HasSubstr("Over axis 1 (--axes 1)"));
  const json good = json_of({"[[1 2] [3 5]]", "--batch-axis", "-2"});
  EXPECT_EQ(good["warnings"], json::array());
  EXPECT_THAT(good["notes"][0].get<std::string>(), HasSubstr("every sample is on its own"));
  EXPECT_THAT(text_of({"4 2 8", "--batch-axis", "0"}), HasSubstr("x has no other axis"));
}

TEST(CliExplain, SpecialRowsAreTold) {
  const auto note = [](const std::vector<std::string>& arguments) {
    const json notes = json_of(arguments)["rows"][0]["notes"];
    return notes.empty() ? std::string() : notes[0].get<std::string>();
  };
  EXPECT_EQ(note({"4 2 8"}), "");
  EXPECT_THAT(note({"3 3 3"}), HasSubstr("exactly 0 (beta is 0), whatever eps"));
  EXPECT_THAT(note({"3 3 3", "--eps", "0"}), HasSubstr("0 / 0 is taken as 0 by definition"));
  EXPECT_THAT(note({"7", "--bias", "2"}), HasSubstr("A row of one number is its own mean"));
  EXPECT_THAT(note({"0 0", "--rms"}), HasSubstr("All numbers of this row are 0"));
  EXPECT_THAT(note({"1 nan 3 -inf"}), HasSubstr("holds nan (number 2), -inf (number 4), which are not finite"));
  EXPECT_THAT(note({"0.001 0.002 0.003"}),
              HasSubstr("eps dominates here (eps = 0.00001 against a variance of 6.67e-07)"));
  EXPECT_THAT(note({"0.01 0.02 0.03"}), HasSubstr("eps is felt here"));
  EXPECT_THAT(note({"1 2", "--dtype", "f16", "--weight", "6e4 6e4", "--bias", "6e4 6e4"}), HasSubstr("is beyond f16"));
  EXPECT_THAT(note({"1.79769e308 1", "--dtype", "f64"}), HasSubstr("The squares are beyond f64"));
  EXPECT_THAT(note({"1e-310 2e-310", "--dtype", "f64", "--eps", "0"}), HasSubstr("The squares are below f64's range"));
  EXPECT_THAT(note({"1e-200 2e-200", "--dtype", "f64", "--rms"}), HasSubstr("a mean square of less than 2.3e-308)"));
  EXPECT_THAT(text_of({"1 2", "--eps", "1e-310"}), Not(HasSubstr("under 1 because eps")));
  EXPECT_THAT(text_of({"0.001 0.002"}), HasSubstr("That is under 1 because eps"));
  EXPECT_THAT(text_of({"0.1 0.101", "--round", "2"}), HasSubstr("Note: Rounded to 2 decimals sigma is 0"));
}

TEST(CliExplain, NotFiniteNumbersAreStringsInJson) {
  const json document = json_of({"[1 inf nan -inf] [1 2 3 4]"});
  EXPECT_EQ(document["rows"][0]["x"], json({1, "Infinity", "NaN", "-Infinity"}));
  EXPECT_EQ(document["rows"][0]["y"], json({"NaN", "NaN", "NaN", "NaN"}));
  EXPECT_EQ(step(document["rows"][0], "mean")["exact"], "NaN");
  EXPECT_TRUE(document["rows"][1]["y"][0].is_number());
  EXPECT_THAT(text_of({"1 nan"}), Not(HasSubstr("-nan")));
}

TEST(CliExplain, LongRowsAreAbbreviatedAndPagesNarrow) {
  const TemporaryFolder folder;
  std::vector<float> x(7 * 768);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7919) % 1013) / 31.0F - 1e6F;
  write_file(folder / "x.npy", npy_bytes_of("<f4", "(7, 768)", bytes_of(x)));
  const std::vector<std::vector<std::string>> calls = {{folder / "x.npy", "--round", "3", "--batch-axis", "0"},
                                                       {folder / "x.npy", "--axes", "0,1", "--decimals", "9"},
                                                       {folder / "x.npy", "--rms", "--decimals", "0"},
                                                       {"--slips"},
                                                       {"1e-30 1e30 nan", "--decimals", "9", "--round", "9"}};
  for (const auto& call : calls) {
    const std::string text = text_of(call);
    EXPECT_EQ(text.find(" \n"), std::string::npos) << call[0];
    for (std::size_t start = 0, end = 0; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
      EXPECT_LE(end - start, 100U) << text.substr(start, end - start);
    }
  }
  const std::string text = text_of(calls[0]);
  EXPECT_THAT(text, HasSubstr("Shown: 2 rows of 7"));
  EXPECT_THAT(text, HasSubstr(" + ... - "));
  EXPECT_THAT(text, HasSubstr("xhat[767] = "));
}

TEST(CliExplain, WrongUseIsOneLineThatSaysWhere) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{}, "X is not given: numbers, e.g. \"4 2 8\", or a .npy file"},
      {{""}, "X: is empty"},
      {{"4 x"}, "x, character 3: 'x' is not a number"},
      {{"4 2 8", "--weight", "1 2 b"}, "weight, character 5: 'b' is not a number"},
      {{"[[1 2] [3]]"}, "x is ragged: [0] holds 2 numbers, but [1] holds 1 number"},
      {{"no/such.npy"}, "no/such.npy: cannot be read"},
      {{"1e39"}, "x has 1e+39, which is beyond f32 (--dtype chooses another type)"},
      {{"4 2 8", "--weight", "1 2"}, "weight has shape (2), but x has shape (3), which should end in it"},
      {{"4 2 8", "--bias", "1 2", "--normalized-shape", "3"},
       "bias has shape (2), but the axes normalised have shape (3)"},
      {{"4 2 8", "--normalized-shape", "x"}, "--normalized-shape is 'x', but should be sizes with commas"},
      {{"4 2 8", "--axes", "1"}, "--axes names axis 1, but x has shape (3)"},
      {{"[4 2 8] [1 2 3]", "--axes", "1,-1"}, "--axes is '1,-1', but should name axis 1 once"},
      {{"4 2 8", "--axes", "0", "--normalized-shape", "3"}, "excludes"},
      {{"4 2 8", "--rows", "1"}, "--rows has 1, but the rows of x are 0 to 0"},
      {{"4 2 8", "--rows", "0;1"}, "--rows is '0;1', but should be numbers with commas between"},
      {{"4 2 8", "--batch-axis", "3"}, "--batch-axis has 3, but x has shape (3)"},
      {{"4 2 8", "--eps", "-1"}, "eps is -1, but it should be finite and at least 0"},
      {{"4 2 8", "--eps", "one"}, "--eps is 'one', but should be a finite number >= 0"},
      {{"4 2 8", "--dtype", "f8"}, "f8 not in {f64,f32,bf16,f16}"},
      {{"4 2 8", "--decimals", "16"}, "--decimals is '16', but should be a number from 0 to 15"},
      {{"4 2 8", "--round", "-1"}, "--round is '-1', but should be a number from 0 to 15"},
      {{"4 2 8", "--zero-centered"}, "weight is absent, but zero_centered needs one"},
      {{"--slips", "4 2 8"}, "--slips shows examples of its own and takes no X"},
      {{"--rms", "--slips"}, "--slips shows examples of its own and takes no --rms"},
  };
  for (const auto& [arguments, message] : cases) expect_wrong_use(arguments, message);
}

TEST(CliExplain, EmptyFilesAreRefused) {
  const TemporaryFolder folder;
  write_file(folder / "rows.npy", npy_bytes_of("<f4", "(0, 3)", ""));
  write_file(folder / "cols.npy", npy_bytes_of("<f4", "(3, 0)", ""));
  write_file(folder / "scalar.npy", npy_bytes_of("<f4", "()", std::string(4, '\0')));
  EXPECT_THAT(run_evenorm({"explain", folder / "rows.npy"}).err, HasSubstr("x has no rows to explain"));
  EXPECT_THAT(run_evenorm({"explain", folder / "cols.npy"}).err,
              HasSubstr("normalized_shape is (0), but it should have at least one element"));
  EXPECT_THAT(run_evenorm({"explain", folder / "scalar.npy"}).err, HasSubstr("should have an axis to normalise"));
}

TEST(CliExplain, HelpHasExamplesThatRun) {
  const std::string help = run_evenorm({"explain", "--help"}).out;
  for (const char* example : {"evenorm explain \"4 2 8\" --weight \"1.5 1 0.5\" --bias \"0.5 0 -0.5\"",
                              "--normalized-shape 1,3 --batch-axis 1", "evenorm explain --slips"}) {
    EXPECT_THAT(help, HasSubstr(example));
  }
}

}  // namespace
}  // namespace evenorm
