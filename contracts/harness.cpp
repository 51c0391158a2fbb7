// Lays rows out in memory, runs the library over them, and looks at what it wrote.
#include "contracts/harness.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "run.hpp"

namespace evenorm::contracts {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMargin = 128;  // bytes before and after
constexpr std::byte kUntouched{0xA5};

// Rows in a block of memory whose every other byte has a known value.
class Field {
 public:
  Field(DType dtype, std::size_t rows, std::size_t cols, std::size_t offset, std::size_t gap)
      : element_(size_of(dtype)),
        rows_(rows),
        row_bytes_(cols * element_),
        pitch_((cols + gap) * element_),
        memory_(2 * kMargin + kAlignment + offset * element_ + rows * pitch_, kUntouched) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kMargin);
    start_ = kMargin + (kAlignment - address % kAlignment) % kAlignment + offset * element_;
  }

  std::byte* data() { return memory_.data() + start_; }
  std::int64_t stride() const { return static_cast<std::int64_t>(pitch_ / element_); }

  void put(const std::byte* values) {
    for (std::size_t r = 0; r < rows_ && row_bytes_ != 0; ++r) {
      std::memcpy(data() + r * pitch_, values + r * row_bytes_, row_bytes_);
    }
  }
  void get(std::byte* values) {
    for (std::size_t r = 0; r < rows_ && row_bytes_ != 0; ++r) {
      std::memcpy(values + r * row_bytes_, data() + r * pitch_, row_bytes_);
    }
  }

  bool surroundings_untouched() {
    const auto untouched = [&](std::size_t from, std::size_t to) {
      return std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(from),
                         memory_.begin() + static_cast<std::ptrdiff_t>(to),
                         [](std::byte b) { return b == kUntouched; });
    };
    std::size_t from = 0;
    for (std::size_t r = 0; r < rows_; ++r) {
      if (!untouched(from, start_ + r * pitch_)) return false;
      from = start_ + r * pitch_ + row_bytes_;
    }
    return untouched(from, memory_.size());
  }

  bool operator==(const Field& other) const { return memory_ == other.memory_; }

 private:
  std::size_t element_, rows_, row_bytes_, pitch_;
  std::vector<std::byte> memory_;
  std::size_t start_ = 0;
};

// One statistic per row, in the type asked for.
struct Statistic {
  Statistic(DType dtype, std::size_t rows) : type(dtype), wide(rows), narrow(rows), shape{std::int64_t(rows)} {}
  Tensor view() {
    if (type == DType::f64) return {wide.data(), type, shape};
    return {narrow.data(), type, shape};
  }
  std::vector<double> values() const {
    return type == DType::f64 ? wide : std::vector<double>(narrow.begin(), narrow.end());
  }
  DType type;
  std::vector<double> wide;
  std::vector<float> narrow;
  std::array<std::int64_t, 1> shape;
};

}  // namespace

DType Operation::arithmetic() const {
  const bool wide = x == DType::f64 || y == DType::f64 || weight == DType::f64 || bias == DType::f64;
  return wide ? DType::f64 : DType::f32;
}

std::string Operation::name() const {
  std::string text = kind == Kind::layer ? "layer " : "rms ";
  text += evenorm::name(x);
  if (y != x) text += "->" + std::string(evenorm::name(y));
  if (weight) text += " weight=" + std::string(evenorm::name(*weight)) + (zero_centered ? "+1" : "");
  if (bias) text += " bias=" + std::string(evenorm::name(*bias));
  return text + " " + std::to_string(cols);
}

Operation same_type(Kind kind, DType dtype, std::size_t cols, bool parameters) {
  Operation op;
  op.kind = kind;
  op.x = op.y = dtype;
  if (parameters) op.weight = op.bias = dtype;
  op.cols = cols;
  return op;
}

Runner on_target(internal::Target target) {
  return [target](const Forward& forward, const Executor& executor) { internal::run_on(target, forward, executor); };
}

Outcome run_operation(const Runner& run, const Operation& op, const Array& x, const Array& weight, const Array& bias,
                      const Layout& layout, const Executor& executor) {
  const std::size_t rows = x.size() / op.cols;
  Field source(op.x, rows, op.cols, layout.x_offset, layout.x_gap);
  Field result(op.y, rows, op.cols, layout.y_offset, layout.y_gap);
  Field gamma(op.weight.value_or(DType::f32), 1, op.weight ? op.cols : 0, layout.weight_offset, 0);
  Field beta(op.bias.value_or(DType::f32), 1, op.bias ? op.cols : 0, layout.bias_offset, 0);
  source.put(x.data());
  gamma.put(weight.data());
  beta.put(bias.data());
  const Field source_before = source;

  Field& y = layout.in_place ? source : result;
  const std::array shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(op.cols)};
  const std::array x_strides{source.stride(), std::int64_t{1}}, y_strides{y.stride(), std::int64_t{1}};
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  Statistic mean(layout.statistics, rows), rstd(layout.statistics, rows);
  Forward forward;
  forward.kind = op.kind;
  forward.x = {source.data(), op.x, shape, x_strides};
  forward.y = {y.data(), op.y, shape, y_strides};
  forward.normalized_shape = normalized;
  if (op.weight) forward.weight = {gamma.data(), *op.weight, normalized};
  if (op.bias) forward.bias = {beta.data(), *op.bias, normalized};
  if (op.kind == Kind::layer) forward.mean = mean.view();
  forward.rstd = rstd.view();
  forward.eps = op.eps;
  forward.zero_centered = op.zero_centered;
  run(forward, executor);

  Outcome outcome{Array(op.y, rows * op.cols), {}, rstd.values(), true};
  if (op.kind == Kind::layer) outcome.mean = mean.values();
  y.get(outcome.y.data());
  outcome.kept_inside = y.surroundings_untouched() && (layout.in_place || source == source_before);
  return outcome;
}

std::vector<internal::Target> runnable_targets() {
  std::vector<internal::Target> targets;
  for (const internal::Target target : internal::compiled_targets()) {
    if (internal::is_supported(target)) targets.push_back(target);
  }
  return targets;
}

Executor reversed_executor(std::size_t threads) {
  return {threads, nullptr, [](void*, std::size_t tasks, void (*task)(void*, std::size_t) noexcept, void* argument) {
            for (std::size_t i = tasks; i-- > 0;) task(argument, i);
          }};
}

}  // namespace evenorm::contracts
