// `evenorm bench` measures one pass beside the fastest copy of the same bytes. This file has its options and its
// output. bench_pass.hpp runs the pass, bench_check.hpp checks it, and bench/measure.hpp times it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/copies.hpp"
#include "bench/measure.hpp"
#include "cli/bench_check.hpp"
#include "cli/bench_pass.hpp"
#include "cli/commands.hpp"
#include "cli/common/machine.hpp"
#include "cli/common/options.hpp"
#include "cli/common/progress.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {
namespace {

// Values as on the command line; empty if not given.
struct BenchOptions {
  std::string x = "4096x768", axes, dtype, weight, bias, eps = "1e-5";
  std::string threads = "1", seconds = "1";
  bool rms = false, grad = false, residual = false, int8 = false, plan = false, json = false;
};

constexpr const char* kBenchExamples = R"(Examples:
  evenorm bench                                       layer norm of 4096x768, f32, on one thread
  evenorm bench 512x768 --dtype bf16 --threads 0      rows x columns, on every processor
  evenorm bench 8x384x56x56 --axes 1                  over the channels of (batch, channels, height, width)
  evenorm bench 4096x4096 --rms --residual            RMS norm of x + residual; writes the sum, too
  evenorm bench 4096x768 --grad                       dx, dweight and dbias from precomputed statistics
  evenorm bench x.npy --int8 --seconds 5 --json       your own numbers, quantised; one line of JSON
  evenorm bench x.npy --weight w.npy --bias b.npy --eps 1e-12    with your own parameters
  evenorm bench 4096x768 --residual --plan            how the pass is run: order, memory, streaming stores
  EVENORM_TARGET=avx2 evenorm bench                   on another SIMD target

The result is first compared with the reference. Then the pass and three copies of the same bytes (memcpy, streaming
stores, plain vectors) are timed in turn, round by round, on the same number of threads. Each has warm caches. The
output has the median and the quartiles over all rounds, and the ratio: the fastest copy's time divided by evenorm's. A
ratio of 1 means that the pass is as fast as memory allows.

Exit status: 0 measured, 1 the result is wrong, 2 wrong use or bad input.)";

// --- options ---------------------------------------------------------------------------------------------------------

double parse_seconds(const std::string& text) {
  constexpr double kMost = 3600;
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (error == std::errc{} && stop == end && seconds > 0 && seconds <= kMost) return seconds;
  throw Failure(fmt::format("--seconds is '{}', but should be a number above 0, at most {}", text, kMost));
}

// "4096x768"
Shape parse_shape(const std::string& text) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;  // elements; the bytes of several tensors fit in 64 bits
  const auto refuse = [&] {
    throw Failure(
        fmt::format("X is '{}', but should be sizes of 1 or more, e.g. 4096x768 or 8x384x56x56, or a .npy file", text));
  };
  Shape shape;
  std::int64_t elements = 1;
  std::string_view rest = text;
  for (std::size_t cross = 0; cross != std::string_view::npos;) {
    cross = rest.find('x');
    const auto size = parse_integer(rest.substr(0, cross));
    if (!size || *size < 1) refuse();
    if (*size > kMost / elements) throw Failure(fmt::format("X is '{}', which has more than 2^56 elements", text));
    elements *= *size;
    shape.push_back(*size);
    if (cross != std::string_view::npos) rest.remove_prefix(cross + 1);
  }
  return shape;
}

BenchForm form_of(const BenchOptions& options) {
  const std::pair<const char*, bool> forms[] = {
      {"--grad", options.grad}, {"--residual", options.residual}, {"--int8", options.int8}};
  std::vector<const char*> given;
  for (const auto& [option, is_given] : forms) {
    if (is_given) given.push_back(option);
  }
  if (given.size() > 1) {
    throw Failure(fmt::format("{} and {} are both given, but only one of them can be", given[0], given[1]));
  }
  if (given.empty()) return BenchForm::forward;
  return options.grad ? BenchForm::backward : options.residual ? BenchForm::residual : BenchForm::int8;
}

