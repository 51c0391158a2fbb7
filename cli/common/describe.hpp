// The program's commands and options as plain data, read off the parser itself, so that what is made of them
// (completion scripts, the manual) cannot drift from it. Knows nothing of shells and manuals.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace evenorm::cli {

struct OptionDescription {
  std::vector<std::string> names;  // "-o", "--output"; none: positional
  std::string positional;          // its name, where it is one
  std::string type;                // "FILE"; empty: a flag
  std::string description;
  std::vector<std::string> values;  // all there are, where they can be counted
  bool required = false;

  bool takes_value() const { return !type.empty(); }
  bool takes_file() const { return type.find("FILE") != std::string::npos; }
};

struct CommandDescription {
  std::string name, description;
  std::string footer;  // examples, then paragraphs
  std::vector<OptionDescription> options;
};

struct ProgramDescription {
  CommandDescription program;
  std::vector<CommandDescription> commands;  // those that are not hidden
};

ProgramDescription describe(const CLI::App& app);

}  // namespace evenorm::cli
