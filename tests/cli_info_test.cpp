// `evenorm info`, `evenorm check`, help and versions, `evenorm completion` and the manual page.
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

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

// --- completion and the manual page --------------------------------------------------------------------------------

// Both cover the whole program. The expected commands and options come from --help, not from describe.hpp.

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::UnorderedElementsAreArray;

struct ShellRun {
  int status = -1;
  std::string out;  // both streams
};

// Runs a command that finds `evenorm`.
ShellRun shell(const std::string& command) {
  ShellRun run;
  const std::string folder = program().substr(0, program().rfind('/'));
  FILE* pipe = popen(("exec 2>&1; PATH='" + folder + "':$PATH; " + command).c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) run.out.append(buffer, n);
  run.status = WEXITSTATUS(pclose(pipe));
  return run;
}

bool installed(const std::string& program) { return shell("command -v " + program).status == 0; }

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The first words of the lines under "Subcommands:".
Words commands() {
  Words names;
  bool listed = false;
  for (const std::string& line : lines_of(output_of({"--help"}))) {
    if (listed && line.starts_with("  ")) names.push_back(line.substr(2, line.find(' ', 2) - 2));
    if (listed && line.empty()) break;
    listed = listed || line == "Subcommands:";
  }
  return names;
}

// The options of a command, such as "-o" and "--output".
Words options(const std::string& command) {
  Words names;
  for (const std::string& line : lines_of(output_of({command, "--help"}))) {
    if (!line.starts_with("  -")) continue;
    std::string words = line.substr(2, line.find(' ', 2) - 2);
    for (std::size_t start = 0; start < words.size();) {
      const std::size_t end = std::min(words.find(',', start), words.size());
      names.push_back(words.substr(start, end - start));
      start = end + 1;
    }
  }
  return names;
}

// What `echo evenorm LINE` prints after a key that inserts all candidates, in a folder with three files.
std::string completed(const std::string& line) {
  const TemporaryFolder folder;
  for (const char* file : {"x 1.npy", "x2.npy", "other"}) write_file(folder / file, "");
  write_file(folder / "keys", "HISTFILE=\ncd '" + (folder / "") + "'\nsource <(evenorm completion bash)\n" +
                                  "bind 'TAB: insert-completions'\nevenorm " + line + "\t\x01" + "echo \n");
  return shell("LC_ALL=C INPUTRC=/dev/null setsid -w bash --norc --noprofile -i 2>/dev/null <'" + (folder / "keys") +
               "'")
      .out;
}

TEST(CliCompletion, BashOffersCommandsAndOptions) {
  EXPECT_THAT(words_of(completed("")), UnorderedElementsAreArray(Words{"evenorm"} + commands()));
  for (const std::string& command : commands()) {
    EXPECT_THAT(words_of(completed(command + " -")),
                UnorderedElementsAreArray(Words{"evenorm", command} + options(command)));
  }
  EXPECT_EQ(completed("--v"), "evenorm --version\n");
  EXPECT_EQ(completed("explain '4 2 8' --zero"), "evenorm explain 4 2 8 --zero-centered\n");
  EXPECT_EQ(completed("info "), "evenorm info --help --json -h\n");
}

TEST(CliCompletion, BashOffersValuesAndFiles) {
  EXPECT_EQ(completed("explain --dtype "), "evenorm explain --dtype bf16 f16 f32 f64\n");
  EXPECT_EQ(completed("explain --dtype f"), "evenorm explain --dtype f16 f32 f64\n");
  EXPECT_EQ(completed("explain --dtype="), "evenorm explain --dtype=bf16 f16 f32 f64\n");
  EXPECT_EQ(completed("explain --dtype=b"), "evenorm explain --dtype=bf16\n");
  EXPECT_EQ(completed("completion "), "evenorm completion bash fish zsh\n");
  EXPECT_EQ(completed("grad other x"), "evenorm grad other x 1.npy x2.npy\n");
  EXPECT_EQ(completed("apply x2.npy -o o"), "evenorm apply x2.npy -o other\n");
  EXPECT_EQ(completed("explain --weight=o"), "evenorm explain --weight=other\n");
}

