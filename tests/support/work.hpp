// Calls of every kind with their expected results, for tests that run many of them at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/cases.hpp"

namespace evenorm::testing {

struct Work {
  explicit Work(const std::string& text)
      : c(contracts::parse_case(text)),
        inputs(inputs_of(c)),
        expected(contracts::run_operation(contracts::through_run(), c.op, inputs, c.way.layout)) {}

  // Returns true if a run gives the same bits, including statistics, and writes nothing else.
  bool comes_out(const contracts::Runner& run, const Executor& executor) const {
    const contracts::Outcome outcome = contracts::run_operation(run, c.op, inputs, c.way.layout, executor);
    return outcome.has_the_bits_of(expected) && outcome.kept_inside;
  }

  contracts::Case c;
  contracts::Inputs inputs;
  contracts::Outcome expected;  // from a run on one thread, before all other runs
};

// Both kinds, all types, all orders of rows, and in place. Many rows, few rows, a long row whose blocks are shared out,
// and a row that cannot be shared out. All except the last are large enough to be shared out.
inline std::vector<Work> all_work() {
  std::vector<Work> all;
  for (const char* text :
       {"layer f32 weight=f32 bias=f32 192x768", "rms bf16 weight=bf16 bias=bf16 900x129 x=first y=first",
        "layer f64 weight=f64 bias=f64 120x1000 y=reversed",
        "layer f16->f32 weight=bf16+1 bias=f16 600x200 x=apart vectors=apart statistics=f32",
        "layer f32 weight=f32 bias=f32 1x300001", "rms f32 weight=f32 bias=f32 2048x64 y@x",
        "rms f16 weight=f16 bias=f16 3x70000 x=first y=first", "layer f32 weight=f32 bias=f32 3x5"}) {
    all.emplace_back(text + std::string(" x:normal,mean_1e4,normal"));
  }
  return all;
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
