// The functions of bench/rival.h, except bench_version(), for a rival that defines make_pass().
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "bench/rival.h"

namespace evenorm::bench {

struct Pass {
  std::function<void()> run;
  std::function<void()> fetch = [] {};
};

// Returns nothing if the library does not have the pass. Copies the problem; its buffers must outlive the pass.
std::optional<Pass> make_pass(const bench_problem& problem);

}  // namespace evenorm::bench

extern "C" {

void* bench_make(const bench_problem* problem) {
  try {
    std::optional<evenorm::bench::Pass> pass = evenorm::bench::make_pass(*problem);
    return pass ? new evenorm::bench::Pass(std::move(*pass)) : nullptr;
  } catch (const std::exception& error) {  // a bug in the rival or in the problem
    std::fprintf(stderr, "%s: %s\n", bench_version(), error.what());
    return nullptr;
  }
}

void bench_run(void* pass) { static_cast<evenorm::bench::Pass*>(pass)->run(); }

void bench_fetch(void* pass) { static_cast<evenorm::bench::Pass*>(pass)->fetch(); }

void bench_free(void* pass) { delete static_cast<evenorm::bench::Pass*>(pass); }
}
