// The examples of output in docs/: a line "$ evenorm ..." and the lines below it are what the program prints.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm::testing {
namespace {

constexpr std::string_view kIndent = "    ", kShell = "    $ ", kCommand = "    $ evenorm ";

std::string output_of_shell(const std::string& words) {
  const std::string line = "evenorm() { '" + program() + "' \"$@\"; }; evenorm " + words;
  return output_of({"-c", line}, {.program = "/bin/sh", .folder = in_sources("")});
}

// A line without what depends on the machine: times, the best copy, and in columns all but the first one.
std::string without_measurements(const std::string& line) {
  const std::string label = line.substr(0, std::max<std::size_t>(line.find("  ", line.find_first_not_of(' ')), 1));
  return std::regex_replace(label, std::regex("[0-9.,]+ ?[munGK]?s?|avx3|on .*|streaming copy|plain copy|memcpy"), "#");
}

// Expects the documented lines in the output in this order. "..." stands for any lines, and the end may be left out.
void expect_documented(const std::string& words, const std::vector<std::string>& documented) {
  SCOPED_TRACE(words);
  const bool measured = words.starts_with("bench") || words.starts_with("info");
  std::istringstream output(output_of_shell(words));
  std::string line;
  bool any = false;
  for (const std::string& expected : documented) {
    if (expected == "...") {
      any = true;
      continue;
    }
    const bool exact = !measured || expected.starts_with("numerics revision") || expected.starts_with("version");
    const auto same = [&] {
      return exact ? line == expected : without_measurements(line) == without_measurements(expected);
    };
    while (std::getline(output, line) && any && !same()) {
    }
    EXPECT_TRUE(output && same()) << "documented: " << expected << "\nprinted:    " << line;
    any = false;
  }
}

TEST(Docs, ShowWhatTheProgramPrints) {
  std::size_t shown = 0;
  for (const char* page : {"docs/cli.md", "docs/explain.md"}) {
    std::istringstream text(read_file(in_sources(page)));
    std::string line, words;
    std::vector<std::string> documented;
    while (std::getline(text, line)) {
      if (!words.empty() && line.starts_with(kIndent) && !line.starts_with(kShell)) {
        documented.push_back(line.substr(kIndent.size()));
        continue;
      }
      if (!words.empty() && line.empty() && text.peek() == ' ') {  // an empty line of the output
        documented.emplace_back();
        continue;
      }
      if (!documented.empty()) {
        expect_documented(words, documented);
        ++shown;
      }
      documented.clear();
      const bool writes = std::regex_search(line, std::regex(" -o |--html|\\\\$"));  // files, or on the next line
      words = line.starts_with(kCommand) && !writes ? line.substr(kCommand.size()) : "";
    }
  }
  EXPECT_GE(shown, 4U);
}

}  // namespace
}  // namespace evenorm::testing
