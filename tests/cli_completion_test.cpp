// `evenorm completion` and the manual page: shells accept the scripts, and both cover the whole program. The expected
// commands and options come from --help, not from the code that generates the scripts.
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

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
