// A GPU gives the bits of the CPU: for every kind, type, width and fused form, on rows that are hard. Rows that leave
// the range of f32 arithmetic are close to those of the CPU, and change no bit of other rows.
#include <cmath>

#include "device.hpp"

namespace evenorm::cuda_tests {
namespace {

struct Case {
  Kind kind = Kind::layer;
  DType x = DType::f32, y = DType::f32, parameters = DType::f32;
  std::size_t rows = 44, cols = 1024;
  bool zero_centered = false, has_residual = false, accumulates = false, in_place = false;
  bool has_parameters = true, sum_in_x = false, only_dx = false;
  bool has_statistics = true;        // of a backward pass
  Rows x_rows = Rows::not_finite;    // dy has some that are not finite, unless rows of both leave the range
  std::size_t skipped = 0, gap = 0;  // elements before each tensor, and between rows
};

// The tensors of a pass. Copies of one set run on the CPU and on the GPU.
class Pass {
 public:
  explicit Pass(const Case& given) : c(given), random_(given.rows * 131 + given.cols) {
    x = rows_of(c.x), residual = rows_of(c.x), y = rows_of(c.y), sum = rows_of(c.x), dbias = rows_of(c.y);
    weight = columns_of(c.parameters), bias = columns_of(c.parameters);
    mean = Memory(c.rows * sizeof(double)), rstd = Memory(c.rows * sizeof(double)), scale = Memory(c.rows * 4);
    const Rows dy_rows = c.x_rows == Rows::leaving ? Rows::leaving : Rows::not_finite;
    for (std::size_t row = 0; row < c.rows; ++row) {
      for (std::size_t col = 0; col < c.cols; ++col) {
        const std::size_t at = c.skipped + row * step() + col;
        put(c.x, x.host, at, hard_element(random_, c.x, c.x_rows, row, col));
        put(c.x, residual.host, at, hard_element(random_, c.x, dy_rows, row * 3 + 1, col));
      }
    }
    for (std::size_t col = 0; col < c.cols; ++col) {
      put(c.parameters, weight.host, c.skipped + col, 1 + 0.2 * std::normal_distribution<double>()(random_));
      put(c.parameters, bias.host, c.skipped + col, std::normal_distribution<double>()(random_));
    }
  }
  Pass(const Pass&) = default;

  std::vector<Memory*> all() { return {&x, &residual, &y, &sum, &dbias, &weight, &bias, &mean, &rstd, &scale}; }

  Forward forward() {
    Forward f;
    f.kind = c.kind;
    f.zero_centered = c.zero_centered;
    f.x = rows_tensor<ConstTensor>(x, c.x);
    f.y = c.in_place ? rows_tensor<Tensor>(x, c.x) : rows_tensor<Tensor>(y, c.y);
    f.normalized_shape = {shape_ + 1, 1};
    if (c.has_parameters) {
      f.weight = {weight.data() + c.skipped * size_of(c.parameters), c.parameters, {shape_ + 1, 1}};
      f.bias = {bias.data() + c.skipped * size_of(c.parameters), c.parameters, {shape_ + 1, 1}};
    }
    if (c.kind == Kind::layer) f.mean = {mean.data(), DType::f64, {shape_, 1}};
    f.rstd = {rstd.data(), DType::f64, {shape_, 1}};
    if (c.has_residual) {
      f.residual = rows_tensor<ConstTensor>(residual, c.x);
      f.residual_scale = 0.5;
      f.sum = rows_tensor<Tensor>(c.sum_in_x ? x : sum, c.x);
    }
    if (c.y == DType::i8) f.scale = {scale.data(), DType::f32, {shape_, 1}};
    return f;
  }
  // x, dy = residual, dx = y, dsum = sum, dweight = bias.
  Backward backward() {
    Backward b;
    b.kind = c.kind;
    b.zero_centered = c.zero_centered;
    b.accumulate = c.accumulates;
    b.x = rows_tensor<ConstTensor>(x, c.x);
    b.dy = rows_tensor<ConstTensor>(residual, c.x);
    b.dx = c.in_place ? rows_tensor<Tensor>(residual, c.x) : rows_tensor<Tensor>(y, c.y);
    if (c.has_residual) b.dsum = rows_tensor<ConstTensor>(sum, c.x);
    b.normalized_shape = {shape_ + 1, 1};
    if (c.has_parameters) b.weight = {weight.data() + c.skipped * size_of(c.parameters), c.parameters, {shape_ + 1, 1}};
    if (c.has_statistics) {
      if (c.kind == Kind::layer) b.mean = {mean.data(), DType::f64, {shape_, 1}};
      b.rstd = {rstd.data(), DType::f64, {shape_, 1}};
    }
    if (c.only_dx) return b;
    b.dweight = {bias.data() + c.skipped * size_of(c.parameters), c.parameters, {shape_ + 1, 1}};
    b.dbias = {dbias.data() + c.skipped * size_of(c.y), c.y, {shape_ + 1, 1}};
    return b;
  }

