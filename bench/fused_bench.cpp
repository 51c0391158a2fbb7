// See fused_bench.hpp.
#include "fused_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "evenorm/evenorm.hpp"
#include "timing.hpp"

namespace evenorm::bench {
namespace {

float* floats(const Buffer& buffer) { return reinterpret_cast<float*>(buffer.data); }

// The step that a residual costs on its own, as a framework does it.
void add(const float* x, const float* r, std::size_t count, float* sum) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = x[i] + r[i];
}

void check_same(const char* form, const Buffer& a, const Buffer& b, std::size_t bytes) {
  if (std::memcmp(a.data, b.data, bytes) != 0) {
    throw std::runtime_error(fmt::format("{} has not the bits of its steps", form));
  }
}

// The tensors of all forms, and the forms.
struct Forms {
  Forms(std::size_t rows, std::size_t cols)
      : count(rows * cols),
        shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols)},
        x(count * 4),
        r(count * 4),
        sum(count * 4),
        sum_by_step(count * 4),
        y(count * 4),
        y_by_step(count * 4),
        y2(count * 4),
        quantised(count),
        scale(rows * 4),
        gamma(cols * 4),
        beta(cols * 4) {
    for (const auto& [buffer, n] : {std::pair{&x, count}, {&r, count}, {&gamma, cols}, {&beta, cols}}) {
      fill_normal(*buffer, n, false);
    }
    std::reverse(floats(r), floats(r) + count);  // else it would be x
  }

  Forward norm(const Buffer& from, const Buffer& to) const {
    return {.x = {from.data, DType::f32, shape},
            .y = {to.data, DType::f32, shape},
            .normalized_shape = std::span(shape).last(1),
            .weight = {gamma.data, DType::f32, std::span(shape).last(1)},
            .bias = {beta.data, DType::f32, std::span(shape).last(1)}};
  }
  Forward residual() const {
    Forward forward = norm(x, y);
    forward.residual = {r.data, DType::f32, shape};
    forward.sum = {sum.data, DType::f32, shape};
    return forward;
  }
  Forward two() const {
    Forward forward = norm(x, y);
    forward.y2 = {y2.data, DType::f32, shape};
    forward.weight2 = {beta.data, DType::f32, std::span(shape).last(1)};
    return forward;
  }
  Forward int8() const {
    Forward forward = norm(x, y);
    forward.y = {quantised.data, DType::i8, shape};
    forward.scale = {scale.data, DType::f32, std::span(shape).first(1)};
    return forward;
  }

  std::size_t count;
  std::int64_t shape[2];
  Buffer x, r, sum, sum_by_step, y, y_by_step, y2, quantised, scale, gamma, beta;
};

}  // namespace

void print_fused_header() {
  fmt::print("{:>6} x {:<6} {:>10} | times as long: {:>9} {:>10} {:>9} {:>9} {:>9}\n", "rows", "cols", "norm us",
             "add, norm", "x + r, sum", "of steps", "two norms", "to i8");
}

void run_fused_point(std::size_t rows, std::size_t cols, std::size_t threads, double seconds) {
  const Forms forms(rows, cols);
  const Executor executor = pool_executor(threads);
  const Forward plain = forms.norm(forms.x, forms.y), of_sum = forms.norm(forms.sum_by_step, forms.y_by_step);
  const Forward residual = forms.residual(), two = forms.two(), int8 = forms.int8();
  const auto by_steps = [&] {
    add(floats(forms.x), floats(forms.r), forms.count, floats(forms.sum_by_step));
    run(of_sum, executor);
  };
  run(residual, executor);
  by_steps();
  check_same("residual add + norm", forms.y, forms.y_by_step, forms.count * 4);
  check_same("the sum", forms.sum, forms.sum_by_step, forms.count * 4);

  std::vector<Rival> rivals;
  rivals.push_back({"norm", [&] { run(plain, executor); }});
  rivals.push_back({"steps", by_steps});
  rivals.push_back({"residual", [&] { run(residual, executor); }});
  rivals.push_back({"two", [&] { run(two, executor); }});
  rivals.push_back({"int8", [&] { run(int8, executor); }});
  measure(rivals, seconds);
  const auto times = [&](std::size_t i) { return median_ratio(rivals[i], rivals[0]); };
  fmt::print("{:>6} x {:<6} {:>10.2f} | {:>24.2f} {:>10.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", rows, cols,
             median(rivals[0].times) * 1e6, times(1), times(2), median_ratio(rivals[2], rivals[1]), times(3), times(4));
  std::fflush(stdout);
}

}  // namespace evenorm::bench
