// `evenorm explain --slips`: every slip with the number it gives and the right one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "learn/explain/decimal.hpp"
#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::in_sources;
using testing::read_file;
using testing::run_evenorm;

json slips() {
  const auto run = run_evenorm({"explain", "--slips", "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  return json::parse(run.out)["slips"];
}

json slip(std::string_view name) {
  for (const json& candidate : slips()) {
    if (candidate["name"] == name) return candidate;
  }
  throw std::runtime_error("no slip " + std::string(name));
}

// The values of the figure whose label begins so.
json values(const json& figures, std::string_view label) {
  for (const json& figure : figures) {
    if (figure["label"].get<std::string>().starts_with(label)) return figure["values"];
  }
  throw std::runtime_error("no figure " + std::string(label));
}

void expect_near(const json& have, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(have.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(have[i].get<double>(), want[i], tolerance) << i;
}

constexpr double kLast4 = 0.5e-4, kLast5 = 0.5e-5;

TEST(CliSlips, AllAreThereInOrder) {
  std::vector<std::string> names;
  for (const json& each : slips()) {
    names.push_back(each["name"]);
    EXPECT_FALSE(each["written"].get<std::string>().empty());
    EXPECT_FALSE(each["how"].get<std::string>().empty());
    EXPECT_FALSE(each["wrong"].empty());
    EXPECT_FALSE(each["right"].empty());
  }
  EXPECT_THAT(names, ::testing::ElementsAre("brackets", "digits", "root-of-sigma", "wrong-sum", "cancellation", "batch",
                                            "unbiased", "constants", "constant-sigma", "unbiased-backward",
                                            "dgamma-along-the-row"));
}

TEST(CliSlips, Brackets) {
  const json s = slip("brackets");
  expect_near(values(s["wrong"], "mean"), {0.4}, 1e-12);
  expect_near(values(s["right"], "mean"), {0.2}, 1e-12);
  expect_near(values(s["wrong"], "xhat[1]"), {0.1 - 0.2 / std::sqrt(0.02 / 3 + 1e-5)}, 1e-12);
  expect_near(values(s["right"], "xhat[1]"), {-1.2238}, kLast4);
}

TEST(CliSlips, Digits) {
  const json s = slip("digits");
  EXPECT_EQ(values(s["wrong"], "std"), json({0.08614}));
  expect_near(values(s["right"], "std"), {0.08165}, kLast5);
  expect_near(values(s["right"], "sigma"), {0.0817}, kLast4);
  EXPECT_THAT(s["how"].get<std::string>(), HasSubstr("cut after five decimals is 0.08164"));
}

TEST(CliSlips, RootOfSigma) {
  const json s = slip("root-of-sigma");
  expect_near(values(s["wrong"], "xhat"), {0, -0.3498, 0.3498}, kLast4);
  expect_near(values(s["right"], "xhat"), {0, -1.2238, 1.2238}, kLast4);
  const double sigma = std::sqrt(0.02 / 3 + 1e-5);
  expect_near(values(s["wrong"], "variance"), {(0.02 / 3) / sigma}, 1e-12);
}

TEST(CliSlips, WrongSum) {
  const json printed =
      json::parse(read_file(in_sources("tests/vectors/worked/scale_and_shift_by_hand.json")))["printed"];
  const json s = slip("wrong-sum");
  EXPECT_EQ(values(s["wrong"], "y, as written"), printed["y_with_the_slip"]);
  expect_near(values(s["wrong"], "y with sigma = 2.62"), {0.11, -1.02, 0.135}, 1e-12);
  EXPECT_EQ(values(s["wrong"], "sigma that gives y"), json({2.63}));
  expect_near(values(s["right"], "var"), {6.2222}, kLast4);
  expect_near(values(s["right"], "sigma"), {printed["sigma"].get<double>()}, kLast4);
  expect_near(values(s["right"], "y, as every library"), printed["y"].get<std::vector<double>>(), kLast4);
  EXPECT_EQ(values(s["right"], "y, every step to 2 decimals"), printed["y_rounded"]);
  EXPECT_THAT(s["written"].get<std::string>(), HasSubstr("(0.4489 + 7.1289 + 11.0889) / 3 = 6.89"));
  EXPECT_THAT(s["how"].get<std::string>(), HasSubstr("the squares add up to 18.6667: the sum is 2 too large"));
}

TEST(CliSlips, Cancellation) {
  const json s = slip("cancellation");
  for (const json& figure : s["right"]) expect_near(figure["values"], {56.0 / 9}, 1e-10);
  std::vector<double> errors;
  for (const json& figure : s["wrong"]) errors.push_back(std::abs(figure["values"][0].get<double>() - 56.0 / 9));
  ASSERT_EQ(errors.size(), 5U);
  EXPECT_LT(errors[0], 1e-5);
  EXPECT_GT(errors[3], 5);  // mean/std = 10000: no digit is right
  EXPECT_LT(s["wrong"][4]["values"][0], 0);
}

TEST(CliSlips, Batch) {
  const json s = slip("batch");
  EXPECT_NE(s["wrong"][0]["values"], s["wrong"][1]["values"]);
  EXPECT_EQ(s["right"][0]["values"], s["right"][1]["values"]);
  expect_near(s["right"][0]["values"], {0, -1.2238, 1.2238}, kLast4);
  expect_near(s["wrong"][0]["values"], {-0.1139, -0.7975, 0.5697}, kLast4);
}

TEST(CliSlips, Unbiased) {
  const json s = slip("unbiased");
  expect_near(values(s["wrong"], "var"), {0.01}, 1e-12);
  expect_near(values(s["right"], "var"), {0.02 / 3}, 1e-12);
  expect_near(values(s["wrong"], "xhat, as"), {0, -0.9995, 0.9995}, kLast4);
  expect_near(values(s["wrong"], "variance"), {(0.02 / 3) / 0.01001}, 1e-12);
  EXPECT_EQ(values(s["wrong"], "xhat of a row of one"), json({"NaN"}));
  EXPECT_EQ(values(s["right"], "xhat of a row of one"), json::array({0}));
}

// dx of the backward slips, what trying it out gives, and which check finds them.
TEST(CliSlips, BackwardOnesAreNotWhatTryingItOutGives) {
  const double sigma = std::sqrt(56.0 / 9 + 1e-5);
  expect_near(values(slip("constants")["wrong"], "dx"), {1.5 / sigma, 0, -0.5 / sigma}, 1e-12);
  expect_near(values(slip("constants")["wrong"], "sum"), {1 / sigma}, 1e-12);
  expect_near(values(slip("constant-sigma")["wrong"], "dx"), {3.5 / 3 / sigma, -1 / 3.0 / sigma, -2.5 / 3 / sigma},
              1e-12);
  for (const char* name : {"constant-sigma", "unbiased-backward"}) {
    EXPECT_EQ(values(slip(name)["wrong"], "sum"), json::array({0})) << name;
  }
  for (const char* name : {"constants", "constant-sigma", "unbiased-backward"}) {
    const json s = slip(name), right = values(s["right"], "dx");
    expect_near(right, {0.4295, -0.2864, -0.1432}, kLast4);
    expect_near(values(s["right"], "dx by trying"), right.get<std::vector<double>>(), 1e-6);
    EXPECT_GT(std::abs(values(s["wrong"], "dx")[0].get<double>() - right[0].get<double>()), 0.01);
  }
}

TEST(CliSlips, DgammaAlongTheRow) {
  const json s = slip("dgamma-along-the-row");
  const double first = std::sqrt(56.0 / 9 + 1e-5), second = std::sqrt(0.02 / 3 + 1e-5);
  expect_near(values(s["wrong"], "dgamma"), {-4 / first, -0.1 / second}, 1e-9);
  expect_near(values(s["right"], "dgamma"), {-2 / (3 * first), -0.2 / second, -10 / (3 * first) + 0.1 / second}, 1e-9);
  EXPECT_EQ(values(s["right"], "dbeta"), json({1, 2, 0}));
}

// What gives a slip away, for who sees two numbers of it.
TEST(CliSlips, TellingFiguresDiffer) {
  std::size_t quoted = 0;
  for (const json& each : slips()) {
    quoted += each["quoted"].get<bool>() ? 1 : 0;
    const json &wrong = each["wrong"].at(each["telling"]["wrong"].get<std::size_t>()),
               &right = each["right"].at(each["telling"]["right"].get<std::size_t>());
    ASSERT_FALSE(wrong["values"].empty());
    const double difference = std::abs(wrong["values"][0].get<double>() - right["values"][0].get<double>());
    EXPECT_GT(difference, 0.004) << each["name"];  // the digits that are exchanged are the third and fourth decimal
  }
  EXPECT_EQ(quoted, 7U);
  EXPECT_EQ(slip("constants")["telling"], json({{"wrong", 1}, {"right", 1}}));  // the sum of dx
  EXPECT_LT(slip("cancellation")["wrong"][slip("cancellation")["telling"]["wrong"].get<std::size_t>()]["values"][0], 0);
}

TEST(CliSlips, TextHasTheNumbersOfTheJson) {
  const std::string text = run_evenorm({"explain", "--slips"}).out;
  for (const char* line :
       {"0.2 + 0.1 + 0.3 / 3 = 0.4\n", "(0.2 + 0.1 + 0.3) / 3 = 0.2\n", "std: sqrt(0.006667) = 0.08165\n",
        "sigma that gives y as written: 2.63\n", "mean/std 10000: 0\n",
        "every step to 2 decimals: [0.095, -1.07, 0.17]\n", "= nan\n", "11 slips that", "The first 7 stand in texts",
        "\n8. Mean and sigma taken for constants\n", "dgamma, as written: [-1.6036, -1.2238]\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// docs/slips.md cannot drift from what is computed.
TEST(CliSlips, PageInTheDocumentsHasTheseNumbers) {
  const std::string page = read_file(in_sources("docs/slips.md"));
  const auto shown = [](const json& figure_values) {
    std::string text;
    const auto numbers = figure_values.get<std::vector<double>>();
    const cli::Notation notation(numbers, 4);
    for (const double v : numbers) text += (text.empty() ? "" : ", ") + notation.brief(v == 0 ? 0 : v);
    return text;
  };
  const auto expect = [&](std::string_view name, const char* side, std::string_view label) {
    const std::string text = shown(values(slip(name)[side], label));
    EXPECT_THAT(page, HasSubstr(text)) << name << ": " << label;
  };
  for (const char* label : {"mean", "xhat[1]"}) expect("brackets", "wrong", label);
  for (const char* label : {"std", "sigma"}) expect("digits", "right", label);
  for (const char* label : {"xhat", "variance"}) expect("root-of-sigma", "wrong", label);
  for (const char* label : {"y, as written", "sigma that gives"}) expect("wrong-sum", "wrong", label);
  for (const char* label : {"var", "sigma", "y, as every", "y, every step"}) expect("wrong-sum", "right", label);
  const json cancellation = slip("cancellation"), batch = slip("batch");
  for (const json& figure : cancellation["wrong"]) EXPECT_THAT(page, HasSubstr("| " + shown(figure["values"])));
  for (const json& figure : batch["wrong"]) {
    std::string text = page;
    std::replace(text.begin(), text.end(), '\n', ' ');
    EXPECT_THAT(text, HasSubstr("[" + shown(figure["values"]) + "]"));
  }
  for (const char* label : {"xhat, as", "variance"}) expect("unbiased", "wrong", label);
  for (const char* name : {"constants", "constant-sigma", "unbiased-backward"}) expect(name, "wrong", "dx");
  expect("constants", "wrong", "sum");
  expect("constants", "right", "dx");
  expect("dgamma-along-the-row", "wrong", "dgamma");
  for (const char* label : {"dgamma", "dbeta"}) expect("dgamma-along-the-row", "right", label);
}

}  // namespace
}  // namespace evenorm
