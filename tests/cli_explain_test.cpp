// `evenorm explain`: the worked examples to their printed digits, evenorm's own bits, and the explanations.
#include <cmath>

#include "evenorm/evenorm.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

constexpr double kLast4 = 0.5e-4;  // half a unit of the fourth decimal

TEST(CliExplain_Worked, ReproducesScaleAndShiftByHand) {
  const json example = worked("scale_and_shift_by_hand"), printed = example["printed"];
  const json row = json_of({example["x"].dump(), "--weight", example["gamma"].dump(), "--bias", example["beta"].dump(),
                            "--round", "2"})["rows"][0];
  expect_near(row["y"], printed["y"], kLast4);
  expect_near(step(row, "y")["exact"], printed["y"], kLast4);
  expect_near(step(row, "sigma")["exact"], printed["sigma"], kLast4);
  EXPECT_EQ(step(row, "y")["rounded"], printed["y_rounded"]);
  EXPECT_EQ(step(row, "xhat")["rounded"], json({-0.27, -1.07, 1.34}));
  EXPECT_EQ(step(row, "mean")["formulas"], json({"mean = (4 + 2 + 8) / 3 = 4.6667"}));
}

// Compares the whole page with the recorded one. To change the record, run the command and review every line.
TEST(CliExplain_Worked, PrintsTheRecordedPage) {
  EXPECT_EQ(text_of({"4 2 8", "--weight", "1.5 1 0.5", "--bias", "0.5 0 -0.5", "--round", "2"}),
            read_file(in_sources("tests/vectors/explain/scale_and_shift_by_hand.txt")));
}

// Expects the digits of a worked example of two rows.
json expect_printed(const char* name, const Words& axes) {
  const json example = worked(name), printed = example["printed"];
  const double tolerance = printed.value("tolerance", kLast4), of_moments = std::min(tolerance, 2 * kLast4);
  const json document = json_of(Words{example["x"].dump()} + axes);
  EXPECT_EQ(document["rows"].size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const json& row = document["rows"][i];
    EXPECT_EQ(row["index"], json({i}));
    expect_near(step(row, "mean")["exact"], printed["mean"][i], of_moments);
    expect_near(step(row, "sigma")["exact"], printed["std_with_eps"][i], of_moments);
    expect_near(step(row, "xhat")["exact"], printed["normalised"][i], tolerance);
    expect_near(row["y"], printed["normalised"][i], tolerance);
    EXPECT_NEAR(row["check"]["mean"].get<double>(), 0, 1e-7);
    expect_near(row["check"]["var"], row["check"]["expected"], 1e-6);
    EXPECT_LT(row["check"]["expected"], 1);
  }
  return document;
}

