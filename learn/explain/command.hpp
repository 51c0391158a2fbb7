// The subcommand `evenorm explain`, which adds itself to the program's parser.
#pragma once

#include <CLI/CLI.hpp>

namespace evenorm::cli {

void add_explain(CLI::App& app);

}  // namespace evenorm::cli
