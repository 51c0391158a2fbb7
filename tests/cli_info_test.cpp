// `evenorm info`, `evenorm check`, help and versions: what they print, and their statuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "evenorm/evenorm.hpp"
#include "plan/caches.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::ProgramRun;
using testing::run_evenorm;

TEST(CliInfo, JsonHoldsWhatTheLibrarySays) {
  const ProgramRun run = run_evenorm({"info", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json info = json::parse(run.out);
  EXPECT_EQ(info["version"], version());
  EXPECT_EQ(info["numerics_revision"], numerics_revision());
  EXPECT_EQ(info["targets"], supported_targets());
  EXPECT_EQ(info["compiled_targets"], compiled_targets());
  EXPECT_EQ(info["target"], target());
  EXPECT_EQ(info["threads"], pool_executor(0).threads);
  EXPECT_EQ(info["cache_bytes"]["last"], internal::caches().last);
  EXPECT_EQ(info["streamed_from"], internal::streamed_from(internal::caches()));
}

TEST(CliInfo, TextNamesEveryTarget) {
  const ProgramRun run = run_evenorm({"info"});
  EXPECT_EQ(run.status, 0);
  for (const std::string& name : compiled_targets()) EXPECT_THAT(run.out, HasSubstr(name));
}

TEST(CliInfo, TargetIsForcedByTheEnvironment) {
  for (const std::string& name : supported_targets()) {
    const ProgramRun run = run_evenorm({"info", "--json"}, {.environment = {"EVENORM_TARGET=" + name}});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(json::parse(run.out)["target"], name);
  }
}

TEST(CliInfo, UnknownTargetsAreRefused) {
  for (const char* command : {"info", "check", "bench"}) {
    const ProgramRun run = run_evenorm({command}, {.environment = {"EVENORM_TARGET=bogus"}});
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.one_line()) << run.err;
    EXPECT_THAT(run.err, HasSubstr("EVENORM_TARGET is 'bogus', but this machine supports"));
  }
}

TEST(CliHelp, EverySubcommandHasExamples) {
  const std::vector<std::vector<std::string>> commands = {{}, {"apply"}, {"bench"}, {"check"}, {"info"}};
  for (auto command : commands) {
    command.push_back("--help");
    const ProgramRun run = run_evenorm(command);
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.err, "");
    EXPECT_THAT(run.out, HasSubstr("Examples:\n  evenorm " + (command.size() > 1 ? command[0] : "")));
  }
  EXPECT_EQ(run_evenorm({"--version"}).out, "evenorm " + std::string(version()) + "\n");
}

TEST(CliCheck, WrongThreadsAreRefused) {
  const ProgramRun run = run_evenorm({"check", "--threads", "many"});
  EXPECT_EQ(run.status, 2);
  EXPECT_TRUE(run.one_line()) << run.err;
}

// All of `check --quick`: half a minute.
TEST(CliCheck_Slow, QuickPassesAndItsJsonHoldsEveryRow) {
  const ProgramRun run = run_evenorm({"check", "--quick", "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  const json report = json::parse(run.out);
  EXPECT_TRUE(report["pass"].get<bool>());
  EXPECT_EQ(report["targets"], supported_targets());
  EXPECT_GT(report["accuracy"].size(), 500U);
  for (const json& row : report["accuracy"]) {
    EXPECT_TRUE(row["pass"].get<bool>()) << row;
    EXPECT_LE(row["output"], row["limit"]) << row;
    EXPECT_EQ(row["limit"], row["kind"] == "layer" ? 4.03125 : 3.03125) << row;
  }
  EXPECT_EQ(report["climbing"]["steps"], 10000);
  EXPECT_GT(report["climbing"]["peaks"].size(), 40U);
  for (const json& peak : report["climbing"]["peaks"]) {
    EXPECT_TRUE(peak["pass"].get<bool>()) << peak;
    EXPECT_LE(peak["error"], peak["limit"]) << peak;
  }
  EXPECT_GT(report["same_bits"]["cases"].size(), 30U);
  EXPECT_GT(report["same_bits_of_gradients"]["cases"].size(), 15U);
  for (const char* table : {"same_bits", "same_bits_of_gradients"}) {
    EXPECT_EQ(report[table]["pass"], true);
    for (const json& row : report[table]["cases"]) EXPECT_EQ(row["differing"], json::array()) << row;
  }
}

}  // namespace
}  // namespace evenorm
