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

// Shells accept the scripts, and both cover the whole program. The expected commands and options come from --help, not
// from the code that generates the scripts.

using ::testing::Contains;

struct ShellRun {
  int status = -1;
  std::string out;  // both streams
};

ShellRun shell(const std::string& command) {
  ShellRun run;
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
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

// Bash's completions of the last of `words`, in a folder with these files.
Words completed(const Words& words, const Words& files = {}) {
  const TemporaryFolder folder, place;
  write_file(folder / "script", output_of({"completion", "bash"}));
  for (const std::string& file : files) write_file(place / file, "");
  std::string list;
  for (const std::string& word : words) list += "'" + word + "' ";
  write_file(folder / "driver", "source '" + (folder / "script") + "'\ncd '" + (place / "") +
                                    "'\nCOMP_WORDS=(evenorm " + list + ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                                    "\n_evenorm\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
  const ShellRun run = shell("bash --norc '" + (folder / "driver") + "'");
  EXPECT_EQ(run.status, 0) << run.out;
  auto offered = lines_of(run.out);
  std::sort(offered.begin(), offered.end());
  return offered;
}

TEST(CliCompletion_Bash, OffersCommandsAndOptions) {
  EXPECT_THAT(completed({""}), ::testing::UnorderedElementsAreArray(commands()));
  EXPECT_THAT(completed({"ex"}), ElementsAre("explain"));
  EXPECT_THAT(completed({"--v"}), ElementsAre("--version"));
  for (const std::string& command : commands()) {
    EXPECT_THAT(completed({command, "-"}), ::testing::UnorderedElementsAreArray(options(command))) << command;
  }
  EXPECT_THAT(completed({"explain", "4 2 8", "--zero"}), ElementsAre("--zero-centered"));
}

TEST(CliCompletion_Bash, OffersValues) {
  EXPECT_THAT(completed({"explain", "--dtype", ""}), ElementsAre("bf16", "f16", "f32", "f64"));
  EXPECT_THAT(completed({"explain", "--dtype", "f"}), ElementsAre("f16", "f32", "f64"));
  EXPECT_THAT(completed({"explain", "--dtype", "=", "b"}), ElementsAre("bf16"));
  EXPECT_THAT(completed({"explain", "--dtype", "="}), ElementsAre("bf16", "f16", "f32", "f64"));
  EXPECT_THAT(completed({"completion", ""}), ElementsAre("bash", "fish", "zsh"));
  EXPECT_THAT(completed({"explain", "--eps", ""}, {"file"}), ElementsAre(""));
}

TEST(CliCompletion_Bash, OffersFilesWhereTheyAreAccepted) {
  const Words files{"x 1.npy", "x2.npy", "other"};
  EXPECT_THAT(completed({"apply", "x"}, files), ElementsAre("x 1.npy", "x2.npy"));
  EXPECT_THAT(completed({"apply", "x2.npy", "-o", ""}, files), ElementsAre("other", "x 1.npy", "x2.npy"));
  EXPECT_THAT(completed({"grad", "x2.npy", "x"}, files), ElementsAre("x 1.npy", "x2.npy"));
  EXPECT_THAT(completed({"grad", "x2.npy", "x2.npy", "--dbias", "o"}, files), ElementsAre("other"));
  EXPECT_THAT(completed({"explain", "--weight", "o"}, files), ElementsAre("other"));
  EXPECT_THAT(completed({"explain", "--weight", "=", "o"}, files), ElementsAre("other"));
  EXPECT_THAT(completed({"info", ""}, files), ElementsAre(""));
}

TEST(CliCompletion, OtherShellsAcceptTheirScripts) {
  const TemporaryFolder folder;
  for (const char* name : {"zsh", "fish"}) {
    write_file(folder / name, output_of({"completion", name}));
    if (!installed(name)) continue;
    const ShellRun run = shell(std::string(name) + " -n '" + (folder / name) + "'");
    EXPECT_EQ(run.status, 0) << name;
    EXPECT_EQ(run.out, "") << name;
  }
}

TEST(CliCompletion, EveryOptionIsInEveryScriptAndTheManual) {
  const std::string zsh = output_of({"completion", "zsh"}), fish = output_of({"completion", "fish"});
  std::string manual = output_of({"manual"});
  for (std::size_t at = 0; (at = manual.find("\\-", at)) != std::string::npos;) manual.erase(at, 1);
  ASSERT_THAT(commands(),
              ::testing::IsSupersetOf({"apply", "bench", "grad", "check", "explain", "info", "completion"}));
  for (const std::string& command : commands()) {
    EXPECT_THAT(zsh, HasSubstr("        " + command + ")\n")) << command;
    const std::size_t start = manual.find(".SS \"evenorm " + command + "\"");
    ASSERT_NE(start, std::string::npos) << command;
    const std::string part = manual.substr(start, manual.find("\n.SS", start) - start);
    ASSERT_THAT(options(command), Contains("--help"));
    for (const std::string& option : options(command)) {
      EXPECT_THAT(part, HasSubstr("\\fB" + option + "\\fR")) << command;
      EXPECT_THAT(zsh, HasSubstr(")" + option + "["));
      const std::string flag = option.starts_with("--") ? " -l " + option.substr(2) : " -s " + option.substr(1);
      EXPECT_THAT(fish, HasSubstr(flag + " "));
    }
  }
  const std::string grad = zsh.substr(zsh.find("        grad)\n"));
  for (const char* argument : {"'1:FILE:_files'", "'2:FILE:_files'"}) {
    EXPECT_THAT(grad.substr(0, grad.find(";;")), HasSubstr(argument));
  }
}

TEST(CliCompletion, RejectsWrongUse) {
  expect_refused({"completion"}, "");
  expect_refused({"completion", "tcsh"}, "tcsh not in {bash,zsh,fish}");
}

TEST(CliManual, HasItsSectionsAndIsHidden) {
  const std::string manual = output_of({"manual"});
  EXPECT_TRUE(manual.starts_with(".TH EVENORM 1 "));
  for (const char* section : {".SH NAME\n", ".SH SYNOPSIS\n", ".SH OPTIONS\n", ".SH COMMANDS\n", ".SH \"EXAMPLES\"\n",
                              ".SH \"EXIT STATUS\"\n", ".SH \"ENVIRONMENT\"\n"}) {
    EXPECT_THAT(manual, HasSubstr(section));
  }
  EXPECT_THAT(commands(), Not(Contains("manual")));
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