  Case c;
  Memory x, residual, y, sum, dbias, weight, bias, mean, rstd, scale;

 private:
  std::size_t step() const { return c.cols + c.gap; }
  Memory rows_of(DType dtype) const { return Memory((c.skipped + c.rows * step()) * size_of(dtype)); }
  Memory columns_of(DType dtype) const { return Memory((c.skipped + c.cols) * size_of(dtype)); }
  template <class AnyTensor>
  AnyTensor rows_tensor(Memory& memory, DType dtype) const {
    return {memory.data() + c.skipped * size_of(dtype), dtype, shape_, strides_};
  }

  std::mt19937_64 random_;
  std::int64_t shape_[2] = {static_cast<std::int64_t>(c.rows), static_cast<std::int64_t>(c.cols)};
  std::int64_t strides_[2] = {static_cast<std::int64_t>(step()), 1};
};

void expect_same(Pass& cpu, Pass& gpu) {
  const std::vector<Memory*> expected = cpu.all(), got = gpu.all();
  for (std::size_t i = 0; i < got.size(); ++i) {
    got[i]->fetch();
    const auto differs = std::mismatch(expected[i]->host.begin(), expected[i]->host.end(), got[i]->host.begin());
    ASSERT_EQ(differs.first, expected[i]->host.end())
        << "tensor " << i << ", byte " << differs.first - expected[i]->host.begin() << ", " << gpu.c.rows << " x "
        << gpu.c.cols << " of " << name(gpu.c.x) << ", kind " << static_cast<int>(gpu.c.kind);
  }
}
void run_forward(Pass& cpu, Pass& gpu) {
  run(cpu.forward());
  for (Memory* memory : gpu.all()) memory->send();
  cuda::run(gpu.forward());
}
void run_operation(Pass& cpu, Pass& gpu) {
  run(cpu.backward());
  for (Memory* memory : gpu.all()) memory->send();
  Memory scratch(cuda::scratch_bytes(gpu.backward()));
  scratch.send();
  cuda::run(gpu.backward(), {scratch.data(), scratch.host.size()});
}
void expect_same_forward(const Case& c) {
  Pass cpu(c), gpu(cpu);
  run_forward(cpu, gpu);
  expect_same(cpu, gpu);
}
// Sums over rows of which x is not finite have no bits that are promised.
void expect_same_backward(Case c) {
  c.x_rows = Rows::in_range;
  Pass cpu(c);
  Case plain = c;
  plain.in_place = plain.has_residual = plain.zero_centered = false;
  Pass statistics(plain);
  statistics.x.host = cpu.x.host;
  run(statistics.forward());
  cpu.mean.host = statistics.mean.host, cpu.rstd.host = statistics.rstd.host;
  Pass gpu(cpu);
  run_operation(cpu, gpu);
  expect_same(cpu, gpu);
}

constexpr std::size_t kColumns[] = {3050, 6100, 1,    2,    5,    16,   63,   64,   65,   128,  200,   256,   257,  384,
                                    512,  768,  1000, 1024, 1025, 1536, 2048, 3000, 4096, 5000, 16384, 16400, 33000};

class OfType : public testing::TestWithParam<std::tuple<Kind, DType>> {
 protected:
  void SetUp() override { EVENORM_NEEDS_DEVICE(); }
  Case of(std::size_t cols) const {
    const auto [kind, dtype] = GetParam();
    return {.kind = kind, .x = dtype, .y = dtype, .parameters = dtype, .rows = cols > 4096 ? 11U : 44U, .cols = cols};
  }
};
INSTANTIATE_TEST_SUITE_P(, OfType,
                         testing::Combine(testing::Values(Kind::layer, Kind::rms),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param) == Kind::layer ? "Layer_" : "Rms_") +
                                  std::string(name(std::get<1>(tested.param)));
                         });

