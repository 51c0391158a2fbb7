// Runs a real model's layer norm on its activations. Prints the time, and the errors of evenorm and PyTorch compared
// with the reference in binary128. Usage: minilm_demo INPUT WEIGHT BIAS EXPECTED OUTPUT, all .npy of f32. Exit status:
// 0 within the contract of docs/numerics.md, 1 outside it, 2 wrong use or bad input.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>

#include "cli/common/text.hpp"
#include "cli/files/npy.hpp"
#include "contracts/accuracy.hpp"
#include "evenorm/evenorm.hpp"
#include "reference/reference.hpp"

namespace {

using evenorm::DType;
using evenorm::cli::Array;
using evenorm::cli::Failure;

constexpr double kEps = 1e-12;  // the model's
constexpr double kU = 0x1p-24;

// The contract's limit of the largest difference, in u.
double contract() { return evenorm::contracts::output_limit({}); }

struct Model {
  Array x, weight, bias, expected;
};

// The largest difference between two results, absolute and in u (|gamma_i| max_j |xhat_j| + |beta_i|).
struct Difference {
  double absolute = 0;
  double in_u = 0;

  void include(double difference, double unit) {
    // The negated comparison lets a NaN count.
    if (!(std::abs(difference) <= absolute)) absolute = std::abs(difference);
    if (!(std::abs(difference) / unit <= in_u)) in_u = std::abs(difference) / unit;
  }
};

struct Exactness {
  Difference from_pytorch, from_reference, pytorch_from_reference;
};

Array read_f32(const std::string& path) {
  Array array = evenorm::cli::read_npy(path);
  if (array.dtype() == DType::f32) return array;
  throw Failure(fmt::format("{} has type {}, but should have f32", path, name(array.dtype())));
}

Model read_model(std::span<char*> paths) {
  Model model{read_f32(paths[0]), read_f32(paths[1]), read_f32(paths[2]), read_f32(paths[3])};
  if (model.expected.shape() == model.x.shape()) return model;
  throw Failure(fmt::format("{} has shape {}, but should have that of the input, {}", paths[3],
                            evenorm::cli::shape_text(model.expected.shape()),
                            evenorm::cli::shape_text(model.x.shape())));
}

// Compares every row of y with PyTorch's result and with the reference.
Exactness measure(const Model& model, std::span<const float> y) {
  namespace reference = evenorm::reference;
  const std::size_t cols = model.weight.elements();
  const auto gamma = reference::widen(DType::f32, model.weight.bytes().data(), cols);
  const auto beta = reference::widen(DType::f32, model.bias.bytes().data(), cols);
  const auto x = reference::widen(DType::f32, model.x.bytes().data(), y.size());
  const auto pytorch = model.expected.as<float>();
  Exactness result;
  for (std::size_t first = 0; first < y.size(); first += cols) {
    const auto row = std::span(x).subspan(first, cols);
    const auto moments = reference::moments(evenorm::Kind::layer, row);
    const auto rstd = reference::rstd(moments, kEps);
    const auto largest = static_cast<double>(reference::largest_xhat(row, moments, rstd));
    const auto exact = reference::apply(row, moments, rstd, {.gamma = gamma, .beta = beta});
    for (std::size_t i = 0; i < cols; ++i) {
      const double unit =
          kU * (std::abs(static_cast<double>(gamma[i])) * largest + std::abs(static_cast<double>(beta[i])));
      const float ours = y[first + i], theirs = pytorch[first + i];
      result.from_pytorch.include(static_cast<double>(ours) - static_cast<double>(theirs), unit);
      result.from_reference.include(static_cast<double>(ours - exact[i]), unit);
      result.pytorch_from_reference.include(static_cast<double>(theirs - exact[i]), unit);
    }
  }
  return result;
}

struct Timing {
  double best = INFINITY;  // seconds
  std::size_t runs = 0;
};

// Runs for a quarter of a second.
Timing measure_time(const evenorm::Plan& plan) {
  using Clock = std::chrono::steady_clock;
  Timing timing;
  const auto end = Clock::now() + std::chrono::milliseconds(250);
  for (auto now = Clock::now(); now < end; ++timing.runs) {
    const auto start = now;
    plan.run();
    now = Clock::now();
    timing.best = std::min(timing.best, std::chrono::duration<double>(now - start).count());
  }
  return timing;
}

void print_timing(const Model& model, const Timing& timing) {
  const std::size_t bytes = 2 * model.x.bytes().size() + 2 * model.weight.bytes().size();
  fmt::print("  time        {}, the best of {} runs on one thread (the data are in cache)\n",
             evenorm::cli::time_text(timing.best), evenorm::cli::with_commas(timing.runs));
  fmt::print("  speed       {:.1f} GB/s ({} bytes read and written)\n", static_cast<double>(bytes) / timing.best * 1e-9,
             evenorm::cli::with_commas(bytes));
}

void print_exactness(const Exactness& exactness) {
  const auto line = [](const char* what, const Difference& difference, const std::string& remark) {
    fmt::print("  {:<32}{:>9.2e}  {:>6.2f}{}\n", what, difference.absolute, difference.in_u, remark);
  };
  fmt::print("\n  largest difference of            absolute    in u (|gamma| max|xhat| + |beta|)\n");
  line("evenorm from the reference", exactness.from_reference,
       fmt::format("  (the contract: at most {:.2f})", contract()));
  line("evenorm from PyTorch's output", exactness.from_pytorch, "");
  line("PyTorch from the reference", exactness.pytorch_from_reference, "");
}

int demo(std::span<char*> paths) {
  const Model model = read_model(paths);
  evenorm::cli::Outputs outputs;
  const auto output = outputs.add("OUTPUT", paths[4]);
  Array y(DType::f32, model.x.shape());
  const evenorm::Plan plan({.x = model.x.view(),
                            .y = y.view(),
                            .normalized_shape = model.weight.shape(),
                            .weight = model.weight.view(),
                            .bias = model.bias.view(),
                            .eps = kEps});
  plan.run();
  const Exactness exactness = measure(model, y.as<float>());
  const std::size_t cols = model.weight.elements();
  fmt::print("evenorm {} on {}: the first output norm of all-MiniLM-L6-v2, eps {}\n", evenorm::version(),
             evenorm::target(), kEps);
  fmt::print("  input       {} f32, {} rows of {}\n", evenorm::cli::shape_text(model.x.shape()),
             evenorm::cli::with_commas(y.elements() / cols), cols);
  print_timing(model, measure_time(plan));
  print_exactness(exactness);

  outputs.open();
  evenorm::cli::write_npy(outputs, output, y);
  outputs.commit();
  const bool kept = exactness.from_reference.in_u <= contract();
  fmt::print("\n  the contract is {}; the result is in {}\n", kept ? "kept" : "BROKEN", paths[4]);
  return kept ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 6) throw Failure("usage: minilm_demo INPUT WEIGHT BIAS EXPECTED OUTPUT");
    return demo(std::span(argv, 6).subspan(1));
  } catch (const std::exception& error) {
    fmt::print(stderr, "minilm_demo: {}\n", evenorm::cli::printable(error.what()));
    return 2;
  }
}
