// What the backward kernel knows of a row before its sums, and the gradients of wide rows (docs/numerics.md, section 7,
// step 5), element by element in f64. These are functions of their own so that they take no registers of the kernel.
#pragma once

#include "cuda/backward_arguments.hpp"
#include "plan/spec.hpp"
#include "rows/scaled_statistics.hpp"

namespace evenorm::internal::cuda {

using plain::kOne;

inline constexpr int kBackwardThreads = 256;
inline constexpr int kMostOfCluster = 16;  // thread blocks
inline constexpr int kFour = static_cast<int>(kChainRows);
inline constexpr int kLines = static_cast<int>(kChainLines);  // a thread's columns
inline constexpr int kChainThreads = static_cast<int>(kLanes);
inline constexpr int kChainColumns = static_cast<int>(kChainLines * kLanes);
inline constexpr int kWideLanes = static_cast<int>(kLanes) / 2;
inline constexpr int kTileColumns = kBackwardThreads * kLines;

// The columns of a thread: one in each line of a chain, from `first` on.
struct OwnColumns {
  __device__ std::size_t at(int line) const { return first + line * kLanes; }

  std::size_t first;
};

// What a pass is given of a row, and what is known of it before its sums.
struct RowStatistics {
  double mean, rstd;
};
struct GradientRow {
  double mean = 0, rstd = 0;
  float centre = 0, rs = 0, offset = 0;
  bool wide = false;  // computed in f64
};
// What all threads take of it.
struct alignas(16) RowInArithmetic {
  float centre, rs, offset;
};
// What its sums add to that.
struct DxScalars {
  double c1 = 0, c2 = 0;
  float k2 = 0, a = 0;
  bool wide = false;  // dx is computed in f64
};

// Row `row` of a row block that ends at row `end`. A row behind it has zeros.
template <bool kEven>
__device__ RowStatistics statistics_of(const BackwardArguments& p, std::size_t row, std::size_t end) {
  RowStatistics s{0, 0};
  if (row >= end) return s;
  if (p.centred) s.mean = *reinterpret_cast<const double*>(p.mean.template at<kEven>(row));
  s.rstd = *reinterpret_cast<const double*>(p.rstd.template at<kEven>(row));
  if (p.centred && p.cols == 1 && s.rstd == s.rstd) s.rstd = 0;
  return s;
}
__device__ inline GradientRow gradient_row(const RowStatistics& s) {
  GradientRow r;
  r.mean = s.mean;
  r.rstd = s.rstd;
  r.wide = has_wide_rstd<float>(r.rstd);
  plain::StoreNormScalars<float>(kOne, r.mean, 0.0, r.rstd, false, &r.centre, &r.offset, &r.rs);
  return r;
}
__device__ inline GradientRow gradient_row(const BackwardArguments& p, std::size_t row) {
  return gradient_row(statistics_of<false>(p, row, row + 1));
}

__device__ inline double x_at(const BackwardArguments& p, std::size_t row, std::size_t col) {
  return load_as<double>(p.x.data + p.x.rows.offset(row) + p.x.cols.offset(col), p.x.dtype);
}
__device__ inline double dy_at(const BackwardArguments& p, std::size_t row, std::size_t col) {
  return load_as<double>(p.dy.data + p.dy.rows.offset(row) + p.dy.cols.offset(col), p.dy.dtype);
}
__device__ inline double gamma_at(const BackwardArguments& p, std::size_t col) {
  const float gamma = p.gamma.data != nullptr ? load_as<float>(p.gamma.at(col), p.gamma.dtype) : 1.0F;
  return static_cast<double>(p.zero_centered ? gamma + 1.0F : gamma);
}

// The sums of g and of g (centre - x) of the block of columns that begins at `first`.
static __device__ __noinline__ void sum_block_again(const BackwardArguments& p, std::size_t row, std::size_t end,
                                                    std::size_t first, double (&sums)[2]) {
  if (row >= end) return;
  const auto centre = static_cast<double>(gradient_row(p, row).centre);
  const std::size_t last = first + kBlock < p.cols ? first + kBlock : p.cols;
  double g = 0, gd = 0;
  for (std::size_t col = first; col < last; ++col) {
    const double product = dy_at(p, row, col) * gamma_at(p, col);
    g += product;
    gd += product * (centre - x_at(p, row, col));
  }
  sums[0] = g;
  sums[1] = gd;
}

// dx of a thread's columns of one row: of all if it is wide, else where the kernel's formula leaves the range.
static __device__ __noinline__ void write_wide_dx(const BackwardArguments& p, std::size_t row, const DxScalars& s,
                                                  std::size_t first) {
  const GradientRow known = gradient_row(p, row);
  for (int line = 0; line < kLines; ++line) {
    const std::size_t col = OwnColumns{first}.at(line);
    if (col >= p.cols) continue;
    const double x = x_at(p, row, col), dy = dy_at(p, row, col), gamma = gamma_at(p, col);
    const float g = static_cast<float>(dy) * static_cast<float>(gamma), d = known.centre - static_cast<float>(x);
    float dx = std::fma(g, known.rs, std::fma(d, s.k2, s.a));
    if (s.wide || !std::isfinite(dx)) {
      const double value = ((dy * gamma - s.c1) - ((x - known.mean) * known.rstd) * s.c2) * known.rstd + 0.0;  // not -0
      const bool number = std::isfinite(s.c1) && std::isfinite(s.c2) && value == value;
      dx = number ? static_cast<float>(value) : kNanOf<float>;
    }
    if (p.dsum.data != nullptr) {
      dx += load_as<float>(p.dsum.data + p.dsum.rows.offset(row) + p.dsum.cols.offset(col), p.dsum.dtype);
    }
    store_as(dx, p.dx.data + p.dx.rows.offset(row) + p.dx.cols.offset(col), p.dx.dtype);
  }
}

// What a row adds to dgamma (which = 0) or dbeta (1).
__device__ inline double wide_term(const BackwardArguments& p, std::size_t row, std::size_t col, int which) {
  const double dy = dy_at(p, row, col);
  if (which == 1) return dy;
  const GradientRow known = gradient_row(p, row);
  return dy * ((x_at(p, row, col) - known.mean) * known.rstd);
}
// Adds the terms of the wide ones of four rows to a column's sum.
static __device__ __noinline__ void add_wide_terms(const BackwardArguments& p, const bool* wide, std::size_t first,
                                                   std::size_t end, std::size_t col, int which, double* sum) {
  for (int r = 0; r < kFour; ++r) {
    if (wide[r] && first + r < end) *sum += wide_term(p, first + r, col, which);
  }
}
static __device__ __noinline__ double sum_over_rows_again(const BackwardArguments& p, std::size_t first,
                                                          std::size_t end, std::size_t col, int which) {
  double sum = 0;
  for (std::size_t row = first; row < end; ++row) sum += wide_term(p, row, col, which);
  return sum;
}

}  // namespace evenorm::internal::cuda
