// From a Problem to the kernels' arguments, and to the kernel that takes them.
#include "cuda/arguments.hpp"
#include "cuda/forward_kernels.hpp"
#include "cuda/passes.hpp"

namespace evenorm::internal::cuda {
namespace {

ForwardArguments arguments_of(const Problem& p) {
  ForwardArguments a;
  a.rows = p.rows;
  a.cols = p.cols;
  a.count = static_cast<double>(p.cols);
  a.centred = p.kind == Kind::layer;
  a.zero_centered = p.zero_centered;
  a.eps = p.eps;
  a.residual_scale = p.residual_scale;
  a.given_scale = p.given_scale;
  a.x = device_matrix<const char>("x", p.x);
  a.residual = device_matrix<const char>("residual", p.residual);
  a.y = device_matrix<char>("y", p.y);
  a.sum = device_matrix<char>("sum", p.sum);
  a.gamma = device_parameter("weight", p.gamma);
  a.beta = device_parameter("bias", p.beta);
  a.mean = device_vector<char>("mean", p.mean);
  a.rstd = device_vector<char>("rstd", p.rstd);
  a.scale = device_vector<char>("scale", p.scale);
  return a;
}

// True if each row begins at a multiple of `bytes`.
template <class Pointer>
bool is_aligned(const Matrix<Pointer>& m, std::size_t bytes) {
  bool aligned = reinterpret_cast<std::uintptr_t>(m.data) % bytes == 0;
  for (std::size_t i = 0; i < m.rows.count(); ++i) {
    aligned = aligned && m.rows[i].stride % static_cast<std::ptrdiff_t>(bytes) == 0;
  }
  return aligned;
}

FormOfPass form_of(const Problem& p) {
  const auto is_dense = [&](const auto& m) { return has_plain_rows(m, p.x.dtype); };
  const DType parameters = p.gamma.data != nullptr ? p.gamma.dtype : p.beta.data != nullptr ? p.beta.dtype : p.x.dtype;
  const auto is_plain = [&](const auto& v) {
    return v.data == nullptr || (v.dtype == parameters && v.axes.is_dense(bytes_of(parameters)));
  };
  FormOfPass form{is_dense(p.x) && is_dense(p.y) && is_dense(p.residual) && is_dense(p.sum) && is_plain(p.gamma) &&
                      is_plain(p.beta) && (parameters == p.x.dtype || parameters == DType::f32),
                  false, parameters};
  constexpr std::size_t kBytes = 16;
  const auto starts_vector = [&](const auto& v) { return reinterpret_cast<std::uintptr_t>(v.data) % kBytes == 0; };
  form.vectors = form.typed && p.cols * bytes_of(p.x.dtype) % kBytes == 0 && is_aligned(p.x, kBytes) &&
                 is_aligned(p.y, kBytes) && is_aligned(p.residual, kBytes) && is_aligned(p.sum, kBytes) &&
                 starts_vector(p.gamma) && starts_vector(p.beta);
  return form;
}

cudaError_t launch(const Problem& p, const ForwardArguments& arguments, cudaStream_t stream) {
  const FormOfPass form = form_of(p);
  const auto typed = p.x.dtype == DType::f32 ? forward_f32 : p.x.dtype == DType::bf16 ? forward_bf16 : forward_f16;
  return form.typed ? typed(arguments, form, stream) : forward_any(arguments, stream);
}

}  // namespace

void run_forward(const Problem& p, const evenorm::cuda::Stream& on) {
  const ForwardArguments arguments = arguments_of(p);
  if (p.rows == 0 || p.cols == 0) return;
  const CurrentDevice current(on.device);
  check(launch(p, arguments, static_cast<cudaStream_t>(on.stream)));
}

}  // namespace evenorm::internal::cuda