// Changes to the case of each width: rows that are unaligned and spaced, fused forms, single rows without parameters,
// mixtures of types.
constexpr void (*kForwardForms[])(Case&) = {
    [](Case&) {},
    [](Case& c) { c.skipped = 1; },
    [](Case& c) { c.skipped = 1, c.gap = 3; },
    [](Case& c) { c.skipped = 1, c.gap = 3, c.in_place = true; },
    [](Case& c) { c.has_residual = c.zero_centered = true; },
    [](Case& c) { c.has_residual = c.zero_centered = true, c.y = DType::i8; },
    [](Case& c) { c.rows = 1, c.has_parameters = false; },
    [](Case& c) { c.rows = 12, c.has_parameters = false, c.has_residual = c.sum_in_x = true; },
    [](Case& c) { c.y = DType::f32, c.parameters = DType::bf16; },
    [](Case& c) { c.y = DType::bf16, c.parameters = DType::f32; },
    [](Case& c) { c.y = DType::f16, c.parameters = DType::f32; },
};
std::size_t many_rows(const Case& c) { return c.cols > 4096 ? 70 : 523; }
constexpr void (*kBackwardForms[])(Case&) = {
    [](Case&) {},
    [](Case& c) { c.rows = many_rows(c); },
    [](Case& c) {
      c.rows = many_rows(c), c.has_statistics = false, c.has_residual = c.accumulates = c.zero_centered = true;
    },
    [](Case& c) {
      c.rows = many_rows(c), c.has_statistics = false, c.has_residual = c.accumulates = c.zero_centered = true;
      c.skipped = 1, c.gap = 2, c.in_place = true, c.parameters = DType::f32;
    },
    [](Case& c) { c.only_dx = true; },
    [](Case& c) { c.only_dx = c.has_residual = true, c.has_parameters = false; },
};