TEST(CliCompletion, OtherShellsOfferTheSame) {
  if (installed("fish")) {
    EXPECT_EQ(shell("fish -Nc 'evenorm completion fish | source; complete -C \"evenorm explain --dtype=\"'").out,
              "--dtype=bf16\n--dtype=f16\n--dtype=f32\n--dtype=f64\n");
  }
  if (installed("zsh")) {  // with stand-ins for its functions
    EXPECT_EQ(shell("zsh -fc 'compdef() {}; _describe() { echo $candidates }; source <(evenorm completion zsh); "
                    "words=(evenorm explain --dtype=) CURRENT=3; _evenorm'")
                  .out,
              "--dtype=f64 --dtype=f32 --dtype=bf16 --dtype=f16\n");
  }
}

TEST(CliCompletion, RejectsWrongUse) {
  expect_refused({"completion"}, "");
  expect_refused({"completion", "tcsh"}, "tcsh not in {bash,zsh,fish}");
}

TEST(CliManual, HasEveryOption) {
  std::string manual = output_of({"manual"});
  for (std::size_t at = 0; (at = manual.find("\\-", at)) != std::string::npos;) manual.erase(at, 1);
  ASSERT_THAT(commands(),
              ::testing::IsSupersetOf({"apply", "bench", "grad", "check", "explain", "info", "completion"}));
  for (const std::string& command : commands()) {
    const std::size_t start = manual.find(".SS \"evenorm " + command + "\"");
    ASSERT_NE(start, std::string::npos) << command;
    const std::string part = manual.substr(start, manual.find("\n.SS", start) - start);
    ASSERT_THAT(options(command), Contains("--help"));
    for (const std::string& option : options(command)) {
      EXPECT_THAT(part, HasSubstr("\\fB" + option + "\\fR")) << command;
    }
  }
}

TEST(CliManual, HasItsSectionsAndIsHidden) {
  const std::string manual = output_of({"manual"});
  EXPECT_TRUE(manual.starts_with(".TH EVENORM 1 "));
  for (const char* section : {".SH NAME\n", ".SH SYNOPSIS\n", ".SH OPTIONS\n", ".SH COMMANDS\n", ".SH \"EXAMPLES\"\n",
                              ".SH \"EXIT STATUS\"\n", ".SH \"ENVIRONMENT\"\n"}) {
    EXPECT_THAT(manual, HasSubstr(section));
  }
  EXPECT_THAT(commands(), Not(Contains(AnyOf("manual", "complete"))));
}

TEST(CliManual, FormatsWithoutWarnings) {
  if (!installed("groff")) GTEST_SKIP() << "groff is not installed";
  const TemporaryFolder folder;
  write_file(folder / "evenorm.1", output_of({"manual"}));
  const ShellRun warnings = shell("groff -man -Tutf8 -ww '" + (folder / "evenorm.1") + "' > /dev/null");
  EXPECT_EQ(warnings.status, 0);
  EXPECT_EQ(warnings.out, "");
  const ShellRun page = shell("groff -man -Tascii -P-c -P-b -P-u '" + (folder / "evenorm.1") + "'");
  EXPECT_THAT(page.out, HasSubstr("evenorm explain \"4 2 8\" --weight \"1.5 1 0.5\" --bias \"0.5 0 -0.5\"\n"));
  EXPECT_THAT(page.out, HasSubstr("source <(evenorm completion bash)"));
}

// The installed files equal the program's output.
TEST(CliManual, BuildWritesThePageAndTheScripts) {
  const std::string share = program().substr(0, program().rfind('/')) + "/share/";
  if (!std::ifstream(share + "man/evenorm.1")) GTEST_SKIP() << "build/share has not been made";
  EXPECT_EQ(read_file(share + "man/evenorm.1"), output_of({"manual"}));
  EXPECT_EQ(read_file(share + "bash-completion/evenorm"), output_of({"completion", "bash"}));
  EXPECT_EQ(read_file(share + "zsh/_evenorm"), output_of({"completion", "zsh"}));
  EXPECT_EQ(read_file(share + "fish/evenorm.fish"), output_of({"completion", "fish"}));
}

}  // namespace
}  // namespace evenorm::testing
