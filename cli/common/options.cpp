#include "cli/common/options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/common/layout.hpp"
#include "cli/common/text.hpp"

namespace evenorm::cli {

CLI::Option* add_value(CLI::App& command, const char* flags, std::string& value, const char* type,
                       const char* description) {
  const auto not_empty = [](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); };
  return command.add_option(flags, value, description)->type_name(type)->check(not_empty);
}

void add_norm_options(CLI::App& command, NormOptions& options, TakesBias bias) {
  const bool biased = bias == TakesBias::yes;
  add_value(command, "--axes", options.axes, "AXES",
            "Normalised axes, e.g. 1 or -2,-1; negative numbers count from the end");
  add_value(command, "--normalized-shape", options.normalized_shape, "SIZES",
            biased
                ? "Sizes of the normalised axes, the last ones, e.g. 3,8 (default: the weight's or bias's, or the last)"
                : "Sizes of the normalised axes, the last ones, e.g. 3,8 (default: the weight's, or the last)");
  add_value(command, "--groups", options.groups, "G",
            "Group norm of X, (N, C, ...): G groups of channels, each normalised with all axes after C");
  add_value(command, "--weight", options.parameters.weight, "FILE",
            "gamma, a .npy file with the normalised axes' shape, or one that broadcasts to X (default 1)");
  if (biased) {
    add_value(command, "--bias", options.parameters.bias, "FILE",
              "beta, a .npy file with the normalised axes' shape, or one that broadcasts to X (default 0)");
  }
  add_value(command, "--params", options.parameters.params, "FILE",
            biased ? "Weight and bias from a .safetensors file" : "The weight from a .safetensors file");
  add_value(command, "--name", options.parameters.name, "NAME", "The name of the norm in the --params file");
  add_value(command, "--eps", options.eps, "E", "Added to the variance inside the square root (default 1e-5)");
  command.add_flag("--rms", options.rms, "RMS norm: the mean is not subtracted");
  command.add_flag("--zero-centered", options.zero_centered, "gamma is 1 + weight");
}

void add_run_options(CLI::App& command, NormOptions& options) {
  add_value(command, "--threads", options.threads, "N",
            fmt::format("Threads; 0 is one per processor (default {})", options.threads).c_str());
  command.add_flag("--json", options.json, "Print a report as one line of JSON");
  command.add_flag("--quiet", options.quiet, "Show no progress on the terminal");
}

Norm norm_of(const NormOptions& options) {
  Norm norm;
  norm.eps = parse_number("--eps", options.eps);
  norm.threads = parse_threads(options.threads);
  norm.kind = options.rms ? Kind::rms : Kind::layer;
  norm.zero_centered = options.zero_centered;
  target();  // throws Error if EVENORM_TARGET is wrong
  return norm;
}

void set_axes_and_parameters(const NormOptions& options, const NpyFile& x, const Parameters& parameters, Norm& norm) {
  const std::string& path = x.file().path();
  norm.groups = group_count(options.groups, path, x.shape());
  norm.shape = in_groups(x.shape(), norm.groups);
  norm.axes = normalized_axes(
      path, norm.shape,
      axes_choice(options.axes, options.normalized_shape, options.groups, parameters.weight(), parameters.bias()));
  norm.weight = {&parameters.weight(), parameter_shape("weight", parameters.weight(), path, x.shape(), norm.groups)};
  norm.bias = {&parameters.bias(), parameter_shape("bias", parameters.bias(), path, x.shape(), norm.groups)};
}

void expect_shape_of(const NpyFile& x, const NpyFile& other) {
  if (x.shape() == other.shape()) return;
  throw Failure(fmt::format("{} has shape {}, but should have that of {}, {}", other.file().path(),
                            shape_text(other.shape()), x.file().path(), shape_text(x.shape())));
}

void expect_room_for_json(bool json, const Outputs& outputs) {
  if (json && outputs.has_standard_output()) {
    throw Failure("--json goes to standard output, but so does an output");
  }
}

nlohmann::ordered_json norm_report(const std::string& path, const NpyFile& x, const Norm& norm, std::uint64_t rows) {
  std::vector<std::size_t> axes = norm.axes;
  if (norm.groups != 0) std::ranges::for_each(axes, [](std::size_t& axis) { --axis; });  // those of x.shape()
  nlohmann::ordered_json document{{"input", path},
                                  {"shape", x.shape()},
                                  {"dtype", name(x.dtype())},
                                  {"order", x.fortran_order() ? "Fortran" : "C"},
                                  {"axes", axes},
                                  {"normalized_shape", sizes_at(norm.shape, norm.axes)},
                                  {"rows", rows},
                                  {"kind", norm.kind == Kind::rms ? "rms" : "layer"},
                                  {"eps", norm.eps},
                                  {"zero_centered", norm.zero_centered},
                                  {"weight", norm.weight.present()}};
  if (norm.groups != 0) document["groups"] = norm.groups;
  return document;
}

nlohmann::ordered_json run_report(const Norm& norm) {
  return {{"target", target()}, {"threads", pool_executor(norm.threads).threads}};
}

std::string line_of(const nlohmann::ordered_json& document) {
  return document.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace evenorm::cli
