// The shared formulas of single rows, in f32 arithmetic: the same text as on a CPU, which only this file calls.
#pragma once

#include "rows/join.hpp"

namespace evenorm::internal::cuda {

using plain::kOne;

struct MeanAndM2 {
  double mean, m2;
};
__device__ inline MomentNode node_of(double count, const MeanAndM2& moments) {
  return {count, moments.mean, 0, moments.m2};
}
__device__ inline MeanAndM2 moments_of(const MomentNode& node) { return {node.mean, node.m2}; }

// From a block's sums of x and x^2, and of x - k and (x - k)^2.
using BlockSums = plain::SumsOfRows<double>;
__device__ inline MeanAndM2 moments_of(const BlockSums& sums, const Count& count) {
  const auto moments = plain::MomentsFromSums(kOne, sums, count);
  return {moments.mean, moments.m2};
}
__device__ inline bool needs_second_pass(double m2, double q) { return plain::NeedsSecondPass<float>(kOne, m2, q); }
__device__ inline MeanAndM2 moments_about(double k, const BlockSums& sums, double n) {
  const auto moments = plain::MomentsFromSumsAbout<float>(kOne, k, sums, n);
  return {moments.mean, moments.m2};
}

// What follows from a row's moments.
struct RowStatistics {
  double mean, rstd;
};
struct FinishedRow {
  RowStatistics statistics;
  bool near_zero, in_range, finite;
};
__device__ inline FinishedRow finished(const MeanAndM2& moments, const Count& count, double eps) {
  const double mean = moments.mean, var = plain::MeanOf(kOne, moments.m2, count);
  return {{mean, plain::RstdOf(kOne, var, eps)},
          plain::IsNearZero(kOne, mean, var),
          plain::InSafeRange<float>(kOne, mean * mean + var, eps),
          std::isfinite(mean) && std::isfinite(var)};
}
// near_zero: the mean is not subtracted from x.
__device__ inline NormScalars<float> norm_scalars(const RowStatistics& row, bool near_zero) {
  NormScalars<float> s;
  plain::StoreNormScalars<float>(kOne, row.mean, 0.0, row.rstd, near_zero, &s.centre, &s.offset, &s.rstd);
  return s;
}

// Whether the gradients of a row are computed in f64.
__device__ inline bool has_rare_rstd(double rstd) {
  constexpr RstdRange kRange = kRstdRange<float>;
  return rstd != 0 && !(rstd >= kRange.least && rstd <= kRange.most);
}
// What the sums of g and of g (centre - x) add to what is known of a row.
struct DxScalars {
  double c1 = 0, c2 = 0;
  float k2 = 0, a = 0;
  bool rare = false;  // dx is computed in f64
};
__device__ inline DxScalars dx_scalars(bool centred, const RowStatistics& row, float centre, double g, double gd,
                                       const Count& count) {
  const double rest = row.mean - static_cast<double>(centre);
  const BlockSums sums{g, plain::SumAboutMean(kOne, g, gd, rest)};
  const auto means = plain::GradientMeansOf(kOne, centred, sums, row.rstd, count);
  DxScalarsOfRows<float> to;
  const bool in_range = plain::StoreDxScalars<float>(kOne, rest, row.rstd, means, 0, to);
  return {means.c1, means.c2, to.k2[0], to.a[0], !in_range || has_rare_rstd(row.rstd)};
}

}  // namespace evenorm::internal::cuda
