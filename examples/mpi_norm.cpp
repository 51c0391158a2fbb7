// Runs both passes of both norms over MPI processes, each of which has some columns of all rows, and compares the
// results with the unsplit norm on process 0. Usage: mpirun -n 3 build/mpi_norm ROWS COLUMNS [--help for options].
// Exit status: 0 if the results are right, 1 if they are not or a process fails, 2 wrong use.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cli/common/text.hpp"
#include "contracts/backward_accuracy.hpp"
#include "contracts/backward_harness.hpp"
#include "evenorm/mpi.hpp"

namespace {

using evenorm::Kind;
using evenorm::Moments;
using evenorm::cli::with_commas;
using evenorm::contracts::Array;
using evenorm::contracts::BackwardOperation;

// Thrown to end the program with a text that process 0 prints.
struct Usage {
  std::string text;
  int status = 2;  // wrong use
};

struct Options {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::int64_t> columns{};  // of each process
  std::string dtype = "f32";
  int repeat = 1;
  std::int64_t deadline = 10000;  // ms
  bool disagree = false;
  double hang = 0;  // seconds
  double mean = 3;  // of x
};

struct Processes {
  int rank = 0, size = 1;
  bool is_last() const { return rank == size - 1; }
};

// Process i has about i + 1 shares, in multiples of 1024 columns if there are enough columns.
std::vector<std::int64_t> uneven_columns(std::int64_t cols, int size) {
  const std::int64_t shares = std::int64_t{size} * (size + 1) / 2;
  const std::int64_t unit = cols >= 1024 * shares ? 1024 : 1;
  std::vector<std::int64_t> columns;
  std::int64_t first = 0;
  for (std::int64_t i = 1; i <= size; ++i) {
    const std::int64_t last = i == size ? cols : cols * (i * (i + 1) / 2) / shares / unit * unit;
    columns.push_back(last - first);
    first = last;
  }
  return columns;
}

// All processes read the same options, so they all refuse the same ones.
Options read_options(int argc, char** argv, const Processes& processes) {
  Options options;
  CLI::App app("Norms over MPI processes, compared with the unsplit norm.", "mpi_norm");
  app.add_option("ROWS", options.rows)->required()->check(CLI::Range(1, 1 << 20));
  app.add_option("COLUMNS", options.cols, "of a whole row")->required()->check(CLI::Range(1, 1 << 26));
  app.add_option("--columns", options.columns, "of each process, e.g. 1024,0,2048")->delimiter(',');
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  app.add_option("--repeat", options.repeat, "how often the passes are run")->check(CLI::Range(1, 100000));
  app.add_option("--deadline", options.deadline, "ms, for each all-gather")->check(CLI::Range(1, 1 << 30));
  app.add_flag("--disagree", options.disagree, "the last process has one row more");
  app.add_option("--mean", options.mean, "of x, whose variance is 1");
  app.add_option("--hang", options.hang, "seconds that the last process sleeps before its first backward pass");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw Usage{app.help(), 0};
  } catch (const CLI::ParseError& error) {
    throw Usage{fmt::format("mpi_norm: {}\n", error.what())};
  }
  if (options.columns.empty()) options.columns = uneven_columns(options.cols, processes.size);
  const std::int64_t sum = std::accumulate(options.columns.begin(), options.columns.end(), std::int64_t{0});
  if (options.columns.size() != static_cast<std::size_t>(processes.size) || sum != options.cols) {
    throw Usage{fmt::format("mpi_norm: --columns has {} columns for {} processes, but there are {} for {}\n", sum,
                            options.columns.size(), options.cols, processes.size)};
  }
  if (options.rows * options.cols > std::int64_t{1} << 27) {
    throw Usage{"mpi_norm: ROWS * COLUMNS should be at most 2^27\n"};
  }
  return options;
}

// An element of the whole tensor; the same number in every process.
double element(std::uint64_t what, std::size_t row, std::size_t col) {
  return evenorm::contracts::Random((what << 56) + (static_cast<std::uint64_t>(row) << 32) + col).normal();
}

