// `evenorm grad`: the backward pass of a norm over .npy files. What its options mean; the work is gradients.hpp's.
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

// As on the command line: empty where not given.
struct GradOptions {
  std::string x, dy, dx, dweight, dbias, dtype, parameter_dtype;
  NormOptions norm;
};

constexpr const char* kGradExamples = R"(Examples:
  evenorm grad x.npy dy.npy -o dx.npy                                          over the last axis
  evenorm grad x.npy dy.npy -o dx.npy --weight w.npy --dweight dw.npy --dbias db.npy
  evenorm grad x.npy dy.npy --dbias db.npy --dweight dw.npy --param-dtype f64  the sums alone, as f64
  evenorm grad x.npy dy.npy -o dx.npy --axes 1 --weight w.npy                  over the channels of (batch, channels, ...)
  evenorm grad x.npy dy.npy -o dx.npy --params model.safetensors --name encoder.layer.0.output.LayerNorm --eps 1e-12
  evenorm grad x.npy dy.npy -o dy.npy --rms --weight w.npy --threads 0         RMS norm, in place of dy, on every processor
  zcat dy.npy.gz | evenorm grad x.npy - -o - | gzip > dx.npy.gz                from and to pipes

X is what the norm was given, DY the gradient of its result, both of one shape; -o is the gradient of X, --dweight that
of the weight and --dbias that of the bias, sums over all rows. Axes, weight and eps should be those of the forward pass
(evenorm apply); a bias plays no part.

X and DY are held in memory whole, for the sums must not depend on pieces; the result takes X's place where it is of
X's type and is held beside them otherwise. Files are as for evenorm apply; the gradient of X is in the order of X. All
outputs are replaced at the end, or none; a pipe or device is written as it comes.)";

GradientWork name_outputs(const GradOptions& options, Outputs& outputs) {
  GradientWork what;
  if (!options.dx.empty()) what.dx = outputs.add("-o", options.dx);
  if (!options.dweight.empty()) what.dweight = outputs.add("--dweight", options.dweight);
  if (!options.dbias.empty()) what.dbias = outputs.add("--dbias", options.dbias);
  if (!what.dx && !what.dweight && !what.dbias) {
    throw Failure("no output is given, but there should be one at least: -o, --dweight or --dbias");
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
  const DType weight = what.norm.weight->present() ? what.norm.weight->dtype() : DType::f32;
  what.parameter_dtype = options.parameter_dtype.empty()
                             ? parameter_gradient_dtype({x.dtype(), dy.dtype(), what.dx_dtype, weight})
                             : parse_dtype("--param-dtype", options.parameter_dtype);
}

void expect_one_shape(const NpyFile& x, const NpyFile& dy) {
  if (x.shape() == dy.shape()) return;
  throw Failure(fmt::format("{} has shape {}, but should have that of {}, {}", dy.file().path(), shape_text(dy.shape()),
                            x.file().path(), shape_text(x.shape())));
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

// All that can be wrong is told before anything large is read and before anything is written.
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
  expect_one_shape(x, dy);
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
  std::string said;  // made and written before the outputs take their places: later it would be told too late
  if (options.norm.json) said = line_of(report(options, x, dy, parameters, what, gradients.rows(), seconds));
  outputs.finish();
  if (options.norm.json) print_report(said);
  outputs.commit();
}

void add_options(CLI::App& command, GradOptions& options) {
  const auto add = [&](const char* flags, std::string& value, const char* type, const char* description) {
    return add_value(command, flags, value, type, description);
  };
  add("X", options.x, "FILE", "What the norm was given, a .npy file; - is standard input")->required();
  add("DY", options.dy, "FILE", "The gradient of its result, of X's shape; - is standard input")->required();
  add("-o,--output", options.dx, "FILE", "The gradient of X; may be X or DY; - is standard output");
  add("--dweight", options.dweight, "FILE", "Where to write the gradient of the weight, a sum over rows");
  add("--dbias", options.dbias, "FILE", "Where to write the gradient of the bias, a sum over rows");
  add_norm_options(command, options.norm, TakesBias::no);
  add("--dtype", options.dtype, "TYPE", "Type of the gradient of X: f64, f32, bf16 or f16 (X's)");
  add("--param-dtype", options.parameter_dtype, "TYPE",
      "Type of the gradients of weight and bias (f64 where X, DY, -o or the weight is, else f32)");
  add_run_options(command, options.norm);
}

}  // namespace

void add_grad(CLI::App& app) {
  const auto options = std::make_shared<GradOptions>();
  CLI::App* command = app.add_subcommand("grad", "The gradients of layer norm or RMS norm, of .npy files");
  add_options(*command, *options);
  command->footer(kGradExamples);
  command->callback([options] { grad(*options); });
}

}  // namespace evenorm::cli
