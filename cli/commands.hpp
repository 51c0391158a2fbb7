// The subcommands. Each adds itself to the parser and runs from its callback. It throws if it refuses the run;
// otherwise it may set `status`, the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace evenorm::cli {

inline constexpr int kDone = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kRefused = 2;  // wrong use, bad input, a file that cannot be read or written

void add_apply(CLI::App& app);
void add_bench(CLI::App& app, int& status);
void add_check(CLI::App& app, int& status);
void add_grad(CLI::App& app);
void add_info(CLI::App& app);
void add_completion(CLI::App& app);
void add_manual(CLI::App& app);

// Runs the program: parses the arguments, runs the subcommand and reports errors. Returns the exit status.
int run(std::span<const std::string> arguments) noexcept;

}  // namespace evenorm::cli