// Columns [first, first + cols) of the inputs of a norm and its gradients, and room for their outputs.
struct Part {
  Part(const BackwardOperation& op, double x_mean, std::size_t rows, std::size_t first, std::size_t cols)
      : shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols)},
        x(op.forward.x, rows * cols),
        dy(op.forward.x, rows * cols),
        weight(op.forward.x, cols),
        bias(op.forward.x, cols),
        y(op.forward.y, rows * cols),
        dx(*op.dx, rows * cols),
        dweight(*op.dgamma, cols),
        dbias(*op.dbeta, cols),
        mean(rows),
        rstd(rows) {
    for (std::size_t i = 0; i < rows * cols; ++i) {
      x.set(i, x_mean + element(0, i / cols, first + i % cols));
      dy.set(i, element(1, i / cols, first + i % cols));
    }
    for (std::size_t i = 0; i < cols; ++i) {
      weight.set(i, 1 + 0.2 * element(2, 0, first + i));
      bias.set(i, 0.2 * element(3, 0, first + i));
    }
    describe(op);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  void describe(const BackwardOperation& op) {
    using evenorm::DType;
    const std::span<const std::int64_t> rows(&shape[0], 1), cols(&shape[1], 1);
    const DType type = op.forward.x;
    forward.kind = backward.kind = op.forward.kind;
    forward.x = backward.x = {x.data(), type, shape, {}};
    forward.y = {y.data(), type, shape, {}};
    forward.normalized_shape = backward.normalized_shape = cols;
    forward.weight = backward.weight = {weight.data(), type, cols, {}};
    forward.bias = {bias.data(), type, cols, {}};
    if (op.forward.kind == Kind::layer) forward.mean = {mean.data(), DType::f64, rows, {}};
    forward.rstd = {rstd.data(), DType::f64, rows, {}};
    backward.dy = {dy.data(), type, shape, {}};
    backward.dx = {dx.data(), type, shape, {}};
    backward.dweight = {dweight.data(), type, cols, {}};
    backward.dbias = {dbias.data(), type, cols, {}};
  }

  std::int64_t shape[2];
  Array x, dy, weight, bias, y, dx, dweight, dbias;
  std::vector<double> mean, rstd;
  evenorm::Forward forward;
  evenorm::Backward backward;
};

constexpr Array Part::*kResults[] = {&Part::y, &Part::dx, &Part::dweight, &Part::dbias};
constexpr const char* kNames[] = {"y", "dx", "dweight", "dbias"};

// --- in every process ----------------------------------------------------------------------------------------------

struct Ran {
  std::size_t bytes = 0;  // of a pass
  std::vector<Moments> moments;
  bool at_blocks = false;
};

Ran run_passes(Part& part, const Options& options, const Processes& processes,
               const evenorm::MpiCommunicator& communicator, bool may_hang) {
  evenorm::ShardedNorm norm(part.forward, communicator.communicator());
  Ran ran{norm.bytes(), std::vector<Moments>(norm.rows()), norm.cuts().at_blocks()};
  norm.run(part.forward, ran.moments);
  if (may_hang && processes.is_last()) std::this_thread::sleep_for(std::chrono::duration<double>(options.hang));
  norm.run(part.backward, ran.moments);
  return ran;
}

bool same_bits(const std::vector<Moments>& a, const std::vector<Moments>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Moments)) == 0;
}

bool true_in_all(bool here) {
  int mine = here ? 1 : 0, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}

// True if all processes have these moments.
bool same_in_all(const std::vector<Moments>& moments) {
  std::vector<Moments> first = moments;
  MPI_Bcast(first.data(), static_cast<int>(first.size() * sizeof(Moments)), MPI_BYTE, 0, MPI_COMM_WORLD);
  return true_in_all(same_bits(first, moments));
}

