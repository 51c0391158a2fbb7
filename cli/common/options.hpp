// The options that `apply` and `grad` share, and their reports in JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/common/norm.hpp"
#include "cli/common/parameters.hpp"

namespace evenorm::cli {

// Values as on the command line; empty if not given.
struct NormOptions {
  ParameterPaths parameters;
  std::string axes, normalized_shape, groups;
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

// Adds the options that choose the norm: axes, parameters, eps, kind. TakesBias::no leaves out --bias.
enum class TakesBias { no, yes };
void add_norm_options(CLI::App& command, NormOptions& options, TakesBias bias);
// Adds --threads, --json and --quiet.
void add_run_options(CLI::App& command, NormOptions& options);

// Make a Norm. The first leaves out axes, weight and bias; the second adds them once the files are open. Both throw
// Failure. The first also throws Error if EVENORM_TARGET is wrong.
Norm norm_of(const NormOptions& options);
void set_axes_and_parameters(const NormOptions& options, const NpyFile& x, const Parameters& parameters, Norm& norm);

// Throws Failure if `other` has another shape than x.
void expect_shape_of(const NpyFile& x, const NpyFile& other);

// Throws Failure if the JSON report and an output would both go to standard output.
void expect_room_for_json(bool json, const Outputs& outputs);

// The part of the report about the input and the norm. path: as on the command line.
nlohmann::ordered_json norm_report(const std::string& path, const NpyFile& x, const Norm& norm, std::uint64_t rows);
// The part of the report about the SIMD target and the threads.
nlohmann::ordered_json run_report(const Norm& norm);
// The report as one line. Names that are not UTF-8 have replacement characters.
std::string line_of(const nlohmann::ordered_json& document);

}  // namespace evenorm::cli
