// The program's commands and options as plain data, read from the parser, so that completions and the manual page
// always agree with it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace evenorm::cli {

struct OptionDescription {
  std::vector<std::string> names;  // "-o", "--output"; empty for a positional argument
  std::string positional;          // the name of a positional argument
  std::string type;                // "FILE"; empty for a flag
  std::string description;
  std::vector<std::string> values;  // the valid values, if there is a fixed set
  bool required = false;
};

struct CommandDescription {
  std::string name, description;
  std::string footer;  // examples, then paragraphs
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;  // of the program, without hidden ones
};

// Describes the program.
CommandDescription describe(const CLI::App& app);

}  // namespace evenorm::cli
