// evenorm itself, through its C++ API. It is also compiled against other commits, so it sets members by name and uses
// nothing newer than residuals and i8.
#include "evenorm/evenorm.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/rivals/pass.hpp"

namespace {

using namespace evenorm;

constexpr std::int64_t kChannelAxis[] = {1};

DType dtype_of_problem(std::int32_t dtype) {
  constexpr DType kTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};  // in the order of bench_dtype
  return kTypes[dtype];
}

// A problem as the API describes it. It cannot be moved, because the tensors refer to its shapes.
struct Described {
  explicit Described(const bench_problem& of)
      : problem(of),
        kind(of.kind == BENCH_RMS ? Kind::rms : Kind::layer),
        dtype(dtype_of_problem(of.dtype)),
        parameter_dtype(dtype_of_problem(of.parameter_dtype)),
        executor(pool_executor(static_cast<std::size_t>(of.threads))) {
    if (of.pass == BENCH_CHANNELS_FIRST) {
      shape = {of.rows / of.pixels, of.cols, of.pixels};
    } else {
      shape = {of.rows, of.cols};
    }
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  ConstTensor in(const void* data) const { return {data, dtype, shape}; }
  Tensor out(void* data) const { return {data, dtype, shape}; }
  ConstTensor parameter(const void* data) const { return {data, parameter_dtype, {&problem.cols, 1}}; }
  Tensor parameter_out(void* data) const { return {data, parameter_dtype, {&problem.cols, 1}}; }
  ConstTensor statistic(const double* data) const { return {data, DType::f64, {&problem.rows, 1}}; }

  bench_problem problem;
  Kind kind;
  DType dtype, parameter_dtype;
  Executor executor;
  std::vector<std::int64_t> shape;
};

Forward forward_of(const Described& described) {
  const bench_problem& problem = described.problem;
  Forward forward;
  forward.kind = described.kind;
  forward.x = described.in(problem.x);
  forward.y = described.out(problem.y);
  if (problem.pass == BENCH_CHANNELS_FIRST) {
    forward.axes = kChannelAxis;
  } else {
    forward.normalized_shape = {&problem.cols, 1};
  }
  forward.weight = described.parameter(problem.weight);
  forward.bias = described.parameter(problem.bias);
  forward.eps = problem.eps;
  if (problem.pass == BENCH_RESIDUAL) {
    forward.residual = described.in(problem.residual);
    forward.sum = described.out(problem.sum);
  } else if (problem.pass == BENCH_INT8) {
    forward.y.dtype = DType::i8;
    forward.scale = {problem.scale, DType::f32, {&problem.rows, 1}};
  }
  return forward;
}

Backward backward_of(const Described& described) {
  const bench_problem& problem = described.problem;
  Backward backward;
  backward.kind = described.kind;
  backward.x = described.in(problem.x);
  backward.dy = described.in(problem.dy);
  backward.normalized_shape = {&problem.cols, 1};
  backward.weight = described.parameter(problem.weight);
  backward.dx = described.out(problem.dx);
  backward.dweight = described.parameter_out(problem.dweight);
  backward.dbias = described.parameter_out(problem.dbias);
  backward.eps = problem.eps;
  if (problem.pass == BENCH_BACKWARD) {
    if (described.kind == Kind::layer) backward.mean = described.statistic(problem.mean);
    backward.rstd = described.statistic(problem.rstd);
  }
  return backward;
}

// A unit of scratch memory, aligned to a cache line.
struct alignas(64) Line {
  std::byte bytes[64];
};

}  // namespace

std::optional<evenorm::bench::Pass> evenorm::bench::make_pass(const bench_problem& problem) {
  const auto described = std::make_shared<Described>(problem);
  if (problem.pass == BENCH_BACKWARD || problem.pass == BENCH_BACKWARD_ANEW) {
    const Backward backward = backward_of(*described);
    const auto scratch =
        std::make_shared<std::vector<Line>>((scratch_bytes(backward) + sizeof(Line) - 1) / sizeof(Line));
    return Pass{[=] { evenorm::run(backward, std::as_writable_bytes(std::span(*scratch)), described->executor); }};
  }
  const auto plan = std::make_shared<Plan>(forward_of(*described));
  return Pass{[=] { plan->run(described->executor); }};
}

extern "C" const char* bench_version() {
  static const std::string version = "evenorm " + std::string(evenorm::version());
  return version.c_str();
}