TEST_P(OfType, GivesTheBitsOfTheCpu) {
  for (const std::size_t cols : kColumns) {
    for (const auto& form : kForwardForms) {
      SCOPED_TRACE(&form - kForwardForms);
      Case c = of(cols);
      form(c);
      expect_same_forward(c);
    }
  }
}
TEST_P(OfType, GivesTheGradientsOfTheCpu) {
  for (const std::size_t cols : kColumns) {
    for (const auto& form : kBackwardForms) {
      SCOPED_TRACE(&form - kBackwardForms);
      Case c = of(cols);
      form(c);
      expect_same_backward(c);
    }
  }
}
TEST_P(OfType, GivesThemForRowsLongerThanACluster) {
  Case c = of(300'000);
  expect_same_forward(c);
  c.has_residual = true;
  expect_same_forward(c);
}
TEST_P(OfType, GivesTheGradientsOfVeryLongRows) { expect_same_backward(of(70'000)); }

// Elements [first, first + count) are those that are expected or, where they may differ, within some roundings of the
// largest one and of `least`.
void expect_close(DType dtype, const Memory& expected, const Memory& got, std::size_t first, std::size_t count,
                  bool may_differ, double least) {
  const bool f32 = dtype == DType::f32, bf16 = dtype == DType::bf16;
  const double u = f32 ? 0x1p-24 : bf16 ? 0x1p-9 : 0x1p-12, eta = f32 ? 0x1p-149 : bf16 ? 0x1p-133 : 0x1p-24;
  double largest = least;
  for (std::size_t i = first; i < first + count; ++i) {
    const double value = std::fabs(get(dtype, expected.host, i));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  for (std::size_t i = first; i < first + count; ++i) {
    const double a = get(dtype, expected.host, i), b = get(dtype, got.host, i);
    const bool same = a == b || (a != a && b != b), close = std::fabs(a - b) <= 64 * u * largest + 4 * eta;
    ASSERT_TRUE(same || (may_differ && close)) << b << " instead of " << a << ", " << i - first << " of " << count
                                               << " elements from " << first << " on, of " << name(dtype);
  }
}
TEST_P(OfType, IsCloseToTheCpuForRowsThatLeaveTheRange) {
  for (const std::size_t cols : kColumns) {
    Case c = of(cols);
    c.x_rows = Rows::leaving;
    for (const bool zero_centered : {false, true}) {
      c.zero_centered = zero_centered;
      Pass cpu(c), gpu(cpu);
      run_forward(cpu, gpu);
      gpu.y.fetch();
      for (std::size_t row = 0; row < c.rows; ++row) {
        expect_close(c.y, cpu.y, gpu.y, row * cols, cols, leaves_range(row), 1);
      }
    }
  }
}
TEST_P(OfType, HasGradientsCloseToThoseOfTheCpuForRowsThatLeaveTheRange) {
  for (const std::size_t cols : kColumns) {
    if (cols < 16) continue;  // dx cancels
    Case c = of(cols);
    c.x_rows = Rows::leaving, c.has_statistics = false;
    Pass cpu(c), gpu(cpu);
    run_operation(cpu, gpu);
    for (Memory* memory : gpu.all()) memory->fetch();
    for (std::size_t row = 0; row < c.rows; ++row) {
      const bool may_differ = leaves_range(row) || leaves_range(row * 3 + 1);
      expect_close(c.y, cpu.y, gpu.y, row * cols, cols, may_differ, 0);
    }
    expect_close(c.parameters, cpu.bias, gpu.bias, 0, cols, true, 0);
    expect_close(c.y, cpu.dbias, gpu.dbias, 0, cols, true, 0);
  }
}

// A row's bits depend on nothing but the row; gradients' bits only on the problem.
TEST(Repeated, RunsGiveTheSameBits) {
  EVENORM_NEEDS_DEVICE();
  for (const std::size_t cols : {200, 3000}) {
    Case c{.x = DType::bf16, .y = DType::bf16, .rows = 2274, .cols = cols};
    Pass first(c), second(first);
    for (Pass* pass : {&first, &second}) {
      for (Memory* memory : pass->all()) memory->send();
      cuda::run(pass->forward());
    }
    for (Memory* memory : first.all()) memory->fetch();
    for (int i = 0; i < 20; ++i) {
      cuda::run(second.forward());
      expect_same(first, second);
    }
    for (const std::size_t rows : {1, 255, 256}) {
      c.rows = rows;
      Pass some(c);
      some.x.host.assign(first.x.host.begin(), first.x.host.begin() + static_cast<std::ptrdiff_t>(some.x.host.size()));
      some.weight.host = first.weight.host, some.bias.host = first.bias.host;
      for (Memory* memory : some.all()) memory->send();
      cuda::run(some.forward());
      some.y.fetch();
      EXPECT_TRUE(std::equal(some.y.host.begin(), some.y.host.end(), first.y.host.begin())) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace evenorm::cuda_tests