// Repeats the passes; true if the bits are the same each time.
bool repeats_agree(Part& part, const Ran& first, const Options& options, const Processes& processes,
                   const evenorm::MpiCommunicator& communicator) {
  bool same = same_in_all(first.moments);
  std::vector<Array> before;
  for (const auto result : kResults) before.push_back(part.*result);
  for (int i = 1; i < options.repeat; ++i) {
    for (const auto result : kResults) std::memset((part.*result).data(), 0, (part.*result).bytes().size());
    const Ran again = run_passes(part, options, processes, communicator, false);
    same = same_in_all(again.moments) && same_bits(again.moments, first.moments) && same;
    for (std::size_t k = 0; k < before.size(); ++k) {
      same = std::ranges::equal((part.*kResults[k]).bytes(), before[k].bytes()) && same;
    }
  }
  return true_in_all(same);
}

// All columns of `rows` rows, on process 0.
Array gathered(const Array& mine, std::size_t rows, const Options& options, const Processes& processes) {
  const std::size_t element_bytes = evenorm::size_of(mine.dtype()), cols = static_cast<std::size_t>(options.cols);
  std::vector<int> counts, places;
  int place = 0;
  for (const std::int64_t n : options.columns) {
    counts.push_back(static_cast<int>(rows * static_cast<std::size_t>(n) * element_bytes));
    places.push_back(place);
    place += counts.back();
  }
  std::vector<std::byte> parts(processes.rank == 0 ? static_cast<std::size_t>(place) : 0);
  MPI_Gatherv(mine.data(), counts[static_cast<std::size_t>(processes.rank)], MPI_BYTE, parts.data(), counts.data(),
              places.data(), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (processes.rank != 0) return {};
  Array whole(mine.dtype(), rows * cols);
  const std::byte* from = parts.data();
  std::size_t first = 0;
  for (const std::int64_t n : options.columns) {
    const std::size_t bytes = static_cast<std::size_t>(n) * element_bytes;
    for (std::size_t r = 0; r < rows && bytes != 0; ++r, from += bytes) {
      std::memcpy(whole.data() + (r * cols + first) * element_bytes, from, bytes);
    }
    first += static_cast<std::size_t>(n);
  }
  return whole;
}

// --- on process 0 --------------------------------------------------------------------------------------------------

double largest_difference(const Array& a, const Array& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(evenorm::contracts::value_at(a, i) - evenorm::contracts::value_at(b, i));
    if (!(difference <= largest)) largest = difference;  // the negated comparison lets a NaN count
  }
  return largest;
}

// True if all results are within the bounds of docs/numerics.md.
bool within_bounds(const BackwardOperation& op, const Part& whole, const std::vector<Array>& results) {
  const std::size_t cols = op.forward.cols;
  for (std::size_t r = 0; r < whole.rstd.size(); ++r) {
    const evenorm::contracts::Expected row(op.forward, whole.x.part(r * cols, cols), whole.weight, whole.bias);
    if (!row.errors_of(results[0], r * cols, whole.mean[r], whole.rstd[r]).within_limits(op.forward)) return false;
  }
  const evenorm::contracts::ExpectedGradients gradients(op.measured(), whole.x, whole.dy, whole.weight);
  return gradients.errors_of(results[1], results[2], results[3]).within_limits(op.measured());
}

// Prints a line for each result. True if all are right.
bool compare(const BackwardOperation& op, const std::vector<Array>& results, const Ran& ran, const Options& options) {
  const auto rows = static_cast<std::size_t>(options.rows);
  Part whole(op, options.mean, rows, 0, op.forward.cols);
  evenorm::run(whole.forward);
  evenorm::run(whole.backward);
  bool same = true;
  for (std::size_t k = 0; k < results.size(); ++k) {
    const Array& expected = whole.*kResults[k];
    const bool here = std::ranges::equal(results[k].bytes(), expected.bytes());
    const std::string sent =
        k > 1 ? "" : fmt::format("{:<9}{:>11}", k == 0 ? "forward" : "backward", with_commas(ran.bytes));
    fmt::print("  {:<6}{:<22}{:<9}{}\n", k == 0 ? (op.forward.kind == Kind::layer ? "layer" : "rms") : "", sent,
               kNames[k],
               here ? "the same bits" : fmt::format("{:.2e} apart at most", largest_difference(results[k], expected)));
    same = same && here;
  }
  if (ran.at_blocks) return same;
  const bool within = within_bounds(op, whole, results);
  fmt::print("        all are {} their bounds\n", within ? "within" : "NOT WITHIN");
  return within;
}

