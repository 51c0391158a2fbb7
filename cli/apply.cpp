// `evenorm apply`: normalises a .npy file. What its options mean; the work is normalize.hpp's.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.hpp"
#include "evenorm/evenorm.hpp"
#include "layout.hpp"
#include "normalize.hpp"
#include "npy.hpp"
#include "parameters.hpp"
#include "progress.hpp"
#include "text.hpp"

namespace evenorm::cli {
namespace {

// As on the command line: empty where not given.
struct ApplyOptions {
  std::string x, y, mean, rstd, dtype;
  ParameterPaths parameters;
  std::string axes, normalized_shape;
  std::string eps = "1e-5";
  std::string threads = "1";
  bool rms = false;
  bool zero_centered = false;
  bool json = false;
  bool quiet = false;
};

constexpr const char* kExamples = R"(Examples:
  evenorm apply x.npy -o y.npy                                     over the last axis
  evenorm apply x.npy -o y.npy --weight w.npy --bias b.npy         over the axes of the weight
  evenorm apply x.npy -o y.npy --normalized-shape 3,8 --eps 1e-12
  evenorm apply x.npy -o y.npy --axes 1 --weight w.npy             over the channels of (batch, channels, ...)
  evenorm apply x.npy -o y.npy --axes -2,-1                        over the last two axes
  evenorm apply x.npy -o y.npy --params model.safetensors --name encoder.layer.0.output.LayerNorm --eps 1e-12
  evenorm apply x.npy -o y.npy --params norm.safetensors           of the one norm that is in it
  evenorm apply x.npy -o y.npy --mean mean.npy --rstd rstd.npy     the statistics too, as f64
  evenorm apply x.npy -o y.npy --dtype bf16 --json                 rounded to bf16; what was done, as a line of JSON
  evenorm apply x.npy -o x.npy --rms --weight w.npy --threads 0    RMS norm, in place, on every processor
  zcat x.npy.gz | evenorm apply - -o - | gzip > y.npy.gz           from and to pipes

Files are .npy of f16, f32, f64 or bf16 ('<V2', as ml_dtypes writes it), of either byte order, in C or Fortran order.
Outputs are little-endian and in the order of the input; mean and rstd have the shape of the axes that are not
normalised. What is larger than memory passes in pieces. An output file is replaced at the end, all at once, or not at
all; a pipe or device is written as it comes. Through a pipe, rows that do not lie together (Fortran order, axes other
than the last) are held in memory, up to 1 GiB. In the FILE of --params a norm's weight is NAME.weight, .gamma, .scale
or .gain and its bias NAME.bias, .beta or .shift.)";

DType parse_dtype(const std::string& text) {
  if (const auto dtype = dtype_named(text)) return *dtype;
  throw Failure(fmt::format("--dtype is '{}', but should be f64, f32, bf16 or f16", text));
}

void name_outputs(const ApplyOptions& options, Outputs& outputs, Normalization& what) {
  what.y = outputs.add("-o", options.y);
  if (!options.mean.empty()) what.mean = outputs.add("--mean", options.mean);
  if (!options.rstd.empty()) what.rstd = outputs.add("--rstd", options.rstd);
  if (options.json && outputs.has_standard_output()) {
    throw Failure("--json goes to standard output, but an output is there already");
  }
}

nlohmann::ordered_json report(const ApplyOptions& options, const NpyFile& x, const Parameters& parameters,
                              const Normalization& what, const Pieces& pieces, double seconds) {
  nlohmann::ordered_json outputs{{"y", options.y}};
  if (what.mean) outputs["mean"] = options.mean;
  if (what.rstd) outputs["rstd"] = options.rstd;
  nlohmann::ordered_json document{{"input", options.x},
                                  {"shape", x.shape()},
                                  {"dtype", name(x.dtype())},
                                  {"order", x.fortran_order() ? "Fortran" : "C"},
                                  {"axes", what.axes},
                                  {"normalized_shape", sizes_at(x.shape(), what.axes)},
                                  {"rows", pieces.rows()},
                                  {"kind", what.kind == Kind::rms ? "rms" : "layer"},
                                  {"eps", what.eps},
                                  {"zero_centered", what.zero_centered},
                                  {"weight", parameters.weight().present()},
                                  {"bias", parameters.bias().present()}};
  if (!parameters.name().empty()) document["name"] = parameters.name();
  document.update({{"output_dtype", name(what.y_dtype)},
                   {"target", target()},
                   {"threads", what.threads == 1 ? 1 : pool_executor(what.threads).threads},
                   {"pieces", pieces.count()},
                   {"seconds", seconds},
                   {"outputs", std::move(outputs)}});
  return document;
}

// A name that is no UTF-8 is shown as well as can be.
std::string line_of(const nlohmann::ordered_json& document) {
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// All that can be wrong is told before anything large is read and before anything is written.
void apply(const ApplyOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Normalization what;
  what.eps = parse_eps(options.eps);
  what.threads = parse_threads(options.threads);
  what.kind = options.rms ? Kind::rms : Kind::layer;
  what.zero_centered = options.zero_centered;
  if (!options.dtype.empty()) what.y_dtype = parse_dtype(options.dtype);
  target();  // a wrong EVENORM_TARGET

  Outputs outputs;
  name_outputs(options, outputs, what);
  NpyFile x(options.x, Dash::standard_input);
  Parameters parameters(options.parameters);
  outputs.expect_apart(x.file(), "X", "-o");
  parameters.expect_apart(outputs);
  if (options.dtype.empty()) what.y_dtype = x.dtype();
  what.axes =
      normalized_axes(x.file().path(), x.shape(),
                      axes_choice(options.axes, options.normalized_shape, parameters.weight(), parameters.bias()));
  what.weight = &parameters.weight();
  what.bias = &parameters.bias();
  Normalizer normalizer(x, outputs, what);

  outputs.open();
  parameters.read();
  {
    Progress progress(normalizer.total_bytes(), !options.quiet);
    normalizer.run([&](std::uint64_t bytes) { progress.advance(bytes); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::string said;  // made before the outputs take their places: a lack of memory would be told too late
  if (options.json) said = line_of(report(options, x, parameters, what, normalizer.pieces(), seconds));
  outputs.commit();
  if (options.json) print(said);
}

void add_options(CLI::App& command, ApplyOptions& options) {
  const CLI::Validator given = not_empty();
  const auto add = [&](const char* flags, std::string& value, const char* type, const char* description) {
    return command.add_option(flags, value, description)->type_name(type)->check(given);
  };
  add("X", options.x, "FILE", "The input, a .npy file; - is standard input")->required();
  add("-o,--output", options.y, "FILE", "The result; may be the input; - is standard output")->required();
  add("--axes", options.axes, "AXES",
      "The axes that are normalised together, e.g. 1 or -2,-1, from the end if negative");
  add("--normalized-shape", options.normalized_shape, "SIZES",
      "The trailing axes that are, by size, e.g. 3,8; else those of the weight or bias, or the last axis");
  add("--weight", options.parameters.weight, "FILE", "gamma, .npy of the normalised axes' shape (1)");
  add("--bias", options.parameters.bias, "FILE", "beta, .npy of the normalised axes' shape (0)");
  add("--params", options.parameters.params, "FILE", "Weight and bias from a .safetensors file");
  add("--name", options.parameters.name, "NAME", "Which norm in that file");
  add("--eps", options.eps, "E", "Added to the variance, inside the square root (1e-5)");
  command.add_flag("--rms", options.rms, "RMS norm: no mean is taken off");
  command.add_flag("--zero-centered", options.zero_centered, "1 + weight takes the place of the weight");
  add("--dtype", options.dtype, "TYPE", "Type of the result: f64, f32, bf16 or f16 (the input's)");
  add("--mean", options.mean, "FILE", "Where to write each row's mean");
  add("--rstd", options.rstd, "FILE", "Where to write each row's 1 / sqrt(var + eps)");
  add("--threads", options.threads, "N", "Threads; 0: one per processor (1)");
  command.add_flag("--json", options.json, "Say what was done in one line of JSON");
  command.add_flag("--quiet", options.quiet, "No progress on the terminal");
}

}  // namespace

void add_apply(CLI::App& app) {
  const auto options = std::make_shared<ApplyOptions>();
  CLI::App* command = app.add_subcommand("apply", "Layer norm or RMS norm of a .npy file");
  add_options(*command, *options);
  command->footer(kExamples);
  command->callback([options] { apply(*options); });
}

}  // namespace evenorm::cli
