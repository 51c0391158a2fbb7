// The subcommands: each adds itself to the parser and runs from its callback. One file per subcommand defines them.
// `status` is where a subcommand leaves the exit status of a run that was not refused; refusals are thrown.
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

// The program: parses, runs, reports. Returns the exit status. Never throws.
int run(std::span<const std::string> arguments) noexcept;

}  // namespace evenorm::cli
