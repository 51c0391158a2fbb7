// `evenorm check`: what it says of limits that are kept and broken, and its options. The run itself takes long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "cli/check_climb.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_evenorm;

contracts::Peak peak(const std::string& route, double error) {
  for (const contracts::Route& one : contracts::all_routes()) {
    if (one.name() != route) continue;
    contracts::ShortRows rows;
    rows.x = contracts::Array(one.op.x, std::vector<double>{1.5});
    rows.eps = 0.25;
    return {one, error, rows, {}};
  }
  throw std::invalid_argument(route);
}

TEST(CliCheck, EachPeakIsShownBesideItsLimit) {
  const cli::ClimbFindings kept{1000, {peak("layer f32, y", 3.25), peak("rms f32, y", 2.5), peak("rms f32, dx", 2.75)}};
  EXPECT_TRUE(kept.pass());
  const std::string text = cli::climb_text(kept);
  EXPECT_THAT(text, HasSubstr("changed 1,000 times"));
  EXPECT_THAT(text, HasSubstr("  f32 layer                  3.25/4.03           -           -           -"));
  EXPECT_THAT(text, HasSubstr("  f32 rms                    2.50/3.03           -           -   2.75/3.03"));
  EXPECT_THAT(text, Not(HasSubstr("BROKEN")));
}

TEST(CliCheck, APeakBeyondItsLimitFailsAndItsRowIsShown) {
  for (const double error : {3.5, std::numeric_limits<double>::infinity()}) {
    const cli::ClimbFindings broken{1000, {peak("layer f32, y", 3.5), peak("rms f32, y", error)}};
    EXPECT_FALSE(broken.pass());
    const std::string text = cli::climb_text(broken);
    EXPECT_THAT(text, HasSubstr("/3.03!"));
    EXPECT_THAT(text, HasSubstr("BROKEN: rms f32, y: "));
    EXPECT_THAT(text, HasSubstr(" of 3.03: 1 columns, eps 0x1p-2, x {0x1.8p+0}\n"));
    EXPECT_THAT(text, Not(HasSubstr("BROKEN: layer")));
    const auto json = cli::climb_json(broken);
    EXPECT_EQ(json["pass"], false);
    EXPECT_EQ(json["peaks"][0]["pass"], true);
    EXPECT_EQ(json["peaks"][1]["pass"], false);
    EXPECT_EQ(json["peaks"][1]["x"][0], "0x1.8p+0");
  }
}

TEST(CliCheck, OtherBitsOnATargetFail) {
  cli::ClimbFindings findings{1000, {peak("layer f64, dx", 1)}};
  findings.peaks[0].differing = {"avx2"};
  EXPECT_FALSE(findings.pass());
  EXPECT_THAT(cli::climb_text(findings), HasSubstr("other bits on avx2"));
}

TEST(CliCheck, WithoutClimbingNothingIsSaidOfIt) {
  EXPECT_EQ(cli::climb_text({}), "");
  EXPECT_TRUE(cli::ClimbFindings{}.pass());
}

TEST(CliCheck, WrongNumbersOfStepsAreRefused) {
  for (const char* steps : {"many", "-1", "1.5", "1e6", "99999999999999999999"}) {
    const auto run = run_evenorm({"check", std::string("--climb=") + steps});
    EXPECT_EQ(run.status, 2) << steps;
    EXPECT_TRUE(run.one_line()) << run.err;
    EXPECT_THAT(run.err, HasSubstr("--climb is '" + std::string(steps) + "', but should be"));
  }
}

TEST(CliCheck, HelpTellsOfClimbing) {
  const auto run = run_evenorm({"check", "--help"});
  EXPECT_THAT(run.out, HasSubstr("--climb STEPS"));
  EXPECT_THAT(run.out, HasSubstr("evenorm check --climb 2000000"));
}

}  // namespace
}  // namespace evenorm
