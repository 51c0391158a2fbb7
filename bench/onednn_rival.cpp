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

#endif

OneDnnForward::~OneDnnForward() = default;

}  // namespace evenorm::bench
