// What the subcommands that run a norm over files take alike: which norm it is, its parameters, how many threads; and
// how they tell what was done. Knows nothing of what is computed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/common/norm.hpp"
#include "cli/common/parameters.hpp"

namespace evenorm::cli {

// As on the command line: empty where not given.
struct NormOptions {
  ParameterPaths parameters;
  std::string axes, normalized_shape;
  std::string eps = "1e-5";
  std::string threads = "1";
  bool rms = false;
  bool zero_centered = false;
  bool json = false;
  bool quiet = false;
};

// An option or argument whose value cannot be empty.
CLI::Option* add_value(CLI::App& command, const char* flags, std::string& value, const char* type,
                       const char* description);

// Which norm: axes, parameters, eps, kind. Without a bias there is no --bias, and none is spoken of.
enum class TakesBias { no, yes };
void add_norm_options(CLI::App& command, NormOptions& options, TakesBias bias);
// How it is run: --threads, --json, --quiet.
void add_run_options(CLI::App& command, NormOptions& options);

// In two steps, as files are opened between them. Both throw Failure, the first Error too where EVENORM_TARGET is
// wrong.
Norm norm_of(const NormOptions& options);  // without axes, weight and bias
void set_axes_and_parameters(const NormOptions& options, const NpyFile& x, const Parameters& parameters, Norm& norm);

// Throws Failure where the line of JSON would meet an output.
void expect_room_for_json(bool json, const Outputs& outputs);

// The input and the norm, for the line of JSON. path: as it was given.
nlohmann::ordered_json norm_report(const std::string& path, const NpyFile& x, const Norm& norm, std::uint64_t rows);
// How it was run: the SIMD target and the threads.
nlohmann::ordered_json run_report(const Norm& norm);
// A name that is no UTF-8 is shown as well as can be.
std::string line_of(const nlohmann::ordered_json& document);

}  // namespace evenorm::cli
