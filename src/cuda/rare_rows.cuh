// Rows that leave the range of f32 arithmetic: plain loops in f64, rounded once. Their results keep the bounds of
// docs/numerics.md, but their bits are not promised to be those of a CPU. Long functions are out of line, so that they
// take no registers of the kernels.
#pragma once

#include "cuda/gradient_row.cuh"

namespace evenorm::internal::cuda {

// --- forward ---
// The scalars of the normalise step.
using RareRow = NormScalars<double>;
__device__ inline RareRow rare_row(const RowStatistics& row, bool near_zero) {
  const double centre = near_zero ? 0 : row.mean;
  return {centre, -((row.mean - centre) * row.rstd), row.rstd};
}
// y as an f32 that rounds to `dtype` as the f64 does.
__device__ inline float rare_y(const RareRow& row, float x, float gamma, float beta, DType dtype) {
  const double xhat = std::fma(static_cast<double>(x) - row.centre, row.rstd, row.offset);
  const double y = std::fma(xhat, static_cast<double>(gamma), static_cast<double>(beta));
  return dtype == DType::bf16 || dtype == DType::f16 ? rounded_to_odd(y) : __double2float_rn(y);
}

// --- backward ---
__device__ inline double element(const DeviceMatrix<const char>& m, std::size_t row, std::size_t col) {
  return load_as<double>(m.data + m.rows.offset(row) + m.cols.offset(col), m.dtype);
}
__device__ inline double gamma_at(const BackwardArguments& p, std::size_t col) {
  const float gamma = p.gamma.data != nullptr ? load_as<float>(p.gamma.at(col), p.gamma.dtype) : 1.0F;
  return static_cast<double>(p.zero_centered ? gamma + 1.0F : gamma);
}

// The sums of g and of g (centre - x) of the block of columns that begins at `first`.
__device__ __noinline__ inline void sum_block_again(const BackwardArguments& p, std::size_t row, std::size_t first,
                                                    double (&sums)[2]) {
  const double centre = static_cast<float>(statistics_of<false>(p, row, row + 1).mean);
  const std::size_t last = first + kBlock < p.cols ? first + kBlock : p.cols;
  double g = 0, gd = 0;
  for (std::size_t col = first; col < last; ++col) {
    const double product = element(p.dy, row, col) * gamma_at(p, col);
    g += product;
    gd += product * (centre - element(p.x, row, col));
  }
  sums[0] = g;
  sums[1] = gd;
}

// dx of a thread's columns of one row.
__device__ __noinline__ inline void write_rare_dx(const BackwardArguments& p, std::size_t row, const DxScalars& s,
                                                  std::size_t first) {
  const RowStatistics known = statistics_of<false>(p, row, row + 1);
  for (int line = 0; line < kLines; ++line) {
    const std::size_t col = OwnColumns{first}.at(line);
    if (col >= p.cols) continue;
    const double g = element(p.dy, row, col) * gamma_at(p, col);
    const double xhat = (element(p.x, row, col) - known.mean) * known.rstd;
    double dx = ((g - s.c1) - xhat * s.c2) * known.rstd + 0.0;  // not -0
    if (!(std::isfinite(s.c1) && std::isfinite(s.c2))) dx = kNanOf<double>;
    if (p.dsum.data != nullptr) dx += element(p.dsum, row, col);
    store_as(dx, p.dx.data + p.dx.rows.offset(row) + p.dx.cols.offset(col), p.dx.dtype);
  }
}

// dgamma (which = 0) or dbeta (1) of a column over rows [first, end).
__device__ __noinline__ inline double sum_over_rows_again(const BackwardArguments& p, std::size_t first,
                                                          std::size_t end, std::size_t col, int which) {
  double sum = 0;
  for (std::size_t row = first; row < end; ++row) {
    const double dy = element(p.dy, row, col);
    const RowStatistics s = statistics_of<false>(p, row, end);
    sum += which == 1 ? dy : dy * ((element(p.x, row, col) - s.mean) * s.rstd);
  }
  return sum;
}

}  // namespace evenorm::internal::cuda
