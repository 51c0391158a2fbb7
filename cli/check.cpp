// `evenorm check` runs the contracts on this machine's targets and prints the results. contracts/ defines what is
// measured and the limits.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/check_climb.hpp"
#include "cli/check_rows.hpp"
#include "cli/commands.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "contracts/accuracy.hpp"
#include "contracts/digests.hpp"
#include "contracts/verify.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {
namespace {

struct CheckOptions {
  bool quick = false;
  std::string climb{};
  std::string one_case{};
  RowsOptions rows{};  // --json and --threads, too
};

struct Findings {
  contracts::Report accuracy;
  ClimbFindings climbing;
  contracts::DigestTable digests, gradients;
  double seconds = 0;

  bool pass() const { return accuracy.pass && climbing.pass() && digests.pass && gradients.pass; }
};

constexpr const char* kCheckExamples = R"(Examples:
  evenorm check                   every adversarial input, length and SIMD target of this machine
  evenorm check --quick           fewer inputs on long rows, steps of climbing and cases of equal bits
  evenorm check --climb 2000000   search some minutes longer for rows with large errors, with a fixed seed
  evenorm check --json            one line of JSON: each row with its errors, each case with its digest
  evenorm check --case "layer bf16 weight=f32 64x768 x:mean_1e4 threads=2"
                                  one case, as failures show it: bounds, and equal bits on every target
  evenorm check --x x.npy --y y.npy --weight w.npy --bias b.npy --eps 1e-6 --within 4
                                  the errors of your own result; status 1 if one is beyond 4 u
  evenorm check --x x.npy --rms   what your rows are like, and evenorm's own errors

Exit status: 0 all contracts hold, 1 a contract is broken or an error is beyond --within.)";

constexpr std::size_t kClimbSteps = 50'000, kQuickClimbSteps = 10'000;

bool progress_is_shown() { return isatty(STDERR_FILENO) == 1; }

// Shows the number of rows done, if standard error is a terminal.
auto progress_line() {
  return [shown = progress_is_shown(), done = std::size_t{0}](const contracts::ReportRow& row) mutable {
    ++done;
    if (shown) tell(fmt::format("\r{:5} rows, {} {} {:<24}\r", done, name(row.type), row.cols, row.input));
  };
}

// The value of --climb, or its default.
std::size_t climb_steps(const CheckOptions& options) {
  if (options.climb.empty()) return options.quick ? kQuickClimbSteps : kClimbSteps;
  const std::optional<std::int64_t> steps = parse_integer(options.climb);
  if (!steps || *steps < 0) {
    throw Failure(fmt::format("--climb is '{}', but should be a number of steps, 0 or more", printable(options.climb)));
  }
  return static_cast<std::size_t>(*steps);
}

ClimbFindings find_peaks(std::size_t steps, std::size_t threads) {
  if (steps == 0) return {};
  contracts::ClimbsOptions climbs{steps, threads, {}};
  if (progress_is_shown()) {
    climbs.progress = [done = std::size_t{0}](const contracts::Peak& peak) mutable {
      fmt::print(stderr, "\r{:5} climbs, {:<40}\r", ++done, peak.route.name());
    };
  }
  return {steps, contracts::run_climbs(climbs)};
}

Findings find(const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::size_t steps = climb_steps(options);
  contracts::AccuracyOptions accuracy;
  accuracy.quick = options.quick;
  accuracy.threads = parse_threads(options.rows.norm.threads);
  if (accuracy.threads == 0) accuracy.threads = pool_executor(0).threads;
  accuracy.progress = progress_line();
  Findings findings{contracts::run_accuracy(accuracy), find_peaks(steps, accuracy.threads),
                    contracts::run_digests(contracts::digest_cases(), options.quick),
                    contracts::run_digests(contracts::gradient_cases(), options.quick), 0};
  findings.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return findings;
}

std::string cols_text(std::size_t cols) { return cols == std::size_t{1} << 20 ? "2^20" : std::to_string(cols); }

std::string cell(const contracts::ReportRow& row) {
  const double error = row.worst.output;
  const std::string number = error < 1000 ? fmt::format("{:.2f}", error) : fmt::format("{:.1e}", error);
  return row.pass ? number : number + "!";
}

