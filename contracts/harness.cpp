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
  Field(DType dtype, std::size_t rows, std::size_t cols, std::size_t offset, std::size_t gap, bool odd,
        Order order = Order::rows_first)
      : element_(size_of(dtype)), rows_(rows), cols_(cols), order_(order) {
    const bool columns_first = order == Order::columns_first;
    const std::size_t step = order == Order::columns_apart ? 2 : 1;
    const std::size_t pitch = (columns_first ? rows : step * cols) + gap, lines = columns_first ? cols : rows;
    memory_.assign(2 * kMargin + kAlignment + (offset + lines * pitch) * element_, kUntouched);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kMargin);
    start_ = kMargin + (kAlignment - address % kAlignment) % kAlignment + offset * element_ + (odd ? 1 : 0);
    row_step_ = columns_first ? 1 : static_cast<std::ptrdiff_t>(pitch);
    col_step_ = static_cast<std::ptrdiff_t>(columns_first ? pitch : step);
    if (order == Order::reversed && rows * cols != 0) {
      start_ += ((rows - 1) * pitch + cols - 1) * element_;
      row_step_ = -row_step_;
      col_step_ = -col_step_;
    }
  }

  std::byte* data() { return memory_.data() + start_; }
  std::array<std::int64_t, 2> strides() const { return {row_step_, col_step_}; }

  void put(const std::byte* values) {
    move([&](std::byte* place, std::size_t i, std::size_t bytes) { std::memcpy(place, values + i, bytes); });
  }
  void get(std::byte* values) {
    move([&](std::byte* place, std::size_t i, std::size_t bytes) { std::memcpy(values + i, place, bytes); });
  }

  bool surroundings_untouched() const {
    Field blank = *this;
    blank.move([](std::byte* place, std::size_t, std::size_t bytes) { std::fill_n(place, bytes, kUntouched); });
    return std::all_of(blank.memory_.begin(), blank.memory_.end(), [](std::byte b) { return b == kUntouched; });
  }

  bool operator==(const Field& other) const { return memory_ == other.memory_; }

 private:
  // move(where, how many bytes of the values are before, how many bytes): by rows where these are dense, else by
  // elements.
  template <class Move>
  void move(const Move& move) {
    const std::size_t run = order_ == Order::rows_first ? cols_ : 1;
    for (std::size_t r = 0; r < rows_; ++r) {
      for (std::size_t c = 0; c < cols_; c += run) {
        const std::ptrdiff_t steps =
            static_cast<std::ptrdiff_t>(r) * row_step_ + static_cast<std::ptrdiff_t>(c) * col_step_;
        move(data() + steps * static_cast<std::ptrdiff_t>(element_), (r * cols_ + c) * element_, run * element_);
      }
    }
  }

  std::size_t element_, rows_, cols_;
  Order order_;
  std::ptrdiff_t row_step_ = 0, col_step_ = 0;
  std::vector<std::byte> memory_;
  std::size_t start_ = 0;
};

// One statistic per row, in the type asked for, `step` elements apart.
struct Statistic {
  Statistic(DType dtype, std::size_t rows, std::int64_t step, bool odd)
      : type(dtype),
        field(dtype, rows, 1, 0, static_cast<std::size_t>(step - 1), odd),
        shape{std::int64_t(rows)},
        strides{step} {}
  Tensor view() { return {field.data(), type, shape, strides}; }
  std::vector<double> values() {
    std::vector<double> wide(static_cast<std::size_t>(shape[0]));
    std::vector<float> narrow(wide.size());
    if (type == DType::f64) {
      field.get(reinterpret_cast<std::byte*>(wide.data()));
      return wide;
    }
    field.get(reinterpret_cast<std::byte*>(narrow.data()));
    return std::vector<double>(narrow.begin(), narrow.end());
  }
  DType type;
  Field field;
  std::array<std::int64_t, 1> shape, strides;
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
  const std::size_t vector_gap = layout.vectors_apart ? 2 : 0;
  const std::array<std::int64_t, 1> vector_stride{layout.vectors_apart ? 3 : 1};
  const bool odd = layout.odd_addresses;
  Field source(op.x, rows, op.cols, layout.x_offset, layout.x_gap, odd, layout.x_order);
  Field result(op.y, rows, op.cols, layout.y_offset, layout.y_gap, odd, layout.y_order);
  Field gamma(op.weight.value_or(DType::f32), op.weight ? op.cols : 0, 1, layout.weight_offset, vector_gap, odd);
  Field beta(op.bias.value_or(DType::f32), op.bias ? op.cols : 0, 1, layout.bias_offset, vector_gap, odd);
  source.put(x.data());
  gamma.put(weight.data());
  beta.put(bias.data());
  const Field source_before = source;

  Field& y = layout.in_place ? source : result;
  const std::array shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(op.cols)};
  const std::array x_strides = source.strides(), y_strides = y.strides();
  const std::span<const std::int64_t> normalized(&shape[1], 1);
  Statistic mean(layout.statistics, rows, vector_stride[0], odd), rstd(layout.statistics, rows, vector_stride[0], odd);
  Forward forward;
  forward.kind = op.kind;
  forward.x = {source.data(), op.x, shape, x_strides};
  forward.y = {y.data(), op.y, shape, y_strides};
  forward.normalized_shape = normalized;
  if (op.weight) forward.weight = {gamma.data(), *op.weight, normalized, vector_stride};
  if (op.bias) forward.bias = {beta.data(), *op.bias, normalized, vector_stride};
  if (op.kind == Kind::layer) forward.mean = mean.view();
  forward.rstd = rstd.view();
  forward.eps = op.eps;
  forward.zero_centered = op.zero_centered;
  run(forward, executor);

  Outcome outcome{Array(op.y, rows * op.cols), {}, rstd.values(), true};
  if (op.kind == Kind::layer) outcome.mean = mean.values();
  y.get(outcome.y.data());
  outcome.kept_inside = y.surroundings_untouched() && (layout.in_place || source == source_before) &&
                        mean.field.surroundings_untouched() && rstd.field.surroundings_untouched();
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
