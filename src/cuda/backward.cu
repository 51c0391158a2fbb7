// From a GradientProblem to the kernels' arguments, and to the kernels that take them.
#include "cuda/arguments.hpp"
#include "cuda/backward_kernels.hpp"
#include "cuda/passes.hpp"
#include "plan/gradient_plan.hpp"

namespace evenorm::internal::cuda {
namespace {

bool finds_statistics(const GradientProblem& p) { return p.rstd.data == nullptr; }

// Scratch: flags of row blocks, sums of row blocks, first chains of f32, statistics of rows. Counts of f64.
constexpr std::size_t kFlags = kMostRowShares * sizeof(int) / sizeof(double);
std::size_t sums_of(const GradientProblem& p) { return sums_over_rows(p) ? row_blocks(p) * 2 * p.cols : 0; }
std::size_t chains_of(const GradientProblem& p) { return sums_of(p) / 2; }
std::size_t statistics_of(const GradientProblem& p) { return finds_statistics(p) ? 2 * p.rows : 0; }

Vector<void*> row_numbers(double* data, std::size_t rows) {
  Vector<void*> v{data, DType::f64, {}};
  v.axes.append({rows, sizeof(double)});
  return v;
}

BackwardArguments arguments_of(const GradientProblem& p) {
  BackwardArguments a;
  a.rows = p.rows;
  a.cols = p.cols;
  a.row_blocks = row_blocks(p);
  a.centred = p.kind == Kind::layer;
  a.zero_centered = p.zero_centered;
  a.writes_dx = p.dx.data != nullptr;
  a.x = device_matrix<const char>("x", p.x);
  a.dy = device_matrix<const char>("dy", p.dy);
  a.dsum = device_matrix<const char>("dsum", p.dsum);
  a.dx = device_matrix<char>("dx", p.dx);
  a.gamma = device_parameter("weight", p.gamma);
  a.mean = device_vector<const char>("mean", p.mean);
  a.rstd = device_vector<const char>("rstd", p.rstd);
  return a;
}

DType gamma_type(const GradientProblem& p) { return p.gamma.data != nullptr ? p.gamma.dtype : p.x.dtype; }

// True if the kernels for one type can take a pass: dense rows along one axis, and a dense gamma of that type or f32.
bool is_plain(const GradientProblem& p) {
  const auto is_dense = [&](const auto& m) { return has_plain_rows(m, p.x.dtype); };
  const DType gamma = gamma_type(p);
  return is_dense(p.x) && is_dense(p.dy) && is_dense(p.dsum) && is_dense(p.dx) && p.mean.axes.count() <= 1 &&
         p.rstd.axes.count() <= 1 && (p.gamma.data == nullptr || p.gamma.axes.is_dense(bytes_of(gamma))) &&
         (gamma == p.x.dtype || gamma == DType::f32);
}

// Plain rows first; then the row blocks that turned out not to be. These are made again from x and dy, so a pass in
// place has no first kernel.
void launch(const GradientProblem& p, BackwardArguments a, int* flags, cudaStream_t stream) {
  if (is_plain(p) && !(a.writes_dx && is_in_place(p))) {
    a.flags = flags;
    check(cudaMemsetAsync(flags, 0, kFlags * sizeof(double), stream));
    const auto plain = p.x.dtype == DType::f32 ? backward_f32 : p.x.dtype == DType::bf16 ? backward_bf16 : backward_f16;
    check(plain(a, gamma_type(p), stream));
  }
  check(backward_any(a, stream));
}

// The statistics of a pass that is not given any, found by the forward pass.
void find_statistics(const GradientProblem& p, const Vector<void*>& mean, const Vector<void*>& rstd,
                     const evenorm::cuda::Stream& on) {
  Problem forward;
  forward.kind = p.kind;
  forward.rows = p.rows;
  forward.cols = p.cols;
  forward.x = p.x;
  forward.y = {nullptr, p.x.dtype, p.x.rows, p.x.cols};
  forward.eps = p.eps;
  forward.mean = mean;
  forward.rstd = rstd;
  run_forward(forward, on);
}

}  // namespace

std::size_t backward_scratch_bytes(const GradientProblem& p) {
  static_cast<void>(arguments_of(p));  // refuses what a GPU cannot take
  return (kFlags + sums_of(p) + chains_of(p) + statistics_of(p)) * sizeof(double);
}

void run_backward(const GradientProblem& problem, void* scratch, const evenorm::cuda::Stream& on) {
  if (problem.cols == 0) return;
  auto* const stream = static_cast<cudaStream_t>(on.stream);
  auto* const flags = static_cast<int*>(scratch);
  double* const numbers = static_cast<double*>(scratch) + kFlags;
  GradientProblem p = problem;
  Vector<void*> mean, rstd;
  if (finds_statistics(problem)) {
    double* const statistics = numbers + sums_of(p) + chains_of(p);
    if (p.kind == Kind::layer) mean = row_numbers(statistics, p.rows);
    rstd = row_numbers(statistics + p.rows, p.rows);
    p.mean = {mean.data, mean.dtype, mean.axes};
    p.rstd = {rstd.data, rstd.dtype, rstd.axes};
  }
  BackwardArguments a = arguments_of(p);
  const ColumnArguments columns{
      numbers,      p.rows == 0 ? 0 : a.row_blocks,           a.cols,
      p.accumulate, device_vector<char>("dweight", p.dgamma), device_vector<char>("dbias", p.dbeta)};
  const CurrentDevice current(on.device);
  if (finds_statistics(problem) && p.rows != 0) find_statistics(problem, mean, rstd, on);
  if (sums_over_rows(p)) {
    a.sums = numbers;
    a.first_chains = reinterpret_cast<float*>(numbers + sums_of(p));
    a.writes_dx = a.writes_dx && !is_in_place(p);  // sums over rows may be made again from x and dy
    if (p.rows != 0) launch(p, a, flags, stream);
    check(finish_columns(columns, stream));
    a.sums = nullptr;
    a.writes_dx = p.dx.data != nullptr && is_in_place(p);
  }
  if (a.writes_dx && p.rows != 0) launch(p, a, flags, stream);
}

}  // namespace evenorm::internal::cuda
