// `evenorm explain --grad`: the backward pass to its known digits, evenorm's own bits, dx by finite differences, and
// the explanations.
#include <cmath>

#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

json gradient_of(const Words& arguments) { return json_of(arguments)["rows"][0]["gradient"]; }

const Words kWorked{"4 2 8", "--grad", "1 0 -1", "--weight", "1.5 1 0.5", "--bias", "0.5 0 -0.5"};

TEST(CliExplainGrad_Worked, ReproducesTheVectorByHand) {
  const json gradient = gradient_of(kWorked);
  const double sigma = std::sqrt(56.0 / 9 + 1e-5);
  const std::vector<double> xhat{-2 / (3 * sigma), -8 / (3 * sigma), 10 / (3 * sigma)}, g{1.5, 0, -0.5};
  const double mean_g = 1.0 / 3, mean_g_xhat = (1.5 * xhat[0] - 0.5 * xhat[2]) / 3;
  expect_near(step(gradient, "g")["exact"], g, 1e-15);
  expect_near(step(gradient, "mean_g")["exact"], mean_g, 1e-15);
  expect_near(step(gradient, "mean_g_xhat")["exact"], mean_g_xhat, 1e-15);
  std::vector<double> dx;
  for (std::size_t i = 0; i < 3; ++i) dx.push_back((g[i] - mean_g - xhat[i] * mean_g_xhat) / sigma);
  expect_near(step(gradient, "dx")["exact"], dx, 1e-15);
  expect_near(step(gradient, "dgamma")["exact"], {xhat[0], 0, -xhat[2]}, 1e-15);
  EXPECT_EQ(step(gradient, "dbeta")["exact"], json({1, 0, -1}));
  expect_near(gradient["dx"], {0.4295, -0.2864, -0.1432}, 0.5e-4);
  EXPECT_EQ(step(gradient, "dx")["formulas"][1], "dx[1] = (0 - 0.3333 - (-1.0690) * (-0.3563)) / 2.4944 = -0.2864");
  EXPECT_EQ(step(gradient, "mean_g_xhat")["rule"], "mean(g * xhat) = (sum of g * xhat) / 3");
}

// The page has the results rounded as in a calculation by hand, and those of common slips.
TEST(CliExplainGrad_Worked, PrintsTheRecordedPage) {
  EXPECT_EQ(text_of(kWorked + Words{"--round", "2"}),
            read_file(in_sources("tests/vectors/explain/gradient_by_hand.txt")));
}

TEST(CliExplainGrad_Worked, RmsNormSubtractsNoMean) {
  const json gradient = gradient_of(kWorked + Words{"--rms"});
  const double sigma = std::sqrt(28 + 1e-5);
  const std::vector<double> xhat{4 / sigma, 2 / sigma, 8 / sigma};
  const double mean_g_xhat = (1.5 * xhat[0] - 0.5 * xhat[2]) / 3;
  expect_near(
      step(gradient, "dx")["exact"],
      {(1.5 - xhat[0] * mean_g_xhat) / sigma, -xhat[1] * mean_g_xhat / sigma, (-0.5 - xhat[2] * mean_g_xhat) / sigma},
      1e-15);
  EXPECT_EQ(gradient["steps"].size(), 5U);
  EXPECT_FALSE(gradient["check"].contains("sum"));
  const std::string text = text_of(kWorked + Words{"--rms"});
  EXPECT_THAT(text, HasSubstr("dx = (g - xhat * mean(g * xhat)) / sigma\n"));
  EXPECT_THAT(text, HasSubstr("multiplying all x"));
  EXPECT_THAT(text, Not(HasSubstr("mean(g) =")));
}

