// See onednn_rival.hpp. Built with EVENORM_HAVE_ONEDNN where oneDNN is there.
#include "onednn_rival.hpp"

#ifdef EVENORM_HAVE_ONEDNN

#include <dnnl.hpp>
#include <unordered_map>

extern "C" void omp_set_num_threads(int threads) __attribute__((weak));  // of the libgomp that oneDNN brings

namespace evenorm::bench {

struct OneDnnForward::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::layer_normalization_forward primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

OneDnnForward::OneDnnForward(std::size_t rows, std::size_t cols, bool bf16, void* x, void* y, void* gamma, void* beta) {
  using dnnl::memory;
  auto state = std::make_unique<State>();
  const auto type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::dims shape{static_cast<memory::dim>(rows), static_cast<memory::dim>(cols)};
  const memory::desc data(shape, type, memory::format_tag::ab);
  const memory::desc parameter({shape[1]}, memory::data_type::f32, memory::format_tag::a);
  try {
    const dnnl::layer_normalization_forward::primitive_desc description(
        state->engine, dnnl::prop_kind::forward_inference, data, data, 1e-5f,
        dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift);
    state->primitive = dnnl::layer_normalization_forward(description);
  } catch (const dnnl::error&) {
    return;
  }
  state->arguments = {{DNNL_ARG_SRC, memory(data, state->engine, x)},
                      {DNNL_ARG_DST, memory(data, state->engine, y)},
                      {DNNL_ARG_SCALE, memory(parameter, state->engine, gamma)},
                      {DNNL_ARG_SHIFT, memory(parameter, state->engine, beta)}};
  state_ = std::move(state);
}

void OneDnnForward::run() {
  state_->primitive.execute(state_->stream, state_->arguments);
  state_->stream.wait();
}

struct OneDnnBackward::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::layer_normalization_backward primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

OneDnnBackward::OneDnnBackward(std::size_t rows, std::size_t cols, const Buffers& buffers) {
  using dnnl::memory;
  auto state = std::make_unique<State>();
  const memory::dims shape{static_cast<memory::dim>(rows), static_cast<memory::dim>(cols)};
  const memory::desc data(shape, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc parameter({shape[1]}, memory::data_type::f32, memory::format_tag::a);
  const memory::desc statistic({shape[0]}, memory::data_type::f32, memory::format_tag::a);
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  try {
    const dnnl::layer_normalization_forward::primitive_desc forward(state->engine, dnnl::prop_kind::forward_training,
                                                                    data, data, statistic, 1e-5f, flags);
    const dnnl::layer_normalization_backward::primitive_desc description(state->engine, dnnl::prop_kind::backward, data,
                                                                         data, data, statistic, 1e-5f, flags, forward);
    state->primitive = dnnl::layer_normalization_backward(description);
  } catch (const dnnl::error&) {
    return;
  }
  state->arguments = {{DNNL_ARG_SRC, memory(data, state->engine, buffers.x)},
                      {DNNL_ARG_DIFF_DST, memory(data, state->engine, buffers.dy)},
                      {DNNL_ARG_DIFF_SRC, memory(data, state->engine, buffers.dx)},
                      {DNNL_ARG_MEAN, memory(statistic, state->engine, buffers.mean)},
                      {DNNL_ARG_VARIANCE, memory(statistic, state->engine, buffers.var)},
                      {DNNL_ARG_SCALE, memory(parameter, state->engine, buffers.gamma)},
                      {DNNL_ARG_SHIFT, memory(parameter, state->engine, buffers.gamma)},
                      {DNNL_ARG_DIFF_SCALE, memory(parameter, state->engine, buffers.dgamma)},
                      {DNNL_ARG_DIFF_SHIFT, memory(parameter, state->engine, buffers.dbeta)}};
  state_ = std::move(state);
}

void OneDnnBackward::run() {
  state_->primitive.execute(state_->stream, state_->arguments);
  state_->stream.wait();
}

std::string OneDnnForward::version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

void OneDnnForward::set_threads(std::size_t threads) {
  if (omp_set_num_threads != nullptr) omp_set_num_threads(static_cast<int>(threads));
}

#else

namespace evenorm::bench {

struct OneDnnForward::State {};
OneDnnForward::OneDnnForward(std::size_t, std::size_t, bool, void*, void*, void*, void*) {}
void OneDnnForward::run() {}
std::string OneDnnForward::version() { return "not found"; }
void OneDnnForward::set_threads(std::size_t) {}

struct OneDnnBackward::State {};
OneDnnBackward::OneDnnBackward(std::size_t, std::size_t, const Buffers&) {}
void OneDnnBackward::run() {}

#endif

OneDnnForward::~OneDnnForward() = default;
OneDnnBackward::~OneDnnBackward() = default;

}  // namespace evenorm::bench
