// Calls of every kind with their expected results, for tests that run many of them at once.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "contracts/harness.hpp"

namespace evenorm::testing {

inline contracts::Runner through_cpp() {
  return [](const Forward& forward, const Executor& executor) { run(forward, executor); };
}

struct Work {
  Work(const contracts::Operation& given, std::size_t rows, const contracts::Layout& of = {})
      : op(given), x(op.x, std::size_t{0}), layout(of) {
    for (std::uint64_t r = 0; r < rows; ++r) {
      x.append(contracts::make_input(r % 3 == 1 ? "mean_1e4" : "normal", op.x, op.cols, r % 7));
    }
    if (op.weight) weight = contracts::make_weight(*op.weight, op.cols);
    if (op.bias) bias = contracts::make_bias(*op.bias, op.cols);
    expected = contracts::run_operation(through_cpp(), op, x, weight, bias, layout);
  }

  // Returns true if a run gives the same bits, including statistics, and writes nothing else.
  bool comes_out(const contracts::Runner& run, const Executor& executor) const {
    const contracts::Outcome outcome = contracts::run_operation(run, op, x, weight, bias, layout, executor);
    return std::memcmp(outcome.y.data(), expected.y.data(), expected.y.bytes().size()) == 0 &&
           outcome.mean == expected.mean && outcome.rstd == expected.rstd && outcome.kept_inside;
  }

  contracts::Operation op;
  contracts::Array x, weight{}, bias{};
  contracts::Layout layout;
  contracts::Outcome expected;  // from a run on one thread, before all other runs
};

// Both kinds, all types, all orders of rows, and in place. Many rows, few rows, a long row whose blocks are shared out,
// and a row that cannot be shared out. All except the last are large enough to be shared out.
inline std::vector<Work> all_work() {
  using enum DType;
  using contracts::Order;
  using contracts::same_type;
  contracts::Layout in_place, columns_first, columns_apart, reversed;
  in_place.in_place = true;
  columns_first.x_order = columns_first.y_order = Order::columns_first;
  columns_apart.x_order = Order::columns_apart;
  columns_apart.vectors_apart = true;
  columns_apart.statistics = f32;
  reversed.y_order = Order::reversed;
  return {{same_type(Kind::layer, f32, 768), 192},
          {same_type(Kind::rms, bf16, 129), 900, columns_first},
          {same_type(Kind::layer, f64, 1000), 120, reversed},
          {{Kind::layer, f16, f32, bf16, f16, true, 1e-5, 200}, 600, columns_apart},
          {same_type(Kind::layer, f32, 300001), 1},
          {same_type(Kind::rms, f32, 64), 2048, in_place},
          {same_type(Kind::rms, f16, 70000), 3, columns_first},
          {same_type(Kind::layer, f32, 5), 3}};
}

// Calls the pool of two threads directly, as a caller that does not know the library's rule.
inline void call_pool(std::size_t tasks, const std::function<void(std::size_t)>& task) {
  const Executor pool = pool_executor(2);
  const auto call = [](void* argument, std::size_t i) noexcept {
    (*static_cast<const std::function<void(std::size_t)>*>(argument))(i);
  };
  pool.parallel_for(pool.context, tasks, call, const_cast<std::function<void(std::size_t)>*>(&task));
}

}  // namespace evenorm::testing
