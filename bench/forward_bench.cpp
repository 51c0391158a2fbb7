// Times the forward pass against oneDNN and against plain copies, over the grid of sizes in kGrid.
// One process, buffers allocated once, results checked first, rivals interleaved round by round; prints medians and
// the median of the paired ratios (oneDNN's time / evenorm's: above 1, evenorm is faster).
#include <fmt/format.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "backward_bench.hpp"
#include "evenorm/evenorm.hpp"
#include "fused_bench.hpp"
#include "layout_bench.hpp"
#include "onednn_rival.hpp"
#include "reference.hpp"
#include "timing.hpp"

namespace {

using namespace evenorm::bench;

struct Size {
  std::size_t rows, cols;
};
constexpr Size kGrid[] = {{1, 768},    {64, 768},    {512, 768},  {4096, 768},  {2048, 4096},
                          {65536, 32}, {8192, 2048}, {64, 65536}, {32768, 2048}};

struct Options {
  std::size_t threads = 1;
  double seconds = 1.0;  // of measuring for each point
  bool bf16 = false;
  bool layouts = false;
  bool backward = false;
  bool fused = false;
  std::vector<std::string> only;
};

// Past the caches, 16 bytes at a time, as a norm that streams its output would write them.
void streaming_copy(const std::byte* from, std::byte* to, std::size_t bytes) {
#if defined(__SSE2__)
  const std::size_t vectors = bytes / 16;
  for (std::size_t i = 0; i < vectors; ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// The largest error of one row of y in u (|gamma| max|xhat| + |beta|), u of the type.
double error_of(const Buffer& x, const Buffer& y, std::size_t row, std::size_t cols, evenorm::DType dtype,
                const Buffer& gamma, const Buffer& beta) {
  namespace reference = evenorm::reference;
  const std::size_t at = row * cols * evenorm::size_of(dtype);
  const auto xs = reference::widen(dtype, x.data + at, cols), ys = reference::widen(dtype, y.data + at, cols);
  const auto gammas = reference::widen(evenorm::DType::f32, gamma.data, cols);
  const auto betas = reference::widen(evenorm::DType::f32, beta.data, cols);
  const auto moments = reference::moments(evenorm::Kind::layer, xs);
  const auto rstd = reference::rstd(moments, 1e-5);
  const auto exact = reference::apply(xs, moments, rstd, {.gamma = gammas, .beta = betas});
  const auto largest = static_cast<double>(reference::largest_xhat(xs, moments, rstd));
  double worst = 0;
  for (std::size_t i = 0; i < cols; ++i) {
    const double bound = std::fabs(static_cast<double>(gammas[i])) * largest + std::fabs(static_cast<double>(betas[i]));
    worst = std::max(worst, std::fabs(static_cast<double>(ys[i] - exact[i])) / bound);
  }
  return worst / (dtype == evenorm::DType::bf16 ? 0x1p-8 : 0x1p-24);
}

// A rival whose results are wrong is not slow or fast. Every rival's first, middle and last row are within `limit`.
void check_rows(const std::string& rival, double limit, const Size& size,
                const std::function<double(std::size_t)>& of) {
  for (const std::size_t row : {std::size_t{0}, size.rows / 2, size.rows - 1}) {
    const double error = of(row);
    if (error <= limit) continue;
    throw std::runtime_error(
        fmt::format("{}: row {} is {:.1f} u off, but it should be within {}", rival, row, error, limit));
  }
}

void run_point(const Size& size, const Options& options) {
  const std::size_t count = size.rows * size.cols, bytes = count * (options.bf16 ? 2 : 4);
  Buffer x(bytes), y(bytes), rival_y(bytes), gamma(size.cols * 4), beta(size.cols * 4);
  fill_normal(x, count, options.bf16);
  fill_normal(gamma, size.cols, false);
  fill_normal(beta, size.cols, false);

  const std::int64_t shape[] = {static_cast<std::int64_t>(size.rows), static_cast<std::int64_t>(size.cols)};
  const auto dtype = options.bf16 ? evenorm::DType::bf16 : evenorm::DType::f32;
  const std::span<const std::int64_t> normalized(shape + 1, 1);
  const evenorm::Plan plan({.x = {x.data, dtype, shape},
                            .y = {y.data, dtype, shape},
                            .normalized_shape = normalized,
                            .weight = {gamma.data, evenorm::DType::f32, normalized},
                            .bias = {beta.data, evenorm::DType::f32, normalized}});
  const evenorm::Executor executor = evenorm::pool_executor(options.threads);
  OneDnnForward onednn(size.rows, size.cols, options.bf16, x.data, rival_y.data, gamma.data, beta.data);

  plan.run(executor);
  check_rows("evenorm", 4, size, [&](std::size_t row) { return error_of(x, y, row, size.cols, dtype, gamma, beta); });

  std::vector<Rival> rivals;
  rivals.push_back({"evenorm", [&] { plan.run(executor); }});
  rivals.push_back({"copy", [&] { std::memcpy(y.data, x.data, bytes); }});
  rivals.push_back({"streaming copy", [&] { streaming_copy(x.data, y.data, bytes); }});
  if (onednn.available()) {
    onednn.run();
    check_rows("oneDNN", 32, size,
               [&](std::size_t row) { return error_of(x, rival_y, row, size.cols, dtype, gamma, beta); });
    rivals.push_back({"oneDNN", [&] { onednn.run(); }});
  }
  measure(rivals, options.seconds);

  const auto us = [&](std::size_t i) { return median(rivals[i].times) * 1e6; };
  const double copy = std::min(us(1), us(2));
  std::string line = fmt::format("{:>6} x {:<6} {:>10.2f} {:>8.1f} {:>10.2f}", size.rows, size.cols, us(0),
                                 2e-3 * static_cast<double>(bytes) / us(0), copy);
  if (onednn.available()) {
    line += fmt::format(" {:>10.2f} {:>9.2f}", us(3), median_ratio(rivals[3], rivals[0]));
  }
  fmt::print("{} {:>10.2f}\n", line, copy / us(0));
  std::fflush(stdout);
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times evenorm's passes against oneDNN and plain copies.");
  app.add_option("--threads", options.threads, "threads of each");
  app.add_option("--seconds", options.seconds, "of measuring for each point");
  app.add_flag("--bf16", options.bf16, "bfloat16 instead of float32");
  app.add_option("--only", options.only, "sizes, as in 512x768");
  app.add_flag("--layouts", options.layouts, "channels-first tensors against the trailing axis instead, in float32");
  app.add_flag("--backward", options.backward, "dx, dweight and dbias, statistics given, in float32");
  app.add_flag("--fused", options.fused, "residual add, two norms and i8 output against their steps, in float32");
  CLI11_PARSE(app, argc, argv);
  if (options.layouts) {
    fmt::print("{}; target {}; {} thread(s); f32\n", processor(), evenorm::target(), options.threads);
    run_layouts(options.threads, options.seconds);
    return 0;
  }
  OneDnnForward::set_threads(options.threads);
  fmt::print("{}; target {}; {} thread(s); {}; oneDNN {}\n", processor(), evenorm::target(), options.threads,
             options.bf16 ? "bf16" : "f32", OneDnnForward::version());
  const auto run_one = [&](const Size& size) {
    if (options.backward) return run_backward_point(size.rows, size.cols, options.threads, options.seconds);
    if (options.fused) return run_fused_point(size.rows, size.cols, options.threads, options.seconds);
    run_point(size, options);
  };
  if (options.backward) print_backward_header();
  if (options.fused) print_fused_header();
  if (!options.backward && !options.fused)
    fmt::print("{:>6} x {:<6} {:>10} {:>8} {:>10} {:>10} {:>9} {:>10}\n", "rows", "cols", "evenorm us", "GB/s",
               "copy us", "oneDNN us", "ratio", "of copy");
  if (options.only.empty()) {
    for (const Size& size : kGrid) run_one(size);
  }
  for (const std::string& text : options.only) {
    char* end = nullptr;
    const std::size_t rows = std::strtoull(text.c_str(), &end, 10);
    const std::size_t cols = *end == 'x' ? std::strtoull(end + 1, &end, 10) : 0;
    if (rows == 0 || cols == 0 || *end != '\0') {
      fmt::print(stderr, "--only is '{}', but it should be as in 512x768\n", text);
      return 2;
    }
    run_one({rows, cols});
  }
}
