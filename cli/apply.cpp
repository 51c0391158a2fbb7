// `evenorm apply` normalises a .npy file. This file has its options; normalize.hpp does the work.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/options.hpp"
#include "cli/common/parameters.hpp"
#include "cli/common/progress.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "cli/files/npy.hpp"
#include "cli/normalize.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {
namespace {

// Values as on the command line; empty if not given.
struct ApplyOptions {
  std::string x, y, mean, rstd, dtype;
  NormOptions norm;
};

constexpr const char* kApplyExamples = R"(Examples:
  evenorm apply x.npy -o y.npy                                     over the last axis
  evenorm apply x.npy -o y.npy --weight w.npy --bias b.npy         over the axes of the weight
  evenorm apply x.npy -o y.npy --normalized-shape 3,8 --eps 1e-12
  evenorm apply x.npy -o y.npy --axes 1 --weight w.npy             over the channels of (batch, channels, ...)
  evenorm apply x.npy -o y.npy --axes -2,-1                        over the last two axes
  evenorm apply x.npy -o y.npy --groups 32 --weight w.npy          group norm of (batch, channels, ...)
  evenorm apply x.npy -o y.npy --axes -1 --weight scale.npy        adaptive: a scale of (batch, 1, channels)
  evenorm apply x.npy -o y.npy --params model.safetensors --name encoder.layer.0.output.LayerNorm --eps 1e-12
  evenorm apply x.npy -o y.npy --params norm.safetensors           a file with one norm needs no --name
  evenorm apply x.npy -o y.npy --mean mean.npy --rstd rstd.npy     also writes the statistics, as f64
  evenorm apply x.npy -o y.npy --dtype bf16 --json                 rounds to bf16; prints a report as one line of JSON
  evenorm apply x.npy -o x.npy --rms --weight w.npy --threads 0    RMS norm, in place, on every processor
  zcat x.npy.gz | evenorm apply - -o - | gzip > y.npy.gz           from and to pipes

Files are .npy of f16, f32, f64 or bf16 ('<V2', as ml_dtypes writes it), of either byte order, in C or Fortran order.
run.npz:x is the array x of a file that numpy.savez wrote, wherever a .npy file is read.
Outputs are little-endian and in the order of the input; mean and rstd have the shape of the axes that are not
normalised. A tensor larger than memory is processed in pieces. An output file is replaced as a whole at the end, or not
at all; a pipe or device is written piece by piece. If X or the output is a pipe, rows that are not contiguous (Fortran
order, axes other than the last) are held in memory, up to 1 GiB.

The weight and the bias have the shape of the normalised axes, or as many axes as X, each as long as X's or 1. With
--groups they have one element for each channel, and mean and rstd have shape (batch, G). In the FILE of --params, a
norm's weight is NAME.weight, .gamma, .scale or .gain, and its bias is NAME.bias, .beta or .shift.)";

void name_outputs(const ApplyOptions& options, Outputs& outputs, Normalization& what) {
  what.y = outputs.add("-o", options.y);
  if (!options.mean.empty()) what.mean = outputs.add("--mean", options.mean);
  if (!options.rstd.empty()) what.rstd = outputs.add("--rstd", options.rstd);
  expect_room_for_json(options.norm.json, outputs);
}

nlohmann::ordered_json report(const ApplyOptions& options, const NpyFile& x, const Parameters& parameters,
                              const Normalization& what, const Pieces& pieces, double seconds) {
  nlohmann::ordered_json outputs{{"y", options.y}};
  if (what.mean) outputs["mean"] = options.mean;
  if (what.rstd) outputs["rstd"] = options.rstd;
  nlohmann::ordered_json document = norm_report(options.x, x, what.norm, pieces.rows());
  document["bias"] = parameters.bias().present();
  if (!parameters.name().empty()) document["name"] = parameters.name();
  document["output_dtype"] = name(what.y_dtype);
  document.update(run_report(what.norm));
  document.update({{"pieces", pieces.count()}, {"seconds", seconds}, {"outputs", std::move(outputs)}});
  return document;
}

// Reports all errors of use before it reads anything large or writes anything.
void apply(const ApplyOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Normalization what;
  what.norm = norm_of(options.norm);
  if (!options.dtype.empty()) what.y_dtype = parse_dtype("--dtype", options.dtype);

  Outputs outputs;
  name_outputs(options, outputs, what);
  NpyFile x(options.x, Dash::standard_input);
  Parameters parameters(options.norm.parameters);
  outputs.expect_apart(x.file(), "X", "-o");
  parameters.expect_apart(outputs);
  if (options.dtype.empty()) what.y_dtype = x.dtype();
  set_axes_and_parameters(options.norm, x, parameters, what.norm);
  Normalizer normalizer(x, outputs, what);

  outputs.open();
  parameters.read();
  {
    Progress progress(normalizer.total_bytes(), !options.norm.quiet);
    normalizer.run([&](std::uint64_t bytes) { progress.advance(bytes); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::string said;  // printed before the outputs are replaced; if that fails, they stay untouched
  if (options.norm.json) said = line_of(report(options, x, parameters, what, normalizer.pieces(), seconds));
  outputs.finish();
  if (options.norm.json) print_report(said);
  outputs.commit();
}

void add_options(CLI::App& command, ApplyOptions& options) {
  const auto add = [&](const char* flags, std::string& value, const char* type, const char* description) {
    return add_value(command, flags, value, type, description);
  };
  add("X", options.x, "FILE", "The input, a .npy file; - is standard input")->required();
  add("-o,--output", options.y, "FILE", "The output; may be the input file; - is standard output")->required();
  add_norm_options(command, options.norm, TakesBias::yes);
  add("--dtype", options.dtype, "TYPE", "Type of the output: f64, f32, bf16 or f16 (default: the input's)");
  add("--mean", options.mean, "FILE", "Write each row's mean to this file");
  add("--rstd", options.rstd, "FILE", "Write each row's 1 / sqrt(var + eps) to this file");
  add_run_options(command, options.norm);
}

}  // namespace

void add_apply(CLI::App& app) {
  const auto options = std::make_shared<ApplyOptions>();
  CLI::App* command = app.add_subcommand("apply", "Normalise a .npy file with layer norm or RMS norm");
  add_options(*command, *options);
  command->footer(kApplyExamples);
  command->callback([options] { apply(*options); });
}

}  // namespace evenorm::cli