BenchProblem problem_of(const BenchOptions& options, const std::optional<NpyFile>& file) {
  if (file && !options.dtype.empty()) {
    throw Failure(fmt::format("--dtype is given, but {} has a type of its own, {}", options.x, name(file->dtype())));
  }
  BenchProblem problem{.form = form_of(options), .kind = options.rms ? Kind::rms : Kind::layer};
  problem.eps = parse_number("--eps", options.eps);
  problem.dtype = file ? file->dtype() : dtype_named(options.dtype).value_or(DType::f32);
  problem.shape = file ? file->shape() : parse_shape(options.x);
  problem.axes = normalized_axes(options.x, problem.shape, {.axes = options.axes, .normalized_shape = ""});
  if (product(problem.shape) == 0) {
    throw Failure(fmt::format("{} has shape {}, but should have elements", options.x, shape_text(problem.shape)));
  }
  return problem;
}

Array parameter_of(const BenchProblem& problem, const char* option, const std::string& path) {
  if (path.empty()) return {};
  NpyFile file(path);
  const Shape normalized = sizes_at(problem.shape, problem.axes);
  if (file.shape() != normalized) {
    throw Failure(fmt::format("{} is {} of shape {}, but should have that of the normalised axes, {}", option, path,
                              shape_text(file.shape()), shape_text(normalized)));
  }
  Array parameter = file.allocate();
  file.read(parameter);
  return parameter;
}

// --- timing ----------------------------------------------------------------------------------------------------------

struct Timing {
  std::string_view which;
  bench::Times times;

  bench::Quartiles wall() const { return bench::quartiles(times.wall); }
};

struct Measurement {
  Timing evenorm;
  std::vector<Timing> copies;
  std::size_t best = 0;  // the fastest of the copies
  double seconds = 0;
  std::size_t bytes = 0;  // read and written by each

  const Timing& copy() const { return copies[best]; }
  bench::Quartiles ratio() const { return bench::quartiles(bench::ratios(copy().times.wall, evenorm.times.wall)); }
  double gb_per_s(const Timing& timing) const { return static_cast<double>(bytes) * 1e-9 / timing.wall().median; }
};

Measurement measure(BenchPass& pass, const bench::Traffic& traffic, const Executor& executor, double seconds) {
  constexpr std::uint64_t kParts = 1000;
  const std::vector<bench::CopyKind> kinds = bench::copy_kinds(traffic);
  std::vector<bench::Copy> copies;
  copies.reserve(kinds.size());
  for (const bench::CopyKind kind : kinds) copies.emplace_back(kind, traffic, executor);
  auto run_pass = [&] { pass.run(); };
  std::vector<bench::Work> works{bench::work_of(run_pass)};
  for (bench::Copy& copy : copies) {
    works.push_back({[](void* context) { static_cast<bench::Copy*>(context)->run(); }, &copy});
  }
  Progress progress(kParts, true, Speed::hidden);
  std::uint64_t shown = 0;
  bench::Rounds rounds{.seconds = seconds};
  rounds.progress = [&](double part) {
    const auto now = static_cast<std::uint64_t>(part * kParts);
    progress.advance(now - shown);
    shown = now;
  };
  const double start = bench::kSystemClocks.wall();
  std::vector<bench::Times> times = bench::measure(works, rounds);
  Measurement result{
      {"evenorm", std::move(times[0])}, {}, 0, bench::kSystemClocks.wall() - start, traffic.total_bytes()};
  for (std::size_t i = 0; i < kinds.size(); ++i) result.copies.push_back({name(kinds[i]), std::move(times[i + 1])});
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (result.copies[i].wall().median < result.copy().wall().median) result.best = i;
  }
  return result;
}

// --- output ----------------------------------------------------------------------------------------------------------

nlohmann::ordered_json microseconds(const std::vector<double>& times) {
  const auto [low, median, high] = bench::quartiles(times);
  return {low * 1e6, median * 1e6, high * 1e6};
}

