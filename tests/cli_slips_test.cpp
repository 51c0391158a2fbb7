// `evenorm explain --slips`: every slip with its wrong number and the right one.
#include <cmath>

#include "learn/explain/decimal.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

const json& slips() {
  static const json all = json_of({"--slips"})["slips"];
  return all;
}

const json& slip(std::string_view name) { return named(slips(), name); }

// The values of a slip's figure whose label begins with `label`. `side` is "wrong" or "right".
const json& values(std::string_view name, const char* side, std::string_view label) {
  for (const json& figure : slip(name)[side]) {
    if (figure["label"].get<std::string>().starts_with(label)) return figure["values"];
  }
  throw std::runtime_error("no figure " + std::string(label));
}

TEST(CliSlips, ListsAllSlipsInOrder) {
  std::vector<std::string> names;
  for (const json& each : slips()) {
    names.push_back(each["name"]);
    for (const char* text : {"written", "how"}) EXPECT_FALSE(each[text].get<std::string>().empty());
    for (const char* side : {"wrong", "right"}) EXPECT_FALSE(each[side].empty());
  }
  EXPECT_THAT(names, ::testing::ElementsAre("brackets", "digits", "root-of-sigma", "wrong-sum", "cancellation", "batch",
                                            "unbiased", "constants", "constant-sigma", "unbiased-backward",
                                            "dgamma-along-the-row"));
}

struct Figure {
  const char *slip, *side, *label;
  std::vector<double> values;
  double tolerance = 1e-12;
};
constexpr double kLast4 = 0.5e-4, kLast5 = 0.5e-5;

// Each figure computed from the row of its slip: 0.2 0.1 0.3 or 4 2 8, gradients with dy = 1 0 -1.
std::vector<Figure> figures() {
  const double var = 0.02 / 3, of_short = std::sqrt(var + 1e-5), sigma = std::sqrt(56.0 / 9 + 1e-5);
  return {
      {"brackets", "wrong", "mean", {0.4}},
      {"brackets", "right", "mean", {0.2}},
      {"brackets", "wrong", "xhat[1]", {0.1 - 0.2 / of_short}},
      {"brackets", "right", "xhat[1]", {-1.2238}, kLast4},
      {"digits", "wrong", "std", {0.08614}},
      {"digits", "right", "std", {0.08165}, kLast5},
      {"digits", "right", "sigma", {0.0817}, kLast4},
      {"root-of-sigma", "wrong", "xhat", {0, -0.3498, 0.3498}, kLast4},
      {"root-of-sigma", "right", "xhat", {0, -1.2238, 1.2238}, kLast4},
      {"root-of-sigma", "wrong", "variance", {var / of_short}},
      {"wrong-sum", "wrong", "y with sigma = 2.62", {0.11, -1.02, 0.135}},
      {"wrong-sum", "wrong", "sigma that gives y", {2.63}},
      {"wrong-sum", "right", "var", {6.2222}, kLast4},
      {"unbiased", "wrong", "var", {0.01}},
      {"unbiased", "right", "var", {var}},
      {"unbiased", "wrong", "xhat, as", {0, -0.9995, 0.9995}, kLast4},
      {"unbiased", "wrong", "variance", {var / 0.01001}},
      {"unbiased", "right", "xhat of a row of one", {0}},
      {"constants", "wrong", "dx", {1.5 / sigma, 0, -0.5 / sigma}},
      {"constants", "wrong", "sum", {1 / sigma}},
      {"constant-sigma", "wrong", "dx", {3.5 / 3 / sigma, -1 / 3.0 / sigma, -2.5 / 3 / sigma}},
      {"constant-sigma", "wrong", "sum", {0}},
      {"unbiased-backward", "wrong", "sum", {0}},
      {"dgamma-along-the-row", "wrong", "dgamma", {-4 / sigma, -0.1 / of_short}, 1e-9},
      {"dgamma-along-the-row",
       "right",
       "dgamma",
       {-2 / (3 * sigma), -0.2 / of_short, -10 / (3 * sigma) + 0.1 / of_short},
       1e-9},
      {"dgamma-along-the-row", "right", "dbeta", {1, 2, 0}},
  };
}

TEST(CliSlips, FiguresFollowFromTheRow) {
  for (const Figure& figure : figures()) {
    SCOPED_TRACE(std::string(figure.slip) + ", " + figure.side + ": " + figure.label);
    expect_near(values(figure.slip, figure.side, figure.label), figure.values, figure.tolerance);
  }
  EXPECT_EQ(values("unbiased", "wrong", "xhat of a row of one"), json({"NaN"}));
  EXPECT_THAT(slip("digits")["how"].get<std::string>(), HasSubstr("cut after five decimals is 0.08164"));
}

TEST(CliSlips, WrongSumEqualsThatOfTheWorkedExample) {
  const json printed = worked("scale_and_shift_by_hand")["printed"];
  EXPECT_EQ(values("wrong-sum", "wrong", "y, as written"), printed["y_with_the_slip"]);
  EXPECT_EQ(values("wrong-sum", "right", "y, every step to 2 decimals"), printed["y_rounded"]);
  expect_near(values("wrong-sum", "right", "sigma"), printed["sigma"], kLast4);
  expect_near(values("wrong-sum", "right", "y, as every library"), printed["y"], kLast4);
  EXPECT_THAT(slip("wrong-sum")["how"].get<std::string>(), HasSubstr("the sum is 2 too large"));
}

