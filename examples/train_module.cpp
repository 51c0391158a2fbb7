// Trains one of evenorm's modules: a new LayerNorm learns a real model's gamma and beta from the inputs and outputs of
// the model's norm. Usage: train_module INPUT WEIGHT BIAS EXPECTED [OUTPUT], .npy of f32. WEIGHT and BIAS are the
// model's parameters, which training must find. OUTPUT is a .safetensors file for the trained parameters. Exit status:
// 0 if training finds the parameters to kTolerance, 1 if it does not, 2 wrong use or bad input.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "cli/common/text.hpp"
#include "cli/files/module_files.hpp"
#include "cli/files/npy.hpp"
#include "evenorm/modules.hpp"

namespace {

using evenorm::cli::Array;
using evenorm::cli::Failure;

constexpr double kEps = 1e-12;       // the model's
constexpr double kTolerance = 1e-6;  // of gamma and beta, which are at most 0.76, where an ulp of f32 is 6e-8
constexpr int kMostSteps = 500;

struct Data {
  Array x, weight, bias, target;
};

Array read_f32(const std::string& path) {
  Array array = evenorm::cli::read_npy(path);
  if (array.dtype() == evenorm::DType::f32) return array;
  throw Failure(fmt::format("{} has type {}, but should have f32", path, name(array.dtype())));
}

std::span<float> elements_of(const evenorm::Tensor& parameter, std::size_t size) {
  return {static_cast<float*>(parameter.data), size};
}

// The loss is 1/2 sum over columns of mean over rows of (gamma xhat + beta - target)^2: one quadratic for each column,
// whose second derivatives are (mean xhat^2, mean xhat; mean xhat, 1). These are the largest and smallest curvatures.
struct Curvature {
  double most = 0, least = INFINITY;
};

Curvature measure_curvature(std::span<const float> xhat, std::size_t cols) {
  const std::size_t rows = xhat.size() / cols;
  Curvature curvature;
  for (std::size_t i = 0; i < cols; ++i) {
    double mean = 0, square = 0;
    for (std::size_t at = i; at < xhat.size(); at += cols) {
      mean += static_cast<double>(xhat[at]);
      square += static_cast<double>(xhat[at]) * static_cast<double>(xhat[at]);
    }
    mean /= static_cast<double>(rows);
    square /= static_cast<double>(rows);
    const double middle = (square + 1) / 2, radius = std::hypot((square - 1) / 2, mean);
    curvature.most = std::max(curvature.most, middle + radius);
    curvature.least = std::min(curvature.least, middle - radius);
  }
  return curvature;
}

// Gradient descent with momentum ("heavy ball"), with the best step and momentum for quadratics between two curvatures
// (Polyak 1964). The loss rises for some steps before it falls, because so much momentum overshoots at first.
class Descent {
 public:
  Descent(evenorm::LayerNorm& module, const Curvature& curvature) : module_(module) {
    const double steep = std::sqrt(curvature.most), flat = std::sqrt(curvature.least);
    step_ = 4 / ((steep + flat) * (steep + flat));
    momentum_ = (steep - flat) / (steep + flat) * ((steep - flat) / (steep + flat));
    velocity_.resize(module.num_parameters());
  }

  double step() const { return step_; }
  double momentum() const { return momentum_; }

  void update() {
    const std::size_t cols = module_.num_parameters() / 2;
    const std::span velocity(velocity_);
    move(elements_of(module_.weight(), cols), elements_of(module_.weight_grad(), cols), velocity.first(cols));
    move(elements_of(module_.bias(), cols), elements_of(module_.bias_grad(), cols), velocity.last(cols));
  }

 private:
  void move(std::span<float> parameter, std::span<const float> gradient, std::span<double> velocity) const {
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      velocity[i] = momentum_ * velocity[i] - step_ * static_cast<double>(gradient[i]);
      parameter[i] = static_cast<float>(static_cast<double>(parameter[i]) + velocity[i]);
    }
  }

  evenorm::LayerNorm& module_;
  double step_ = 0, momentum_ = 0;
  std::vector<double> velocity_;
};

// Returns the loss and writes its gradient by y to dy.
double loss_of(std::span<const float> y, std::span<const float> target, std::size_t rows, std::span<float> dy) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double error = static_cast<double>(y[i]) - static_cast<double>(target[i]);
    dy[i] = static_cast<float>(error / static_cast<double>(rows));
    sum += error * error;
  }
  return sum / (2 * static_cast<double>(rows));
}

double distance(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;  // the negated comparison lets a NaN count
  }
  return largest;
}

// True if the module's parameters become the model's.
bool train(evenorm::LayerNorm& module, const Data& data) {
  const std::size_t cols = data.weight.elements(), rows = data.x.elements() / cols;
  const evenorm::ConstTensor x = data.x.view();
  std::vector<float> y(data.x.elements()), dy(y.size());
  const evenorm::Tensor y_view{y.data(), x.dtype, x.shape, {}};
  const evenorm::ConstTensor dy_view{dy.data(), x.dtype, x.shape, {}};

  module.forward(x, y_view);  // gamma is 1 and beta is 0, so y is xhat
  Descent descent(module, measure_curvature(y, cols));
  fmt::print("{} rows of {}; step {:.4f}, momentum {:.3f}\n\n", rows, cols, descent.step(), descent.momentum());
  fmt::print("  step          loss   |gamma - model's|   |beta - model's|    (largest)\n");
  for (int step = 0; step <= kMostSteps; ++step) {
    module.forward(x, y_view);
    const double loss = loss_of(y, data.target.as<float>(), rows, dy);
    const double gamma = distance(elements_of(module.weight(), cols), data.weight.as<float>());
    const double beta = distance(elements_of(module.bias(), cols), data.bias.as<float>());
    const bool found = gamma <= kTolerance && beta <= kTolerance;
    fmt::print("{:>6}  {:>12.5e}  {:>18.2e}  {:>17.2e}\n", step, loss, gamma, beta);
    if (found) {
      fmt::print("\nfound the model's gamma and beta to {} in {} steps\n", kTolerance, step);
      return true;
    }
    module.zero_grad();
    module.backward(dy_view, x, {});
    descent.update();
  }
  fmt::print("\nNOT FOUND to {} in {} steps\n", kTolerance, kMostSteps);
  return false;
}

Data read_data(std::span<char*> paths) {
  Data data{read_f32(paths[0]), read_f32(paths[1]), read_f32(paths[2]), read_f32(paths[3])};
  const auto expect_shape = [&](std::size_t i, const Array& array, const Array& other, const char* what) {
    if (array.shape() == other.shape()) return;
    throw Failure(fmt::format("{} has shape {}, but should have that of {}, {}", paths[i],
                              evenorm::cli::shape_text(array.shape()), what, evenorm::cli::shape_text(other.shape())));
  };
  expect_shape(2, data.bias, data.weight, "the weight");
  expect_shape(3, data.target, data.x, "the input");
  return data;
}

int run(std::span<char*> paths) {
  const Data data = read_data(paths);
  evenorm::LayerNorm module(data.weight.shape(), {.eps = kEps});
  if (!train(module, data)) return 1;
  if (paths.size() == 5) evenorm::cli::save_module(module, paths[4]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5 && argc != 6) throw Failure("usage: train_module INPUT WEIGHT BIAS EXPECTED [OUTPUT]");
    return run(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_module: {}\n", evenorm::cli::printable(error.what()));
    return 2;
  }
}