nlohmann::ordered_json problem_json(const BenchOptions& options, const BenchProblem& problem, const Executor& executor,
                                    const BenchVerdict& verdict) {
  return {{"version", version()},         {"cpu", processor_name()},
          {"target", target()},           {"threads", executor.threads},
          {"form", name(problem.form)},   {"kind", problem.kind == Kind::rms ? "rms" : "layer"},
          {"dtype", name(problem.dtype)}, {"x", options.x},
          {"shape", problem.shape},       {"axes", problem.axes},
          {"rows", problem.rows()},       {"cols", problem.cols()},
          {"checked_rows", verdict.rows}, {"largest_error", verdict.worst},
          {"pass", verdict.right()}};
}

nlohmann::ordered_json times_json(const Measurement& m, std::size_t rows) {
  const auto [low, median, high] = m.ratio();
  auto copies = nlohmann::ordered_json::object();
  for (const Timing& copy : m.copies) copies[std::string(copy.which)] = microseconds(copy.times.wall);
  return {{"bytes", m.bytes},
          {"rounds", m.evenorm.times.wall.size()},
          {"seconds", m.seconds},
          {"wall_us", microseconds(m.evenorm.times.wall)},
          {"cpu_us", microseconds(m.evenorm.times.cpu)},
          {"ns_per_row", m.evenorm.wall().median * 1e9 / static_cast<double>(rows)},
          {"gb_per_s", m.gb_per_s(m.evenorm)},
          {"copy",
           {{"which", m.copy().which},
            {"wall_us", microseconds(m.copy().times.wall)},
            {"cpu_us", microseconds(m.copy().times.cpu)},
            {"gb_per_s", m.gb_per_s(m.copy())}}},
          {"copies", std::move(copies)},
          {"ratio", {low, median, high}}};
}

std::string title(const BenchProblem& problem) {
  const char* norm = problem.kind == Kind::rms ? "RMS norm" : "layer norm";
  switch (problem.form) {
    case BenchForm::backward:
      return fmt::format("gradients of {}", norm);
    case BenchForm::residual:
      return fmt::format("residual add and {}", norm);
    case BenchForm::int8:
      return fmt::format("{}, quantised to i8,", norm);
    default:
      return norm;
  }
}

// Four digits, enough to show a spread: "4.412 us", "339.7 us"
std::string fine_time(double seconds) {
  constexpr std::pair<double, const char*> kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  const auto* unit = std::find_if(kUnits, std::end(kUnits) - 1, [&](const auto& u) { return seconds >= u.first; });
  const double value = seconds / unit->first;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 3 : value < 100 ? 2 : 1, unit->second);
}

// "1 row", "4,096 rows"
std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", with_commas(count), what, count == 1 ? "" : "s");
}

std::string problem_text(const BenchProblem& problem, const Executor& executor) {
  const std::string cpu = processor_name();
  return fmt::format("{} of {} {} over ax{} {}: {} of {}\n", title(problem), shape_text(problem.shape),
                     name(problem.dtype), problem.axes.size() == 1 ? "is" : "es", fmt::join(problem.axes, ", "),
                     counted(problem.rows(), "row"), with_commas(problem.cols())) +
         fmt::format("evenorm {} on {}, {}{}{}\n\n", version(), target(), counted(executor.threads, "thread"),
                     cpu.empty() ? "" : "; ", cpu);
}

std::string line_of_times(std::string_view who, const Measurement& m, const Timing& timing, const std::string& more) {
  const auto [low, median, high] = timing.wall();
  return fmt::format("  {:<16}{:>12}   {:<26}{:>8.1f}   {}\n", who, fine_time(median),
                     fine_time(low) + " .. " + fine_time(high), m.gb_per_s(timing), more);
}

std::string times_text(const Measurement& m, const BenchProblem& problem, const BenchVerdict& verdict) {
  const auto [low, median, high] = m.ratio();
  std::vector<std::string_view> kinds;
  for (const Timing& copy : m.copies) kinds.push_back(copy.which);
  const std::string a_row = fine_time(m.evenorm.wall().median / static_cast<double>(problem.rows()));
  return fmt::format("  {:<16}{:>12}   {:<26}{:>8}\n", "", "median", "quartiles", "GB/s") +
         line_of_times("evenorm", m, m.evenorm, a_row + " per row") +
         line_of_times(m.copy().which == "memcpy" ? "memcpy" : fmt::format("{} copy", m.copy().which), m, m.copy(),
                       fmt::format("the best of {}", fmt::join(kinds, ", "))) +
         fmt::format("  {:<16}{:>12.2f}   {:<26}{:>8}   {}\n\n", "ratio", median,
                     fmt::format("{:.2f} .. {:.2f}", low, high), "", "the copy's time / evenorm's") +
         fmt::format("{} bytes read and written; {} in {}; {} checked: {:.0f} % of the allowed error\n",
                     with_commas(m.bytes), counted(m.evenorm.times.wall.size(), "round"), time_text(m.seconds),
                     counted(verdict.rows, "row"), verdict.worst * 100);
}