// The table of one type. Each line has an input, each column a length, each cell the errors of layer norm and RMS norm.
// "-" means that the input does not run at that length; "!" marks a broken limit.
std::string accuracy_table(DType type, const std::vector<contracts::ReportRow>& all) {
  std::vector<std::size_t> lengths;
  std::vector<std::string> inputs;
  for (const auto& row : all) {
    if (row.type != type) continue;
    if (std::find(lengths.begin(), lengths.end(), row.cols) == lengths.end()) lengths.push_back(row.cols);
    if (std::find(inputs.begin(), inputs.end(), row.input) == inputs.end()) inputs.push_back(row.input);
  }
  std::string text = fmt::format("\n{:<24}", name(type));
  for (const std::size_t cols : lengths) text += fmt::format("{:>10}", cols_text(cols));
  for (const std::string& input : inputs) {
    text += fmt::format("\n  {:<22}", input);
    for (const std::size_t cols : lengths) {
      std::string cells;
      for (const auto& row : all) {
        if (row.type != type || row.cols != cols || row.input != input) continue;
        cells += (cells.empty() ? "" : "/") + cell(row);
      }
      text += fmt::format("{:>10}", cells.empty() ? "-" : cells);
    }
  }
  return text + "\n";
}

const char* kind_text(Kind kind) { return kind == Kind::layer ? "layer" : "rms"; }

// The limit without a zero-centred gamma, for all rows of the table; for f64, of short rows.
double output_limit(Kind kind, DType type = DType::f32) {
  return contracts::output_limit(contracts::same_type(kind, type, 1));
}

std::string accuracy_text(const contracts::Report& report) {
  std::string text = fmt::format(
      "Accuracy: the largest errors of y in layer norm / RMS norm, with and without parameters, on all targets.\n"
      "The unit is u (|gamma| max|xhat| + |beta|), and the limits are {:.2f} / {:.2f}, {:.0f} / {:.0f} for f64.\n",
      output_limit(Kind::layer), output_limit(Kind::rms), output_limit(Kind::layer, DType::f64),
      output_limit(Kind::rms, DType::f64));
  for (const DType type : contracts::kAllTypes) text += accuracy_table(type, report.rows);
  contracts::Errors layer, rms, of_f64;
  for (const auto& row : report.rows) {
    (row.type == DType::f64 ? of_f64 : row.kind == Kind::rms ? rms : layer).include(row.worst);
  }
  text += fmt::format(
      "\nlargest errors: layer norm {:.2f} u of {:.2f}, RMS norm {:.2f} u of {:.2f}, rstd {:.2f} u of {}; f64 {:.2f} "
      "u, "
      "rstd {:.2f} u\n",
      layer.output, output_limit(Kind::layer), rms.output, output_limit(Kind::rms), std::max(layer.rstd, rms.rstd),
      contracts::kRstdLimit, of_f64.output, of_f64.rstd);
  for (const auto& row : report.rows) {
    if (row.pass) continue;
    text += fmt::format("BROKEN: {} {} x {}, {}, on {}: output {:.2f} u, rstd {:.2f} u, mean {:.0f} %\n",
                        kind_text(row.kind), name(row.type), row.cols, row.input, row.target, row.worst.output,
                        row.worst.rstd, row.worst.mean * 100);
  }
  return text;
}

std::string digests_text(std::string_view what, const contracts::DigestTable& table) {
  std::string text = fmt::format("\nSame bits{}: {} cases on every target, each in {} ways:\n", what, table.rows.size(),
                                 table.ways.size());
  for (const std::string& way : table.ways) text += fmt::format("  {}\n", way.empty() ? "plain" : way);
  for (const auto& row : table.rows) {
    if (row.differing.empty()) continue;
    text += fmt::format("BROKEN: {}: {}\n", row.name, fmt::join(row.differing, "; "));
  }
  return text + (table.pass ? "all bits are the same\n" : "");
}

nlohmann::ordered_json to_json(const contracts::DigestTable& table) {
  auto cases = nlohmann::ordered_json::array();
  for (const auto& row : table.rows) {
    cases.push_back({{"name", row.name}, {"digest", contracts::digest_text(row.digest)}, {"differing", row.differing}});
  }
  return {{"ways", table.ways}, {"cases", std::move(cases)}, {"pass", table.pass}};
}

