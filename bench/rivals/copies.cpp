// The copies as a rival. Instead of bench_make() it has bench_make_copy(), which takes the name of a copy: "memcpy"
// (one input and output only), "streaming" (outputs at multiples of 64) or "plain".
#include "bench/copies.hpp"

#include <string>

#include "bench/rival.h"

namespace {

using namespace evenorm::bench;

std::size_t bytes_of(std::int32_t dtype) {
  switch (dtype) {
    case BENCH_F64:
      return 8;
    case BENCH_F32:
      return 4;
    case BENCH_BF16:
    case BENCH_F16:
      return 2;
    default:
      return 0;
  }
}

// The result has no output if the problem is invalid.
Traffic traffic_of(const bench_problem& problem) {
  const auto from = [](const void* place) { return static_cast<const std::byte*>(place); };
  const auto to = [](void* place) { return static_cast<std::byte*>(place); };
  const std::size_t element = bytes_of(problem.dtype);
  if (problem.rows <= 0 || problem.cols <= 0 || problem.threads <= 0 || element == 0) return {};
  const std::size_t elements = static_cast<std::size_t>(problem.rows) * static_cast<std::size_t>(problem.cols);
  switch (problem.pass) {
    case BENCH_FORWARD:
    case BENCH_CHANNELS_FIRST:
      return {{from(problem.x), nullptr}, {to(problem.y), nullptr}, elements * element};
    case BENCH_BACKWARD:
    case BENCH_BACKWARD_ANEW:
      if (problem.dy == nullptr) return {};
      return {{from(problem.x), from(problem.dy)}, {to(problem.dx), nullptr}, elements * element};
    case BENCH_RESIDUAL:
      if (problem.residual == nullptr || problem.sum == nullptr) return {};
      return {{from(problem.x), from(problem.residual)}, {to(problem.y), to(problem.sum)}, elements * element};
    case BENCH_INT8:
      return {{from(problem.x), nullptr}, {to(problem.y), nullptr}, elements, element};
    default:
      return {};
  }
}

}  // namespace

extern "C" {

const char* bench_version() {
  static const std::string version =
      "copies of " + std::string(evenorm::internal::name(evenorm::internal::best_target()));
  return version.c_str();
}

// Returns null if the problem has no such copy.
__attribute__((visibility("default"))) void* bench_make_copy(const bench_problem* problem, const char* which) {
  const Traffic traffic = traffic_of(*problem);
  for (const CopyKind kind : copy_kinds(traffic)) {
    if (name(kind) != which) continue;
    return new Copy(kind, traffic, evenorm::pool_executor(static_cast<std::size_t>(problem->threads)));
  }
  return nullptr;
}

void bench_run(void* copy) { static_cast<const Copy*>(copy)->run(); }

// The copy writes to the problem's buffers.
__attribute__((visibility("default"))) void bench_fetch(void*) {}

void bench_free(void* copy) { delete static_cast<Copy*>(copy); }
}