TEST(CliExplain_Worked, ReproducesTwoWordsOneSentence) {
  const json document = expect_printed("two_words_one_sentence", {"--normalized-shape", "1,3"});
  EXPECT_EQ(document["shapes"], json({{"x", {2, 1, 3}}, {"rows", {2}}, {"normalized_shape", {1, 3}}}));
  const std::string text = text_of({"[[[0.2 0.1 0.3]] [[0.5 0.1 0.1]]]", "--normalized-shape", "1,3"});
  for (const char* line : {"\nrow [0]  (row 0 of 2, counted from 0)\n", "mean = (0.2 + 0.1 + 0.3) / 3 = 0.2000\n",
                           "sigma = sqrt(0.006667 + 0.00001) = 0.08171\n", "[[ 0.0000 -1.2238  1.2238]]\n",
                           "\nrow [1]  (row 1 of 2, counted from 0)\n", "mean = (0.5 + 0.1 + 0.1) / 3 = 0.2333\n",
                           "sigma = sqrt(0.03556 + 0.00001) = 0.1886\n", "[[ 1.4140 -0.7070 -0.7070]]\n",
                           "f32 holds 0.2 as 0.2000000029"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(CliExplain_Worked, ReproducesTheSequenceOfBatches) {
  const json document = expect_printed("sequence_of_batches", {"--axes", "1,2", "--batch-axis", "1"});
  EXPECT_THAT(document["warnings"][0].get<std::string>(),
              HasSubstr("Here 3 samples are mixed. Over axis 2 (--axes 2)"));
}

TEST(CliExplain_Worked, ZerosGiveBetaExactly) {
  const TemporaryFolder folder;
  write_f32(folder / "x.npy", "(2, 3, 2, 4)", Floats(48));
  write_f32(folder / "b.npy", "(2, 4)", {1, -2, 3, 4, 5, 6, 7, 0.1F});
  const json document = json_of({folder / "x.npy", "--bias", folder / "b.npy", "--rows", "all"});
  ASSERT_EQ(document["rows"].size(), 6U);
  for (const json& row : document["rows"]) {
    EXPECT_EQ(row["y"], document["bias"]);
    EXPECT_EQ(row["largest_difference"], 0);
    EXPECT_THAT(row["notes"][0].get<std::string>(), HasSubstr("the result is exactly beta, whatever eps and gamma"));
  }
  EXPECT_EQ(document["rows"][4]["index"], json({1, 1}));
}

// For layer and RMS norm, groups of channels, and samples with a scale each, in both orders of the file.
TEST(CliExplain, RowsEqualThoseOfApply) {
  const TemporaryFolder folder;
  const Floats x = some(240, 1);
  Floats in_fortran_order(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) in_fortran_order[i / 120 + i / 30 % 4 * 2 + i % 30 * 8] = x[i];
  write_f32(folder / "x.npy", "(2, 4, 30)", x);
  write_f32(folder / "f.npy", "(2, 4, 30)", in_fortran_order, true);
  write_f32(folder / "w.npy", "(30,)", some(30, 2));
  write_f32(folder / "channels.npy", "(4,)", some(4, 3));
  write_f32(folder / "samples.npy", "(2, 4, 1)", some(8, 4));
  const Words plain{"--weight", folder / "w.npy", "--bias", folder / "w.npy", "--zero-centered"};
  for (const Words& options :
       {plain, plain + Words{"--rms"}, Words{"--groups", "2", "--weight", folder / "samples.npy"},
        Words{"--axes", "2", "--bias", folder / "samples.npy"},
        Words{"--groups", "2", "--weight", folder / "channels.npy", "--zero-centered"}}) {
    const bool rms = options.back() == "--rms";
    expect_done(Words{"apply", folder / "x.npy", "-o", folder / "y.npy", "--rstd", folder / "r.npy"} + options);
    const std::vector<double> rstd = elements_of<double>(read_file(folder / "r.npy"));
    const json document = json_of(Words{folder / "x.npy", "--rows", "all"} + options);
    ASSERT_EQ(document["rows"].size(), rstd.size());
    Floats y;
    for (std::size_t r = 0; r < rstd.size(); ++r) {
      const json& row = document["rows"][r];
      for (const double v : numbers_of(row["y"])) y.push_back(static_cast<float>(v));
      EXPECT_EQ(row["rstd"].get<double>(), rstd[r]);
      EXPECT_NEAR(1 / step(row, "sigma")["exact"].get<double>() / rstd[r], 1, 2 * 0x1p-24);  // the contract's limit
      EXPECT_EQ(row["steps"].size(), rms ? 5U : 7U);
      // before scaling and shifting
      expect_near(row["check"][rms ? "mean_square" : "var"], row["check"]["expected"], 1e-6);
    }
    EXPECT_EQ(y, floats_in(folder / "y.npy"));
    EXPECT_EQ(json_of(Words{folder / "f.npy", "--rows", "all"} + options), document);
  }
  write_f32(folder / "x.npy", "(2, 4, 3)", some(24, 1));
  const json grouped = json_of({folder / "x.npy", "--groups", "2", "--weight", "1 2 3 4", "--rows", "3"});
  EXPECT_EQ(grouped["weight"], nullptr);
  EXPECT_EQ(grouped["rows"][0]["index"], json({1, 1}));
  EXPECT_EQ(grouped["rows"][0]["weight"], json({{3, 3, 3}, {4, 4, 4}}));
  const std::string text = text_of({folder / "x.npy", "--groups", "2", "--weight", "1 2 3 4"});
  EXPECT_THAT(text,
              HasSubstr("Input gamma, shape (2, 3)\n    [[1.0000 1.0000 1.0000]\n     [2.0000 2.0000 2.0000]]\n"));
}

// Rows of a file in any order are read without reading the rest of the file.
TEST(CliExplain, ReadsRowsOfAFileInAnyOrder) {
  const TemporaryFolder folder;
  const std::vector<double> columns_first = {1, 5, 2, 6, 3, 7, 4, 9};
  write_file(folder / "f.npy", npy_bytes_of("<f8", "(2, 4)", bytes_of(columns_first), true));
  const json rows = json_of({folder / "f.npy", "--rows", "1,0"})["rows"];
  EXPECT_EQ(rows[0]["x"], json({5, 6, 7, 9}));
  EXPECT_EQ(rows[1]["row"], 0);
  EXPECT_EQ(json_of({folder / "f.npy", "--rows", "2", "--axes", "0"})["rows"][0]["x"], json({3, 7}));
  std::string swapped = bytes_of(columns_first);
  for (std::size_t i = 0; i < swapped.size(); i += 8) std::reverse(&swapped[i], &swapped[i] + 8);
  write_file(folder / "b.npy", npy_bytes_of(">f8", "(4, 2)", swapped));
  EXPECT_EQ(json_of({folder / "b.npy", "--rows", "3"})["rows"][0]["x"], json({4, 9}));
}

TEST(CliExplain, RmsSubtractsNoMean) {
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

TEST(CliExplain, RoundedResultDependsOnTheType) {
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

TEST(CliExplain, WarnsAboutTheBatchAxis) {
  const std::string mixed = text_of({"[[1 2] [3 5]]", "--axes", "0", "--batch-axis", "0"});
  EXPECT_THAT(mixed, HasSubstr("WARNING: Axis 0, the batch, is among the normalised axis 0"));
  EXPECT_THAT(mixed, HasSubstr("Over axis 1 (--axes 1)"));
  const json good = json_of({"[[1 2] [3 5]]", "--batch-axis", "-2"});
  EXPECT_EQ(good["warnings"], json::array());
  EXPECT_THAT(good["notes"][0].get<std::string>(), HasSubstr("every sample is normalised by itself"));
  EXPECT_THAT(text_of({"4 2 8", "--batch-axis", "0"}), HasSubstr("has no other axis: give it one for the features"));
}

TEST(CliExplain, ExplainsSpecialRows) {
  const auto note = [](const Words& arguments) {
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
  EXPECT_THAT(note({"0.01 0.02 0.03"}), HasSubstr("eps matters here"));
  EXPECT_THAT(note({"1 2", "--dtype", "f16", "--weight", "6e4 6e4", "--bias", "6e4 6e4"}), HasSubstr("is beyond f16"));
  EXPECT_THAT(note({"1.79769e308 1", "--dtype", "f64"}), HasSubstr("The squares are beyond f64"));
  EXPECT_THAT(note({"1e-310 2e-310", "--dtype", "f64", "--eps", "0"}), HasSubstr("The squares are below f64's range"));
  EXPECT_THAT(note({"1e-200 2e-200", "--dtype", "f64", "--rms"}), HasSubstr("a mean square of less than 2.3e-308)"));
  EXPECT_THAT(text_of({"1 2", "--eps", "1e-310"}), Not(HasSubstr("below 1 because eps")));
  EXPECT_THAT(text_of({"0.001 0.002"}), HasSubstr("That is below 1 because eps"));
  EXPECT_THAT(text_of({"0.1 0.101", "--round", "2"}), HasSubstr("Note: Rounded to 2 decimals, sigma is 0"));
}

TEST(CliExplain, NonFiniteNumbersAreStringsInJson) {
  const json document = json_of({"[1 inf nan -inf] [1 2 3 4]"});
  EXPECT_EQ(document["rows"][0]["x"], json({1, "Infinity", "NaN", "-Infinity"}));
  EXPECT_EQ(document["rows"][0]["y"], json({"NaN", "NaN", "NaN", "NaN"}));
  EXPECT_EQ(step(document["rows"][0], "mean")["exact"], "NaN");
  EXPECT_TRUE(document["rows"][1]["y"][0].is_number());
  EXPECT_THAT(text_of({"1 nan"}), Not(HasSubstr("-nan")));
}

// Explaining one row of a large file, with its gradients and pictures, needs little memory.
TEST(CliExplain, ReadsOnlyPartsOfLargeFiles) {
  const TemporaryFolder folder;
  const std::string x = folder / "x.npy";
  write_zeros(x, "(2097152, 1024)", std::size_t{1} << 31);
  for (const Words& more : {Words{}, {"--grad", x}, {"--html", folder / "page.html"}}) {
    const json report = report_of(Words{"explain", x, "--rows", "2097151"} + more, {.memory = std::size_t{128} << 20U});
    EXPECT_EQ(report["rows"][0]["row"], 2097151);
  }
}

TEST(CliExplain, LongRowsAreAbbreviatedAndPagesNarrow) {
  const TemporaryFolder folder;
  const std::string x = folder / "x.npy";
  Floats values(7 * 768);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7919) % 1013) / 31.0F - 1e6F;
  write_f32(x, "(7, 768)", values);
  const std::vector<Words> calls = {{x, "--round", "3", "--batch-axis", "0"},
                                    {x, "--axes", "0,1", "--decimals", "9"},
                                    {x, "--rms", "--decimals", "0"},
                                    {x, "--grad", x, "--round", "3"},
                                    {x, "--grad", x, "--axes", "0,1", "--decimals", "8"},
                                    {"--slips"},
                                    {"1e-30 1e30 nan", "--decimals", "9", "--round", "9"}};
  for (const Words& call : calls) {
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

// Errors shared with `evenorm apply` (axes, shapes, parameters) have one case here.
TEST(CliExplain, RejectsWrongUseWithOneLine) {
  const TemporaryFolder folder;
  write_f32(folder / "rows.npy", "(0, 3)", {});
  write_f32(folder / "scalar.npy", "()", {0});
  const std::vector<std::pair<Words, const char*>> cases = {
      {{}, "X is not given: numbers, e.g. \"4 2 8\", or a .npy file"},
      {{""}, "X: is empty"},
      {{"4 x"}, "x, character 3: 'x' is not a number"},
      {{"4 2 8", "--weight", "1 2 b"}, "weight, character 5: 'b' is not a number"},
      {{"[[1 2] [3]]"}, "x is ragged: [0] holds 2 numbers, but [1] holds 1 number"},
      {{"no/such.npy"}, "no/such.npy: cannot be read"},
      {{folder / "rows.npy"}, "x has no rows to explain"},
      {{folder / "scalar.npy"}, "should have an axis to normalise"},
      {{"1e39"}, "x has 1e+39, which is beyond f32 (--dtype chooses another type)"},
      {{"4 2 8", "--weight", "1 2"}, "weight has shape (2), but x has shape (3), which should end in it"},
      {{"4 2 8", "--axes", "0", "--normalized-shape", "3"}, "excludes"},
      {{"4 2 8", "--rows", "1"}, "--rows has 1, but the rows of x are 0 to 0"},
      {{"4 2 8", "--rows", "0;1"}, "--rows is '0;1', but should be numbers with commas between"},
      {{"4 2 8", "--batch-axis", "3"}, "--batch-axis has 3, but x has shape (3)"},
      {{"4 2 8", "--eps", "one"}, "--eps is 'one', but should be a finite number >= 0"},
      {{"4 2 8", "--dtype", "f8"}, "f8 not in {f64,f32,bf16,f16}"},
      {{"4 2 8", "--decimals", "16"}, "--decimals is '16', but should be a number from 0 to 15"},
      {{"4 2 8", "--round", "-1"}, "--round is '-1', but should be a number from 0 to 15"},
      {{"--slips", "4 2 8"}, "--slips shows examples of its own and takes no X"},
      {{"--rms", "--slips"}, "--slips shows examples of its own and takes no --rms"},
      {{"4 2 8", "--grad", "1 0"}, "dy (--grad) has shape (2), but should have that of x, (3)"},
      {{"4 2 8", "--grad", "1 0 x"}, "dy, character 5: 'x' is not a number"},
      {{"4 2 8", "--grad", ""}, "--grad: is empty"},
      {{"4 2 8", "--grad", "no/such.npy"}, "no/such.npy: cannot be read"},
      {{"4 2 8", "--grad", "1 1e39 0"}, "dy has 1e+39, which is beyond f32"},
      {{"[[1 2]]", "--groups", "3"}, "--groups is 3, but should divide 2, the channels of x, which has shape (1, 2)"},
      {{"[[1 2]]", "--groups", "2", "--grad", "[[1 2]]"}, "--grad is given, but should not be with --groups"},
      {{"[[1 2]]", "--axes", "1", "--weight", "[[1 2]]", "--grad", "[[1 2]]"},
       "--grad is given, but should not be with a weight"},
      {{"--slips", "--grad", "1 2 3"}, "--slips shows examples of its own and takes no --grad"},
  };
  for (const auto& [arguments, message] : cases) expect_refused(Words{"explain"} + arguments, message);
}

}  // namespace
}  // namespace evenorm::testing