TEST(CliSlips, ShowsCancellation) {
  const json& s = slip("cancellation");
  for (const json& figure : s["right"]) expect_near(figure["values"], json::array({56.0 / 9}), 1e-10);
  std::vector<double> errors;
  for (const json& figure : s["wrong"]) errors.push_back(std::abs(figure["values"][0].get<double>() - 56.0 / 9));
  ASSERT_EQ(errors.size(), 5U);
  EXPECT_LT(errors[0], 1e-5);
  EXPECT_GT(errors[3], 5);  // mean/std = 10000: no digit is correct
  EXPECT_LT(s["wrong"][4]["values"][0], 0);
}

TEST(CliSlips, ShowsTheBatchSlip) {
  const json& s = slip("batch");
  EXPECT_NE(s["wrong"][0]["values"], s["wrong"][1]["values"]);
  EXPECT_EQ(s["right"][0]["values"], s["right"][1]["values"]);
  expect_near(s["right"][0]["values"], {0, -1.2238, 1.2238}, kLast4);
  expect_near(s["wrong"][0]["values"], {-0.1139, -0.7975, 0.5697}, kLast4);
}

TEST(CliSlips, BackwardSlipsDifferFromFiniteDifferences) {
  for (const char* name : {"constants", "constant-sigma", "unbiased-backward"}) {
    const json& right = values(name, "right", "dx");
    expect_near(right, {0.4295, -0.2864, -0.1432}, kLast4);
    expect_near(values(name, "right", "dx by difference quotients"), right, 1e-6);
    EXPECT_GT(std::abs(values(name, "wrong", "dx")[0].get<double>() - right[0].get<double>()), 0.01);
  }
}

// The figures by which a reader recognises a slip differ visibly.
TEST(CliSlips, TellingFiguresDiffer) {
  std::size_t quoted = 0;
  for (const json& each : slips()) {
    quoted += each["quoted"].get<bool>() ? 1 : 0;
    const json &wrong = each["wrong"].at(each["telling"]["wrong"].get<std::size_t>()),
               &right = each["right"].at(each["telling"]["right"].get<std::size_t>());
    ASSERT_FALSE(wrong["values"].empty());
    const double difference = std::abs(wrong["values"][0].get<double>() - right["values"][0].get<double>());
    EXPECT_GT(difference, 0.004) << each["name"];  // the exchanged digits are the third and fourth decimal
  }
  EXPECT_EQ(quoted, 7U);
  EXPECT_EQ(slip("constants")["telling"], json({{"wrong", 1}, {"right", 1}}));  // the sum of dx
  EXPECT_LT(slip("cancellation")["wrong"][slip("cancellation")["telling"]["wrong"].get<std::size_t>()]["values"][0], 0);
}

TEST(CliSlips, TextHasTheNumbersOfTheJson) {
  const std::string text = text_of({"--slips"});
  for (const char* line : {"0.2 + 0.1 + 0.3 / 3 = 0.4\n", "(0.2 + 0.1 + 0.3) / 3 = 0.2\n",
                           "std: sqrt(0.006667) = 0.08165\n", "sigma that gives y as written: 2.63\n",
                           "mean/std 10000: 0\n", "every step to 2 decimals: [0.095, -1.07, 0.17]\n", "= nan\n",
                           "11 slips that", "The first 7 are quoted from texts",
                           "\n8. Mean and sigma treated as constants\n", "dgamma, as written: [-1.6036, -1.2238]\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// Lines may end anywhere in docs/slips.md.
TEST(CliSlips, DocumentHasTheseNumbers) {
  std::string page = read_file(in_sources("docs/slips.md"));
  std::replace(page.begin(), page.end(), '\n', ' ');
  const auto shown = [](const json& figure_values) {
    std::string text;
    const auto numbers = figure_values.get<std::vector<double>>();
    const cli::Notation notation(numbers, 4);
    for (const double v : numbers) text += (text.empty() ? "" : ", ") + notation.brief(v == 0 ? 0 : v);
    return text;
  };
  for (const auto& [name, side, labels] :
       {std::tuple<const char*, const char*, Words>{"brackets", "wrong", {"mean", "xhat[1]"}},
        {"digits", "right", {"std", "sigma"}},
        {"root-of-sigma", "wrong", {"xhat", "variance"}},
        {"wrong-sum", "wrong", {"y, as written", "sigma that gives"}},
        {"wrong-sum", "right", {"var", "sigma", "y, as every", "y, every step"}},
        {"unbiased", "wrong", {"xhat, as", "variance"}},
        {"constants", "wrong", {"dx", "sum"}},
        {"constants", "right", {"dx"}},
        {"constant-sigma", "wrong", {"dx"}},
        {"unbiased-backward", "wrong", {"dx"}},
        {"dgamma-along-the-row", "wrong", {"dgamma"}},
        {"dgamma-along-the-row", "right", {"dgamma", "dbeta"}}}) {
    for (const std::string& label : labels)
      EXPECT_THAT(page, HasSubstr(shown(values(name, side, label)))) << name << label;
  }
  for (const json& figure : slip("cancellation")["wrong"]) EXPECT_THAT(page, HasSubstr("| " + shown(figure["values"])));
  for (const json& figure : slip("batch")["wrong"]) EXPECT_THAT(page, HasSubstr("[" + shown(figure["values"]) + "]"));
}

}  // namespace
}  // namespace evenorm::testing
