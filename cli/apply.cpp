// `evenorm apply`: normalises a .npy file. The computation is one Forward; everything else here is about files.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "commands.hpp"
#include "evenorm/evenorm.hpp"
#include "npy.hpp"
#include "text.hpp"

namespace evenorm::cli {
namespace {

// As on the command line: empty where not given.
struct ApplyOptions {
  std::string x, y, weight, bias, mean, rstd;
  std::string normalized_shape;
  std::string eps = "1e-5";
  std::string threads = "1";
  bool rms = false;
  bool zero_centered = false;
};

constexpr const char* kExamples = R"(Examples:
  evenorm apply x.npy -o y.npy                                     over the last axis
  evenorm apply x.npy -o y.npy --weight w.npy --bias b.npy         over the axes of the weight
  evenorm apply x.npy -o y.npy --normalized-shape 3,8 --eps 1e-12
  evenorm apply x.npy -o y.npy --mean mean.npy --rstd rstd.npy     the statistics too, as f64
  evenorm apply x.npy -o x.npy --rms --weight w.npy --threads 0    RMS norm, in place, on every processor

Files are little-endian C-order .npy of f16, f32 or f64; the output has the type of the input. An output file is
replaced at the end, all at once, or not at all.)";

// A file that is read, and its place in memory.
struct Source {
  std::optional<NpyFile> file;
  Array array;

  void open(const std::string& path) {
    if (path.empty()) return;
    file.emplace(path);
    array = file->allocate();
  }
  void read() {
    if (file) file->read(array);
  }
};

// One f64 per row that is written, where a path is given.
struct Statistic {
  std::size_t output = 0;
  Array array;

  void write(Outputs& outputs) const {
    if (array.present()) write_npy(outputs, output, array);
  }
};

struct Files {
  Source x, weight, bias;
  Outputs outputs;
  std::size_t y = 0;
  Statistic mean, rstd;
};

std::vector<std::int64_t> normalized_shape(const ApplyOptions& options, const Files& files) {
  if (!options.normalized_shape.empty()) {
    const auto sizes = parse_sizes(options.normalized_shape);
    if (sizes) return *sizes;
    throw Failure(fmt::format("--normalized-shape is '{}', but should be sizes with commas between, e.g. 3,8",
                              options.normalized_shape));
  }
  if (files.weight.file) return files.weight.array.shape();
  if (files.bias.file) return files.bias.array.shape();
  const auto& shape = files.x.array.shape();
  if (shape.empty()) throw Failure(fmt::format("{} has shape (), but should have an axis to normalise", options.x));
  return {shape.back()};
}

double parse_eps(const std::string& text) {
  const auto eps = parse_double(text);
  if (!eps) throw Failure(fmt::format("--eps is '{}', but should be a finite number >= 0", text));
  return *eps;
}

// Room for one f64 per row; what is wrong with the shapes is told by Plan.
Array statistics(const std::vector<std::int64_t>& x_shape, std::size_t normalized_axes) {
  const std::size_t axes = x_shape.size() - std::min(x_shape.size(), normalized_axes);
  std::vector<std::int64_t> shape(x_shape.begin(), x_shape.begin() + static_cast<std::ptrdiff_t>(axes));
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  std::size_t bytes = empty ? 0 : sizeof(double);
  for (const std::int64_t size : shape) {
    if (!empty && __builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) {
      throw Failure(fmt::format("mean and rstd would have shape {}, which is too large", shape_text(shape)));
    }
  }
  return {DType::f64, std::move(shape), bytes};
}

void compute(const Plan& plan, std::size_t threads) {
  if (threads == 1) {
    plan.run();
  } else {
    plan.run(pool_executor(threads));
  }
}

void name_outputs(const ApplyOptions& options, Files& files) {
  files.y = files.outputs.add("-o", options.y);
  if (!options.mean.empty()) files.mean.output = files.outputs.add("--mean", options.mean);
  if (!options.rstd.empty()) files.rstd.output = files.outputs.add("--rstd", options.rstd);
}

Plan plan_for(const ApplyOptions& options, double eps, Files& files) {
  const std::vector<std::int64_t> shape = normalized_shape(options, files);
  const auto& x_shape = files.x.array.shape();
  if (!options.mean.empty()) files.mean.array = statistics(x_shape, shape.size());
  if (!options.rstd.empty()) files.rstd.array = statistics(x_shape, shape.size());
  // The result takes x's place: half the memory, and the same bits by contract.
  return Plan({.kind = options.rms ? Kind::rms : Kind::layer,
               .x = std::as_const(files.x.array).view(),
               .y = files.x.array.view(),
               .normalized_shape = shape,
               .weight = std::as_const(files.weight.array).view(),
               .bias = std::as_const(files.bias.array).view(),
               .mean = files.mean.array.view(),
               .rstd = files.rstd.array.view(),
               .eps = eps,
               .zero_centered = options.zero_centered});
}

// All that can be wrong is told before anything large is read and before anything is written.
void apply(const ApplyOptions& options) {
  const double eps = parse_eps(options.eps);
  const std::size_t threads = parse_threads(options.threads);
  Files files;
  name_outputs(options, files);
  files.x.open(options.x);
  files.weight.open(options.weight);
  files.bias.open(options.bias);
  const Plan plan = plan_for(options, eps, files);
  files.outputs.open();
  files.x.read();
  files.weight.read();
  files.bias.read();
  compute(plan, threads);
  write_npy(files.outputs, files.y, files.x.array);
  files.mean.write(files.outputs);
  files.rstd.write(files.outputs);
  files.outputs.commit();
}

}  // namespace

void add_apply(CLI::App& app) {
  const auto options = std::make_shared<ApplyOptions>();
  CLI::App* command = app.add_subcommand("apply", "Layer norm or RMS norm of a .npy file");
  // An empty value is refused: "" means "not given" above.
  const CLI::Validator given([](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, "");
  const auto add = [&](const char* flags, std::string& value, const char* type, const char* description) {
    return command->add_option(flags, value, description)->type_name(type)->check(given);
  };
  add("X", options->x, "FILE", "The input, a .npy file")->required();
  add("-o,--output", options->y, "FILE", "The result; may be the input")->required();
  add("--normalized-shape", options->normalized_shape, "SIZES",
      "The trailing axes that are normalised together, e.g. 3,8; else those of the weight or bias, or the last axis");
  add("--weight", options->weight, "FILE", "gamma, of the normalised shape (1)");
  add("--bias", options->bias, "FILE", "beta, of the normalised shape (0)");
  add("--eps", options->eps, "E", "Added to the variance, inside the square root (1e-5)");
  command->add_flag("--rms", options->rms, "RMS norm: no mean is taken off");
  command->add_flag("--zero-centered", options->zero_centered, "1 + weight takes the place of the weight");
  add("--mean", options->mean, "FILE", "Where to write each row's mean");
  add("--rstd", options->rstd, "FILE", "Where to write each row's 1 / sqrt(var + eps)");
  add("--threads", options->threads, "N", "Threads; 0: one per processor (1)");
  command->footer(kExamples);
  command->callback([options] { apply(*options); });
}

}  // namespace evenorm::cli