// The values equal those that `evenorm grad` writes, bit for bit, for single rows and for the sums over all rows.
TEST(CliExplainGrad, ResultsEqualThoseOfGrad) {
  const TemporaryFolder folder;
  for (const auto& [name, shape, n] :
       {std::tuple{"x.npy", "(2, 3, 50)", 300U}, {"dy.npy", "(2, 3, 50)", 300U}, {"w.npy", "(50,)", 50U}}) {
    write_f32(folder / name, shape, some(n, *name));
  }
  for (const bool rms : {false, true}) {
    Words options{"--weight", folder / "w.npy", "--zero-centered"};
    if (rms) options.emplace_back("--rms");
    expect_done(Words{"grad", folder / "x.npy", folder / "dy.npy", "-o", folder / "dx.npy", "--dweight"} +
                Words{folder / "dw.npy", "--dbias", folder / "db.npy"} + options);
    const Floats dx = floats_in(folder / "dx.npy");
    const json document = json_of(Words{folder / "x.npy", "--grad", folder / "dy.npy", "--rows", "all"} + options);
    ASSERT_EQ(document["rows"].size(), 6U);
    for (std::size_t r = 0; r < 6; ++r) {
      const json& gradient = document["rows"][r]["gradient"];
      EXPECT_EQ(gradient["dx"].get<Floats>(), Floats(&dx[r * 50], &dx[r * 50] + 50)) << r;
      EXPECT_LT(gradient["largest_difference"].get<double>(), 1e-5);
      EXPECT_GT(gradient["largest_difference"].get<double>(), 0);
    }
    const json& sums = document["gradient_sums"];
    EXPECT_EQ(sums["rows"], 6);
    EXPECT_EQ(sums["dgamma"].get<Floats>(), floats_in(folder / "dw.npy"));
    EXPECT_EQ(sums["dbeta"].get<Floats>(), floats_in(folder / "db.npy"));
    for (std::size_t c = 0; c < 50; ++c) {
      double dgamma = 0;
      for (const json& row : document["rows"]) dgamma += step(row["gradient"], "dgamma")["exact"][c].get<double>();
      EXPECT_NEAR(sums["exact_dgamma"][c].get<double>(), dgamma, 1e-14);
    }
  }
}

// The formula agrees with the slope found by moving x, but the slips do not.
TEST(CliExplainGrad, FiniteDifferencesAgree) {
  const std::vector<Words> cases = {kWorked,
                                    kWorked + Words{"--rms"},
                                    kWorked + Words{"--zero-centered"},
                                    kWorked + Words{"--eps", "1"},
                                    {"0.001 0.002 0.004 0.003", "--grad", "1 2 3 -4"},
                                    {"1e6 1000001 1000003", "--grad", "1 -2 4", "--dtype", "f64"},
                                    {"[1e-20 2e-20 5e-20]", "--grad", "1 2 4", "--rms", "--eps", "0"},
                                    {"3 3 3", "--grad", "1 0 2"}};
  for (const Words& arguments : cases) {
    const json gradient = gradient_of(arguments), &trial = gradient["trial"];
    const auto i = trial["index"][0].get<std::size_t>();
    const double dx = trial["dx"].get<double>(), step_size = trial["step"].get<double>();
    EXPECT_EQ(dx, step(gradient, "dx")["exact"][i].get<double>());
    for (const json& each : step(gradient, "dx")["exact"]) EXPECT_LE(std::abs(each.get<double>()), std::abs(dx));
    EXPECT_NEAR(trial["quotient"].get<double>() / dx, 1, 1e-6) << arguments[0];
    const double slope = (trial["above"].get<double>() - trial["below"].get<double>()) / (2 * step_size);
    EXPECT_NEAR(slope / dx, 1, 1e-6) << arguments[0];
    EXPECT_GE(gradient["wrong"].size(), 1U);
    for (const json& wrong : gradient["wrong"]) EXPECT_NE(wrong["dx"], step(gradient, "dx")["exact"]) << wrong["name"];
  }
  // L can be computed again from the printed x, as it is stored.
  EXPECT_EQ(gradient_of({"1.3 0 0", "--grad", "1 0 0"})["trial"]["x"], 1.3);
  EXPECT_EQ(gradient_of({"1.3 0 0", "--grad", "1 0 0", "--dtype", "bf16"})["trial"]["x"], 1.296875);
}

// The recorded page has the slips of other rows.
TEST(CliExplainGrad, SpecialRowsHaveFewerSlips) {
  for (const auto& [arguments, slips] : {std::pair<Words, std::size_t>{kWorked, 3},
                                         {{"3 3 3", "--grad", "1 0 2"}, 1},
                                         {{"3 3 3", "--grad", "1 0 2", "--eps", "0"}, 0}}) {
    EXPECT_EQ(gradient_of(arguments)["wrong"].size(), slips);
  }
  EXPECT_EQ(gradient_of(kWorked + Words{"--rms"})["wrong"][1]["name"], "mean-taken-off");
}

