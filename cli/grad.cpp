// `evenorm grad` runs the backward pass of a norm over .npy files. This file has its options; gradients.hpp does the
// work.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/options.hpp"
#include "cli/common/progress.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "cli/gradients.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {
namespace {

// Values as on the command line; empty if not given.
struct GradOptions {
  std::string x, dy, dx, dweight, dbias, dtype, parameter_dtype;
  NormOptions norm;
};

constexpr const char* kGradExamples = R"(Examples:
  evenorm grad x.npy dy.npy -o dx.npy                                          over the last axis
  evenorm grad x.npy dy.npy -o dx.npy --weight w.npy --dweight dw.npy --dbias db.npy
  evenorm grad x.npy dy.npy --dbias db.npy --dweight dw.npy --param-dtype f64  only the sums over rows, as f64
  evenorm grad x.npy dy.npy -o dx.npy --axes 1 --weight w.npy                  over the channels of (batch, channels, ...)
  evenorm grad x.npy dy.npy --groups 32 --weight w.npy --dweight dw.npy        group norm of (batch, channels, ...)
  evenorm grad x.npy dy.npy -o dx.npy --params model.safetensors --name encoder.layer.0.output.LayerNorm --eps 1e-12
  evenorm grad x.npy dy.npy -o dy.npy --rms --weight w.npy --threads 0         RMS norm, over dy, on every processor
  zcat dy.npy.gz | evenorm grad x.npy - -o - | gzip > dx.npy.gz                from and to pipes

X is the input of the norm, and DY is the gradient of its output; both have the same shape. -o is the gradient of X.
--dweight and --dbias are the gradients of weight and bias. They are summed over what was broadcast, usually all rows,
and have the weight's shape. Axes, groups, weight and eps should be those of the forward pass (evenorm apply). The bias
does not matter.

X and DY are in memory as a whole, because the sums must not depend on pieces. The gradient of X overwrites X in memory
if it has X's type. The file formats are those of evenorm apply, and the gradient of X is in the order of X. All output
files are replaced at the end, or none; pipes and devices are written directly.)";

GradientWork name_outputs(const GradOptions& options, Outputs& outputs) {
  GradientWork what;
  if (!options.dx.empty()) what.dx = outputs.add("-o", options.dx);
  if (!options.dweight.empty()) what.dweight = outputs.add("--dweight", options.dweight);
  if (!options.dbias.empty()) what.dbias = outputs.add("--dbias", options.dbias);
  if (!what.dx && !what.dweight && !what.dbias) {
    throw Failure("no output is given, but at least one of -o, --dweight and --dbias is needed");
  }
  if (!what.dx && !options.dtype.empty()) throw Failure("--dtype is given, but -o is not");
  if (!what.dweight && !what.dbias && !options.parameter_dtype.empty()) {
    throw Failure("--param-dtype is given, but neither --dweight nor --dbias is");
  }
  expect_room_for_json(options.norm.json, outputs);
  return what;
}

void set_dtypes(const GradOptions& options, const NpyFile& x, const NpyFile& dy, GradientWork& what) {
  what.dx_dtype = options.dtype.empty() ? x.dtype() : parse_dtype("--dtype", options.dtype);
  const DType weight = what.norm.weight.present() ? what.norm.weight.array->dtype() : DType::f32;
  what.parameter_dtype = options.parameter_dtype.empty()
                             ? parameter_gradient_dtype({x.dtype(), dy.dtype(), what.dx_dtype, weight})
                             : parse_dtype("--param-dtype", options.parameter_dtype);
}

nlohmann::ordered_json report(const GradOptions& options, const NpyFile& x, const NpyFile& dy,
                              const Parameters& parameters, const GradientWork& what, std::uint64_t rows,
                              double seconds) {
  nlohmann::ordered_json outputs = nlohmann::ordered_json::object();
  if (what.dx) outputs["dx"] = options.dx;
  if (what.dweight) outputs["dweight"] = options.dweight;
  if (what.dbias) outputs["dbias"] = options.dbias;
  nlohmann::ordered_json document = norm_report(options.x, x, what.norm, rows);
  if (!parameters.name().empty()) document["name"] = parameters.name();
  document.update({{"dy", options.dy}, {"dy_dtype", name(dy.dtype())}});
  if (what.dx) document["output_dtype"] = name(what.dx_dtype);
  if (what.dweight || what.dbias) document["param_dtype"] = name(what.parameter_dtype);
  document.update(run_report(what.norm));
  document.update({{"seconds", seconds}, {"outputs", std::move(outputs)}});
  return document;
}

// Reports all errors of use before it reads anything large or writes anything.
void grad(const GradOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Outputs outputs;
  GradientWork what = name_outputs(options, outputs);
  what.norm = norm_of(options.norm);
  if (options.x == "-" && options.dy == "-") throw Failure("X and DY are both standard input, but only one can be");
  NpyFile x(options.x, Dash::standard_input), dy(options.dy, Dash::standard_input);
  Parameters parameters(options.norm.parameters);
  outputs.expect_apart(x.file(), "X", "-o");
  outputs.expect_apart(dy.file(), "DY", "-o");
  parameters.expect_apart(outputs);
  expect_shape_of(x, dy);
  set_axes_and_parameters(options.norm, x, parameters, what.norm);
  set_dtypes(options, x, dy, what);
  Gradients gradients(x, dy, outputs, what);

  outputs.open();
  parameters.read();
  {
    Progress progress(gradients.total_bytes(), !options.norm.quiet);
    gradients.run([&](std::uint64_t bytes) { progress.advance(bytes); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::string said;  // printed before the outputs are replaced; if that fails, they stay untouched
  if (options.norm.json) said = line_of(report(options, x, dy, parameters, what, gradients.rows(), seconds));
  outputs.finish();
  if (options.norm.json) print_report(said);
  outputs.commit();
}

void add_options(CLI::App& command, GradOptions& options) {
  const auto add = [&](const char* flags, std::string& value, const char* type, const char* description) {
    return add_value(command, flags, value, type, description);
  };
  add("X", options.x, "FILE", "The input of the norm, a .npy file; - is standard input")->required();
  add("DY", options.dy, "FILE", "The gradient of the norm's output, with X's shape; - is standard input")->required();
  add("-o,--output", options.dx, "FILE", "Write the gradient of X to this file; may be X or DY; - is standard output");
  add("--dweight", options.dweight, "FILE", "Write the gradient of the weight, a sum over rows, to this file");
  add("--dbias", options.dbias, "FILE", "Write the gradient of the bias, a sum over rows, to this file");
  add_norm_options(command, options.norm, TakesBias::no);
  add("--dtype", options.dtype, "TYPE", "Type of the gradient of X: f64, f32, bf16 or f16 (default: X's)");
  add("--param-dtype", options.parameter_dtype, "TYPE",
      "Type of --dweight and --dbias (default: f64 if X, DY, -o or the weight is f64, else f32)");
  add_run_options(command, options.norm);
}

}  // namespace

void add_grad(CLI::App& app) {
  const auto options = std::make_shared<GradOptions>();
  CLI::App* command = app.add_subcommand("grad", "Compute the gradients of layer norm or RMS norm from .npy files");
  add_options(*command, *options);
  command->footer(kGradExamples);
  command->callback([options] { grad(*options); });
}

}  // namespace evenorm::cli
