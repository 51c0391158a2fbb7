// What a rival's one source is written with: it says by make_pass() what its library does with a problem, and has the
// functions of bench/rival.h, but bench_version(), from here. Knows no library.
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

// Empty where the library does not have it. The problem itself is gone afterwards, its buffers are not.
std::optional<Pass> make_pass(const bench_problem& problem);

}  // namespace evenorm::bench

extern "C" {

void* bench_make(const bench_problem* problem) {
  try {
    std::optional<evenorm::bench::Pass> pass = evenorm::bench::make_pass(*problem);
    return pass ? new evenorm::bench::Pass(std::move(*pass)) : nullptr;
  } catch (const std::exception& error) {  // not what the library does not have: a fault of the rival or the problem
    std::fprintf(stderr, "%s: %s\n", bench_version(), error.what());
    return nullptr;
  }
}

void bench_run(void* pass) { static_cast<evenorm::bench::Pass*>(pass)->run(); }

void bench_fetch(void* pass) { static_cast<evenorm::bench::Pass*>(pass)->fetch(); }

void bench_free(void* pass) { delete static_cast<evenorm::bench::Pass*>(pass); }
}