TEST(CliExplainGrad, ChecksUseEvenormsOwnRow) {
  const json check = gradient_of({"0.01 0.02 0.04 0.03", "--grad", "1 2 3 -2"})["check"];
  EXPECT_NEAR(check["sum"].get<double>(), 0, 1e-3);
  // eps / sigma^3 * sum of g xhat
  const double sigma = std::sqrt(1.25e-4 + 1e-5);
  const double sum_g_xhat = (-0.015 - 2 * 0.005 + 3 * 0.015 - 2 * 0.005) / sigma;
  EXPECT_NEAR(check["expected"].get<double>() / (1e-5 / std::pow(sigma, 3) * sum_g_xhat), 1, 1e-6);
  EXPECT_NEAR(check["along_xhat"].get<double>(), check["expected"].get<double>(), 1e-3);
}

TEST(CliExplainGrad, ReadsAnyRowAndOrderOfFiles) {
  const TemporaryFolder folder;
  write_file(folder / "x.npy", npy_bytes_of("<f8", "(2, 3)", bytes_of<double>({1, 2, 3, 5, 8, 4})));
  write_file(folder / "dy.npy", npy_bytes_of("<f8", "(2, 3)", bytes_of<double>({1, 4, 2, 5, 3, 6}), true));
  const json document = json_of({folder / "x.npy", "--grad", folder / "dy.npy", "--rows", "1"});
  EXPECT_EQ(document["rows"][0]["gradient"]["dy"], json({4, 5, 6}));
  EXPECT_EQ(document["gradient_sums"]["dbeta"], json({4, 5, 6}));
  const json mixed = json_of({folder / "x.npy", "--grad", "[1 2 3][4 5 6]", "--axes", "0", "--rows", "2,0"});
  EXPECT_EQ(mixed["rows"][0]["gradient"]["dy"], json({3, 6}));
  EXPECT_EQ(mixed["rows"][1]["gradient"]["dy"], json({1, 4}));
  EXPECT_EQ(mixed["gradient_sums"]["dbeta"], json({4, 10}));
  const std::string text = text_of({"[1 2 4][3 1 1][0 1 5]", "--grad", "[1 2 3][4 5 6][1 1 1]"});
  EXPECT_THAT(text, HasSubstr("Shown: 2 rows of 3"));
  EXPECT_THAT(text, HasSubstr("The 2 rows that are shown, together\n"));
  EXPECT_THAT(text, HasSubstr("dbeta = sum over rows of dy; shape (3)\n    [5.0000 7.0000 9.0000]\n"));
  EXPECT_THAT(text_of({"[1 2 4][3 1 1]", "--grad", "[1 2 3][4 5 6]"}), HasSubstr("All 2 rows together\n"));
}

TEST(CliExplainGrad, ExplainsSpecialRows) {
  const auto note = [](const Words& arguments) {
    const json notes = gradient_of(arguments)["notes"];
    return notes.empty() ? std::string() : notes[0].get<std::string>();
  };
  EXPECT_EQ(note(kWorked), "");
  EXPECT_THAT(note({"3 3 3", "--grad", "1 0 1"}), HasSubstr("dx is g - mean(g) divided by sqrt(eps)"));
  EXPECT_THAT(note({"0 0 0", "--grad", "1 0 1", "--rms"}), HasSubstr("dx is g divided by sqrt(eps)"));
  EXPECT_THAT(note({"3 3 3", "--grad", "1 0 1", "--eps", "0"}), HasSubstr("Without eps there is no derivative here"));
  EXPECT_THAT(note({"7", "--grad", "2"}), HasSubstr("A row of one number gives beta for any number"));
  EXPECT_THAT(note({"1 2 4", "--grad", "1 nan 3"}), HasSubstr("dy holds nan (number 2), which is not finite"));
  EXPECT_THAT(note({"1 nan 4", "--grad", "1 2 3"}), HasSubstr("is NaN in every place because of this row"));
  const json nan = gradient_of({"1 2 4", "--grad", "1 nan 3"});
  EXPECT_EQ(nan["dx"], json({"NaN", "NaN", "NaN"}));
  EXPECT_EQ(nan["dgamma"][1], "NaN");
  EXPECT_TRUE(nan["dgamma"][0].is_number());
  EXPECT_EQ(nan["trial"], nullptr);
  EXPECT_THAT(text_of({"1 2 4", "--grad", "1 inf 3"}), Not(HasSubstr("Numerical check")));
}

}  // namespace
}  // namespace evenorm::testing
