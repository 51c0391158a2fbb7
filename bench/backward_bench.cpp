// See backward_bench.hpp.
#include "backward_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "evenorm/evenorm.hpp"
#include "onednn_rival.hpp"
#include "timing.hpp"

namespace evenorm::bench {
namespace {

float* floats(const Buffer& buffer) { return reinterpret_cast<float*>(buffer.data); }

// One pass's buffers: what goes in is shared, what comes out is each rival's own.
struct Pass {
  Pass(std::size_t rows, std::size_t cols)
      : shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols)},
        x(rows * cols * 4),
        dy(rows * cols * 4),
        gamma(cols * 4),
        mean(rows * 8),
        rstd(rows * 8),
        mean_f32(rows * 4),
        var_f32(rows * 4) {
    fill_normal(x, rows * cols, false);
    fill_normal(dy, rows * cols, false);
    fill_normal(gamma, cols, false);
    std::reverse(floats(dy), floats(dy) + rows * cols);  // else it would be x
    Buffer y(rows * cols * 4);
    run({.x = {x.data, DType::f32, shape},
         .y = {y.data, DType::f32, shape},
         .normalized_shape = normalized(),
         .mean = {mean.data, DType::f64, outer()},
         .rstd = {rstd.data, DType::f64, outer()}});
    for (std::size_t r = 0; r < rows; ++r) {
      const double scale = reinterpret_cast<double*>(rstd.data)[r];
      floats(mean_f32)[r] = static_cast<float>(reinterpret_cast<double*>(mean.data)[r]);
      floats(var_f32)[r] = static_cast<float>(1 / (scale * scale) - 1e-5);
    }
  }

  std::span<const std::int64_t> normalized() const { return {&shape[1], 1}; }
  std::span<const std::int64_t> outer() const { return {&shape[0], 1}; }

  std::int64_t shape[2];
  Buffer x, dy, gamma, mean, rstd, mean_f32, var_f32;
};

struct Gradients {
  Gradients(std::size_t rows, std::size_t cols) : dx(rows * cols * 4), dgamma(cols * 4), dbeta(cols * 4) {}
  Buffer dx, dgamma, dbeta;
};

// Both passes have to agree to what f32 sums leave of them: a rival that is wrong is not slow or fast.
void check_alike(const char* name, const Buffer& a, const Buffer& b, std::size_t count, double limit) {
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(floats(a)[i])));
    apart = std::max(apart, std::fabs(static_cast<double>(floats(a)[i]) - static_cast<double>(floats(b)[i])));
  }
  if (apart <= limit * largest) return;
  throw std::runtime_error(fmt::format("{} of oneDNN and evenorm are {} apart, of {}", name, apart, largest));
}

}  // namespace

void print_backward_header() {
  fmt::print("{:>6} x {:<6} {:>10} {:>8} {:>10} {:>9} {:>14} {:>9}\n", "rows", "cols", "evenorm us", "GB/s",
             "oneDNN us", "ratio", "recomputed us", "ratio");
}

void run_backward_point(std::size_t rows, std::size_t cols, std::size_t threads, double seconds) {
  const Pass pass(rows, cols);
  Gradients ours(rows, cols), theirs(rows, cols);
  Backward given{.x = {pass.x.data, DType::f32, pass.shape},
                 .dy = {pass.dy.data, DType::f32, pass.shape},
                 .normalized_shape = pass.normalized(),
                 .weight = {pass.gamma.data, DType::f32, pass.normalized()},
                 .mean = {pass.mean.data, DType::f64, pass.outer()},
                 .rstd = {pass.rstd.data, DType::f64, pass.outer()},
                 .dx = {ours.dx.data, DType::f32, pass.shape},
                 .dweight = {ours.dgamma.data, DType::f32, pass.normalized()},
                 .dbias = {ours.dbeta.data, DType::f32, pass.normalized()}};
  Backward recomputed = given;
  recomputed.mean = recomputed.rstd = {};
  Buffer scratch(scratch_bytes(given));
  const std::span<std::byte> room(scratch.data, scratch_bytes(given));
  const Executor executor = pool_executor(threads);
  OneDnnBackward onednn(rows, cols,
                        {pass.x.data, pass.dy.data, theirs.dx.data, pass.gamma.data, theirs.dgamma.data,
                         theirs.dbeta.data, pass.mean_f32.data, pass.var_f32.data});
  std::vector<Rival> rivals;
  rivals.push_back({"evenorm", [&] { run(given, room, executor); }});
  rivals.push_back({"recomputed", [&] { run(recomputed, room, executor); }});
  if (onednn.available()) {
    run(given, room, executor);
    onednn.run();
    check_alike("dx", ours.dx, theirs.dx, rows * cols, 1e-4);
    check_alike("dgamma", ours.dgamma, theirs.dgamma, cols, 1e-4);
    check_alike("dbeta", ours.dbeta, theirs.dbeta, cols, 1e-4);
    rivals.push_back({"oneDNN", [&] { onednn.run(); }});
  }
  measure(rivals, seconds);
  const auto us = [&](std::size_t i) { return median(rivals[i].times) * 1e6; };
  std::string line = fmt::format("{:>6} x {:<6} {:>10.2f} {:>8.1f}", rows, cols, us(0),
                                 12e-3 * static_cast<double>(rows * cols) / us(0));
  if (onednn.available()) {
    line += fmt::format(" {:>10.2f} {:>9.2f} {:>14.2f} {:>9.2f}", us(2), median_ratio(rivals[2], rivals[0]), us(1),
                        median_ratio(rivals[2], rivals[1]));
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace evenorm::bench