void print_head(const Options& options, const Processes& processes, bool at_blocks) {
  fmt::print("evenorm {} on {}: {} rows of {} {} on {} processes: {} columns, {} at multiples of 1024\n",
             evenorm::version(), evenorm::target(), with_commas(static_cast<std::uint64_t>(options.rows)),
             with_commas(static_cast<std::uint64_t>(options.cols)), options.dtype, processes.size,
             fmt::join(options.columns, " + "), at_blocks ? "all cut" : "not all cut");
  fmt::print("  {:<6}{:<9}{:>11}  {:<9}{}\n", "norm", "pass", "bytes sent", "result", "from the unsplit norm");
}

// --- the program ---------------------------------------------------------------------------------------------------

bool run_norm(Kind kind, const Options& options, const Processes& processes,
              const evenorm::MpiCommunicator& communicator) {
  const auto rank = static_cast<std::size_t>(processes.rank);
  BackwardOperation op = evenorm::contracts::same_type_backward(
      kind, evenorm::cli::parse_dtype("--dtype", options.dtype), static_cast<std::size_t>(options.cols));
  op.forward.bias = op.forward.x;
  const std::size_t rows = static_cast<std::size_t>(options.rows) + (options.disagree && processes.is_last() ? 1U : 0U);
  const auto first =
      std::accumulate(options.columns.begin(), options.columns.begin() + processes.rank, std::int64_t{0});
  Part part(op, options.mean, rows, static_cast<std::size_t>(first), static_cast<std::size_t>(options.columns[rank]));
  const Ran ran = run_passes(part, options, processes, communicator, kind == Kind::layer);
  bool right = repeats_agree(part, ran, options, processes, communicator);
  std::vector<Array> results;
  for (const auto result : kResults) {
    const bool of_rows = result == &Part::y || result == &Part::dx;
    results.push_back(gathered(part.*result, of_rows ? rows : 1, options, processes));
  }
  if (processes.rank != 0) return true;
  if (kind == Kind::layer) print_head(options, processes, ran.at_blocks);
  const bool compared = compare(op, results, ran, options);
  if (!right) fmt::print("        BITS DIFFER from repeat to repeat, or moments between processes\n");
  return right && compared;
}

int run_all(const Options& options, const Processes& processes) {
  const evenorm::MpiCommunicator communicator(MPI_COMM_WORLD, std::chrono::milliseconds(options.deadline));
  bool right = true;
  for (const Kind kind : {Kind::layer, Kind::rms}) right = run_norm(kind, options, processes, communicator) && right;
  if (processes.rank == 0) {
    fmt::print("  {} of the passes; {}\n", options.repeat == 1 ? "one run" : fmt::format("{} runs", options.repeat),
               right ? "all is as it should be" : "SOMETHING IS WRONG");
  }
  return true_in_all(right) ? 0 : 1;
}

int guarded(int argc, char** argv, const Processes& processes) {
  try {
    return run_all(read_options(argc, argv, processes), processes);
  } catch (const Usage& usage) {
    if (processes.rank == 0) fmt::print(usage.status == 0 ? stdout : stderr, "{}", usage.text);
    return usage.status;
  } catch (const evenorm::CommunicationError& error) {
    // MPI_Finalize would wait for the missing messages. The pause lets the other processes print their errors.
    fmt::print(stderr, "process {}: {}\n", processes.rank, error.what());
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::fflush(nullptr);
    std::_Exit(1);                         // mpirun ends the others; MPI_Abort may wait for a process that hangs
  } catch (const evenorm::Error& error) {  // thrown in all processes
    fmt::print(stderr, "process {}: {}\n", processes.rank, error.what());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Processes processes;
  MPI_Comm_rank(MPI_COMM_WORLD, &processes.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &processes.size);
  const int status = guarded(argc, argv, processes);
  MPI_Finalize();
  return status;
}
