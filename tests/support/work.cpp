// Implements work.hpp.
#include "support/work.hpp"

#include <cstring>

namespace evenorm::testing {
namespace {

using contracts::Operation;
using contracts::Order;

Work make_work(const Operation& op, std::size_t rows, const contracts::Layout& layout) {
  Work work{op, contracts::Array(op.x, std::size_t{0}), {}, {}, layout, {}};
  for (std::uint64_t r = 0; r < rows; ++r) {
    work.x.append(contracts::make_input(r % 3 == 1 ? "mean_1e4" : "normal", op.x, op.cols, r % 7));
  }
  if (op.weight) work.weight = contracts::make_weight(*op.weight, op.cols);
  if (op.bias) work.bias = contracts::make_bias(*op.bias, op.cols);
  work.expected = contracts::run_operation(through_cpp(), op, work.x, work.weight, work.bias, layout);
  return work;
}

}  // namespace

bool Work::comes_out(const contracts::Runner& run, const Executor& executor) const {
  const contracts::Outcome outcome = contracts::run_operation(run, op, x, weight, bias, layout, executor);
  return std::memcmp(outcome.y.data(), expected.y.data(), expected.y.bytes().size()) == 0 &&
         outcome.mean == expected.mean && outcome.rstd == expected.rstd && outcome.kept_inside;
}

contracts::Runner through_cpp() {
  return [](const Forward& forward, const Executor& executor) { run(forward, executor); };
}

std::vector<Work> all_work() {
  contracts::Layout in_place, columns_first, columns_apart, reversed;
  in_place.in_place = true;
  columns_first.x_order = columns_first.y_order = Order::columns_first;
  columns_apart.x_order = Order::columns_apart;
  columns_apart.vectors_apart = true;
  columns_apart.statistics = DType::f32;
  reversed.y_order = Order::reversed;
  Operation mixed = contracts::same_type(Kind::layer, DType::f16, 200);
  mixed.y = DType::f32;
  mixed.weight = DType::bf16;
  mixed.zero_centered = true;

  std::vector<Work> work;
  work.push_back(make_work(contracts::same_type(Kind::layer, DType::f32, 768), 192, {}));
  work.push_back(make_work(contracts::same_type(Kind::rms, DType::bf16, 129), 900, columns_first));
  work.push_back(make_work(contracts::same_type(Kind::layer, DType::f64, 1000), 120, reversed));
  work.push_back(make_work(mixed, 600, columns_apart));
  work.push_back(make_work(contracts::same_type(Kind::layer, DType::f32, 300001), 1, {}));
  work.push_back(make_work(contracts::same_type(Kind::rms, DType::f32, 64), 2048, in_place));
  work.push_back(make_work(contracts::same_type(Kind::rms, DType::f16, 70000), 3, columns_first));
  work.push_back(make_work(contracts::same_type(Kind::layer, DType::f32, 5), 3, {}));
  return work;
}

}  // namespace evenorm::testing