nlohmann::ordered_json to_json(const Findings& findings) {
  auto accuracy = nlohmann::ordered_json::array();
  for (const auto& row : findings.accuracy.rows) {
    accuracy.push_back({{"type", name(row.type)},
                        {"cols", row.cols},
                        {"input", row.input},
                        {"kind", kind_text(row.kind)},
                        {"output", row.worst.output},
                        {"limit", row.limit},
                        {"rstd", row.worst.rstd},
                        {"mean", row.worst.mean},
                        {"target", row.target},
                        {"pass", row.pass}});
  }
  return {{"version", version()},
          {"numerics_revision", numerics_revision()},
          {"targets", supported_targets()},
          {"limits", {{"rstd", contracts::kRstdLimit}, {"mean", 1}}},
          {"accuracy", std::move(accuracy)},
          {"climbing", climb_json(findings.climbing)},
          {"same_bits", to_json(findings.digests)},
          {"same_bits_of_gradients", to_json(findings.gradients)},
          {"seconds", findings.seconds},
          {"pass", findings.pass()}};
}

int check_case(const CheckOptions& options) {
  std::string broken;
  try {
    broken = contracts::verify(contracts::parse_case(options.one_case));
  } catch (const std::invalid_argument& error) {
    throw Failure(fmt::format("--case: {}", printable(error.what())));
  }
  if (options.rows.norm.json) {
    print(nlohmann::ordered_json{{"case", options.one_case}, {"broken", broken}, {"pass", broken.empty()}}.dump() +
          "\n");
  } else {
    print(broken.empty() ? "the case keeps every promise\n" : broken);
  }
  return broken.empty() ? kDone : kCheckFailed;
}

int check(const CheckOptions& options) {
  if (!options.rows.x.empty()) return check_rows(options.rows);
  target();  // refuses a wrong EVENORM_TARGET first
  if (!options.one_case.empty()) return check_case(options);
  const Findings findings = find(options);
  if (options.rows.norm.json) {
    print(to_json(findings).dump() + "\n");
  } else {
    print(fmt::format("evenorm {} on {}\n\n", version(), fmt::join(supported_targets(), " ")) +
          accuracy_text(findings.accuracy) + climb_text(findings.climbing) + digests_text("", findings.digests) +
          digests_text(" of gradients", findings.gradients) +
          fmt::format("\ncheck {} in {}\n", findings.pass() ? "passed" : "FAILED", time_text(findings.seconds)));
  }
  return findings.pass() ? kDone : kCheckFailed;
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Test accuracy and same bits on this machine");
  command->add_flag("--quick", options->quick,
                    "Use fewer inputs on long rows, steps of climbing and cases of equal bits");
  command
      ->add_option("--climb", options->climb,
                   "Steps of each search for rows with large errors; 0 is none (default 50000; with --quick 10000)")
      ->type_name("STEPS");
  command->add_option("--case", options->one_case, "Check one case only; contracts/case.hpp lists its words")
      ->type_name("TEXT");
  CLI::Option* x = add_value(*command, "--x", options->rows.x, "FILE", "Check a result from these rows, a .npy file");
  const std::size_t others = command->get_options().size();
  add_value(*command, "--y", options->rows.y, "FILE", "The result, a .npy file of X's shape (default: evenorm's own)");
  add_value(*command, "--within", options->rows.within, "U", "The largest error in u that passes (default: any)");
  add_norm_options(*command, options->rows.norm, TakesBias::yes);
  const std::vector<CLI::Option*> all = command->get_options();
  for (std::size_t i = others; i < all.size(); ++i) all[i]->needs(x);
  for (std::size_t i = 0; i < others; ++i) {
    if (all[i] != x && all[i] != command->get_help_ptr()) all[i]->excludes(x);
  }
  options->rows.norm.threads = "0";
  add_run_options(*command, options->rows.norm);
  command->footer(kCheckExamples);
  command->callback([options, &status] { status = check(*options); });
}

}  // namespace evenorm::cli