std::string wrong_text(const BenchVerdict& verdict) {
  return fmt::format("WRONG: {}: the error is {:.3g} times the limit; nothing was timed\n", verdict.of, verdict.worst);
}

int run_bench(const BenchOptions& options) {
  target();  // refuses a wrong EVENORM_TARGET first
  const Executor executor = pool_executor(parse_threads(options.threads));
  const double seconds = parse_seconds(options.seconds);
  std::optional<NpyFile> file;
  if (names_a_file(options.x)) file.emplace(options.x);
  const BenchProblem problem = problem_of(options, file);
  expect_memory(fmt::format("X is '{}', which", options.x), problem.held_bytes());
  BenchTensors given;
  given.weight = parameter_of(problem, "--weight", options.weight);
  given.bias = parameter_of(problem, "--bias", options.bias);
  if (file) {
    given.x = file->allocate();
    file->read(given.x);
  }
  BenchTensors tensors = make_tensors(problem, std::move(given));
  BenchPass pass(problem, tensors, executor);
  if (options.plan) {
    print(options.json ? line_of({{"plan", pass.plan()}}) : pass.plan() + "\n");
    return kDone;
  }
  pass.run();
  const BenchVerdict verdict = check_pass(problem, tensors);
  nlohmann::ordered_json document = problem_json(options, problem, executor, verdict);
  if (!verdict.right()) {
    document["wrong"] = verdict.of;
    print(options.json ? line_of(document) : problem_text(problem, executor) + wrong_text(verdict));
    return kCheckFailed;
  }
  const Measurement measurement = measure(pass, traffic_of(problem, tensors), executor, seconds);
  document.update(times_json(measurement, problem.rows()));
  print(options.json ? line_of(document) : problem_text(problem, executor) + times_text(measurement, problem, verdict));
  return kDone;
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure a norm beside the fastest copy of the same bytes");
  const auto add = [&](const char* flags, std::string& value, const char* type, const char* description) {
    return add_value(*command, flags, value, type, description);
  };
  add("X", options->x, "SIZES|FILE",
      "Sizes, e.g. 8x384x56x56, or a .npy file with your own numbers (default 4096x768)");
  add("--axes", options->axes, "AXES", "Normalised axes, e.g. 1 or -2,-1 (default: the last)");
  add("--dtype", options->dtype, "TYPE", "Type of x, the result and the weight (default f32, or the file's)")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  add("--weight", options->weight, "FILE", "gamma, a .npy file with the normalised axes' shape (default: random)");
  add("--bias", options->bias, "FILE", "beta, a .npy file with the normalised axes' shape (default: random)");
  add("--eps", options->eps, "E", "Added to the variance inside the square root (default 1e-5)");
  command->add_flag("--rms", options->rms, "RMS norm: the mean is not subtracted");
  command->add_flag("--grad", options->grad, "The backward pass: dx, dweight and dbias from precomputed statistics");
  command->add_flag("--residual", options->residual, "Normalise x + residual, and write the sum, too");
  command->add_flag("--int8", options->int8, "Quantise the result to i8, with one scale per row");
  add("--threads", options->threads, "N", "Threads; 0 is one per processor (default 1)");
  add("--seconds", options->seconds, "S", "Seconds to measure; at least seven rounds are run (default 1)");
  command->add_flag("--plan", options->plan, "Print how the library runs the pass, and do not measure it");
  command->add_flag("--json", options->json, "Print one line of JSON; times are quartiles in microseconds");
  command->footer(kBenchExamples);
  command->callback([options, &status] { status = run_bench(*options); });
}

}  // namespace evenorm::cli
