// oneDNN: layer norm, its gradients with precomputed statistics, and RMS norm if the headers have it. The types are
// those that this CPU and this version of oneDNN support. Statistics and parameters are f32.
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

#include "bench/rivals/pass.hpp"

extern "C" void omp_set_num_threads(int threads) __attribute__((weak));  // of the OpenMP that oneDNN brings

namespace {

using dnnl::memory;
using dnnl::normalization_flags;

// A primitive with its arguments, in a form that needs no allocation for a call.
struct Execution {
  explicit Execution(std::int32_t dtype) : data_type(type_of(dtype)) {}

  void add(int argument, const memory::desc& description, const void* data) {
    memories.emplace_back(description, engine, const_cast<void*>(data));
    arguments.push_back({argument, memories.back().get()});
  }
  // oneDNN needs statistics in f32, so these are copies.
  void add_statistic(int argument, const memory::desc& description, std::vector<float> values) {
    statistics.push_back(std::move(values));
    add(argument, description, statistics.back().data());
  }
  void run() const {
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()), arguments.data()),
        "could not execute a primitive");
    dnnl::error::wrap_c_api(dnnl_stream_wait(stream.get()), "could not wait for a stream");
  }
  static memory::data_type type_of(std::int32_t dtype) {
    using enum memory::data_type;
    constexpr memory::data_type kTypes[] = {f64, f32, bf16, f16};  // in the order of bench_dtype
    return kTypes[dtype];
  }

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  memory::data_type data_type;
  dnnl::primitive primitive;
  std::vector<memory> memories;
  std::vector<std::vector<float>> statistics;
  std::vector<dnnl_exec_arg_t> arguments;
};

struct Descriptions {
  Descriptions(const bench_problem& problem, memory::data_type type)
      : data({problem.rows, problem.cols}, type, memory::format_tag::ab),
        parameter({problem.cols}, memory::data_type::f32, memory::format_tag::a),
        statistic({problem.rows}, memory::data_type::f32, memory::format_tag::a) {}

  memory::desc data, parameter, statistic;
};

template <class Flags>
std::optional<Flags> rms_flag() {
  if constexpr (requires { Flags::rms_norm; }) return Flags::rms_norm;
  return std::nullopt;
}

std::optional<normalization_flags> flags_of(const bench_problem& problem) {
  auto flags = normalization_flags::none;
  if (problem.kind == BENCH_RMS) {
    const auto rms = rms_flag<normalization_flags>();
    // oneDNN's dx of RMS norm subtracts mean(g), as layer norm's does, so it is wrong (3.13.2, compared with NumPy).
    if (!rms || problem.pass != BENCH_FORWARD) return std::nullopt;
    flags = *rms;
  }
  if (problem.weight != nullptr) flags = flags | normalization_flags::use_scale;
  if (problem.bias != nullptr) flags = flags | normalization_flags::use_shift;
  return flags;
}

// False if the number of threads of this build of oneDNN cannot be set.
bool set_threads(std::int32_t threads) {
  const unsigned runtime = dnnl_version()->cpu_runtime;
  if (runtime == DNNL_RUNTIME_SEQ) return threads == 1;
  if (runtime != DNNL_RUNTIME_OMP || omp_set_num_threads == nullptr) return false;
  omp_set_num_threads(threads);  // affects only the calling thread
  return true;
}

void make_forward(const bench_problem& problem, normalization_flags flags, Execution& execution) {
  const Descriptions of(problem, execution.data_type);
  execution.primitive = dnnl::layer_normalization_forward(dnnl::layer_normalization_forward::primitive_desc(
      execution.engine, dnnl::prop_kind::forward_inference, of.data, of.data, static_cast<float>(problem.eps), flags));
  execution.add(DNNL_ARG_SRC, of.data, problem.x);
  execution.add(DNNL_ARG_DST, of.data, problem.y);
  if (problem.weight != nullptr) execution.add(DNNL_ARG_SCALE, of.parameter, problem.weight);
  if (problem.bias != nullptr) execution.add(DNNL_ARG_SHIFT, of.parameter, problem.bias);
}

void make_backward(const bench_problem& problem, normalization_flags flags, Execution& execution) {
  const Descriptions of(problem, execution.data_type);
  const auto eps = static_cast<float>(problem.eps);
  const dnnl::layer_normalization_forward::primitive_desc forward(execution.engine, dnnl::prop_kind::forward_training,
                                                                  of.data, of.data, of.statistic, eps, flags);
  execution.primitive = dnnl::layer_normalization_backward(dnnl::layer_normalization_backward::primitive_desc(
      execution.engine, dnnl::prop_kind::backward, of.data, of.data, of.data, of.statistic, eps, flags, forward));
  const auto rows = static_cast<std::size_t>(problem.rows);
  std::vector<float> mean(problem.mean, problem.mean + rows), variance(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    variance[r] = static_cast<float>(1 / (problem.rstd[r] * problem.rstd[r]) - problem.eps);
  }
  execution.add(DNNL_ARG_SRC, of.data, problem.x);
  execution.add(DNNL_ARG_DIFF_DST, of.data, problem.dy);
  execution.add(DNNL_ARG_DIFF_SRC, of.data, problem.dx);
  execution.add_statistic(DNNL_ARG_MEAN, of.statistic, std::move(mean));
  execution.add_statistic(DNNL_ARG_VARIANCE, of.statistic, std::move(variance));
  execution.add(DNNL_ARG_SCALE, of.parameter, problem.weight);
  execution.add(DNNL_ARG_SHIFT, of.parameter, problem.weight);  // 3.2 requires one, but does not read it
  execution.add(DNNL_ARG_DIFF_SCALE, of.parameter, problem.dweight);
  execution.add(DNNL_ARG_DIFF_SHIFT, of.parameter, problem.dbias);
}

}  // namespace

std::optional<evenorm::bench::Pass> evenorm::bench::make_pass(const bench_problem& problem) {
  const bool backward = problem.pass == BENCH_BACKWARD;
  if (!backward && problem.pass != BENCH_FORWARD) return std::nullopt;
  if (backward && (problem.weight == nullptr || problem.dbias == nullptr)) return std::nullopt;
  if (problem.parameter_dtype != BENCH_F32 || !set_threads(problem.threads)) return std::nullopt;
  auto flags = flags_of(problem);
  if (!flags) return std::nullopt;
  const auto execution = std::make_shared<Execution>(problem.dtype);
  try {
    if (backward) {
      make_backward(problem, *flags | normalization_flags::use_shift, *execution);
    } else {
      make_forward(problem, *flags, *execution);
    }
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return std::nullopt;
    throw;
  }
  return Pass{[execution] { execution->run(); }};
}

extern "C" const char* bench_version() {
  static const std::string version = [] {
    const dnnl_version_t& of = *dnnl_version();
    return "oneDNN " + std::to_string(of.major) + "." + std::to_string(of.minor) + "." + std::to_string(of.patch);
  }();
  return version.c_str();
}
