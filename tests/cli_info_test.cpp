// `evenorm info`, `evenorm check`, help and versions: their output and exit statuses.
#include <limits>

#include "cli/check_climb.hpp"
#include "evenorm/evenorm.hpp"
#include "plan/caches.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

TEST(CliInfo, JsonEqualsWhatTheLibraryReports) {
  const json info = report_of({"info"});
  EXPECT_EQ(info["version"], version());
  EXPECT_EQ(info["numerics_revision"], numerics_revision());
  EXPECT_EQ(info["targets"], supported_targets());
  EXPECT_EQ(info["compiled_targets"], compiled_targets());
  EXPECT_EQ(info["target"], target());
  EXPECT_EQ(info["threads"], pool_executor(0).threads);
  EXPECT_EQ(info["cache_bytes"]["last"], internal::caches().last);
  EXPECT_EQ(info["streamed_from"], internal::streamed_from(internal::caches()));
}

TEST(CliInfo, NamesEveryTargetAndTheForcedOne) {
  const std::string text = output_of({"info"});
  for (const std::string& name : compiled_targets()) EXPECT_THAT(text, HasSubstr(name));
  for (const std::string& name : supported_targets()) {
    EXPECT_EQ(report_of({"info"}, {.environment = {"EVENORM_TARGET=" + name}})["target"], name);
  }
}

TEST(CliInfo, RejectsUnknownTargets) {
  for (const char* command : {"info", "check", "bench"}) {
    expect_refused({command}, "EVENORM_TARGET is 'bogus', but this machine supports",
                   {.environment = {"EVENORM_TARGET=bogus"}});
  }
}

TEST(CliHelp, EverySubcommandHasExamples) {
  for (const Words& command : {Words{}, {"apply"}, {"bench"}, {"check"}, {"info"}}) {
    EXPECT_THAT(output_of(command + Words{"--help"}),
                HasSubstr("Examples:\n  evenorm " + (command.empty() ? "" : command[0])));
  }
  EXPECT_EQ(output_of({"--version"}), "evenorm " + std::string(version()) + "\n");
}

// --- check: reports of limits that hold and limits that do not -----------------------------------------------------

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

TEST(CliCheck, ShowsEachPeakBesideItsLimit) {
  const cli::ClimbFindings kept{
      1000,
      {peak("layer f32, y", 3.25), peak("rms f32, y", 2.5), peak("rms f32, dx", 2.75), peak("rms f64, dx", 13.25)}};
  EXPECT_TRUE(kept.pass());
  const std::string text = cli::climb_text(kept);
  EXPECT_THAT(text, HasSubstr("changing short rows 1,000 times"));
  EXPECT_THAT(text, HasSubstr("  f32 layer                    3.25/4.03             -             -             -"));
  EXPECT_THAT(text, HasSubstr("  f32 rms                      2.50/3.03             -             -     2.75/8.03"));
  EXPECT_THAT(text, HasSubstr(" -  13.25/150.00"));
  EXPECT_THAT(text, Not(HasSubstr("BROKEN")));
}

TEST(CliCheck, FailsOnAPeakBeyondItsLimitAndShowsItsRow) {
  for (const double error : {3.5, std::numeric_limits<double>::infinity()}) {
    const cli::ClimbFindings broken{1000, {peak("layer f32, y", 3.5), peak("rms f32, y", error)}};
    EXPECT_FALSE(broken.pass());
    const std::string text = cli::climb_text(broken);
    EXPECT_THAT(text, HasSubstr("/3.03!"));
    EXPECT_THAT(text, HasSubstr("BROKEN: rms f32, y: "));
    EXPECT_THAT(text, HasSubstr(" of 3.03: 1 columns, eps 0x1p-2, x {0x1.8p+0}\n"));
    EXPECT_THAT(text, Not(HasSubstr("BROKEN: layer")));
    const auto told = cli::climb_json(broken);
    EXPECT_EQ(told["pass"], false);
    EXPECT_EQ(told["peaks"][0]["pass"], true);
    EXPECT_EQ(told["peaks"][1]["pass"], false);
    EXPECT_EQ(told["peaks"][1]["x"][0], "0x1.8p+0");
  }
}

TEST(CliCheck, FailsOnDifferentBitsOnATarget) {
  cli::ClimbFindings findings{1000, {peak("layer f64, dx", 1)}};
  findings.peaks[0].differing = {"avx2"};
  EXPECT_FALSE(findings.pass());
  EXPECT_THAT(cli::climb_text(findings), HasSubstr("other bits on avx2"));
  EXPECT_EQ(cli::climb_text({}), "");  // without climbing
  EXPECT_TRUE(cli::ClimbFindings{}.pass());
}

TEST(CliCheck, RejectsWrongNumbers) {
  for (const std::string steps : {"many", "-1", "1.5", "1e6", "99999999999999999999"}) {
    expect_refused({"check", "--climb=" + steps}, "--climb is '" + steps + "', but should be");
  }
  expect_refused({"check", "--threads", "many"}, "--threads");
}

// Runs all of `check --quick`, which takes half a minute.
TEST(CliCheck_Slow, QuickPassesAndReportsEveryRowInJson) {
  const json report = report_of({"check", "--quick"});
  EXPECT_TRUE(report["pass"].get<bool>());
  EXPECT_EQ(report["targets"], supported_targets());
  EXPECT_GT(report["accuracy"].size(), 500U);
  for (const json& row : report["accuracy"]) {
    EXPECT_TRUE(row["pass"].get<bool>()) << row;
    EXPECT_LE(row["output"], row["limit"]) << row;
    const bool is_layer = row["kind"] == "layer";
    const double limit = row["limit"];
    EXPECT_TRUE(row["type"] == "f64" ? limit >= (is_layer ? 196 : 42) : limit == (is_layer ? 4.03125 : 3.03125)) << row;
  }
  EXPECT_EQ(report["climbing"]["steps"], 10000);
  EXPECT_GT(report["climbing"]["peaks"].size(), 40U);
  for (const json& peak : report["climbing"]["peaks"]) EXPECT_LE(peak["error"], peak["limit"]) << peak;
  EXPECT_GT(report["same_bits"]["cases"].size(), 30U);
  EXPECT_GT(report["same_bits_of_gradients"]["cases"].size(), 15U);
  for (const char* table : {"same_bits", "same_bits_of_gradients"}) {
    EXPECT_EQ(report[table]["pass"], true);
    for (const json& row : report[table]["cases"]) EXPECT_EQ(row["differing"], json::array()) << row;
  }
}

}  // namespace
}  // namespace evenorm::testing
