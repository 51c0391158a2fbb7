// The subcommand `evenorm explain`.
#pragma once

#include <CLI/CLI.hpp>

namespace evenorm::cli {

void add_explain(CLI::App& app);

}  // namespace evenorm::cli
