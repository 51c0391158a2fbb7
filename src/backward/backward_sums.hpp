// The sums of a row in the backward pass, and its scalars, which follow from them.
#pragma once

#include <algorithm>
#include <cmath>

#include "backward/backward_statistics.hpp"
#include "rows/join.hpp"

namespace evenorm::internal {

// What the centre leaves of a row's mean. The centre of a rare row is its mean, or the mean's high part.
template <class A>
double rest_of_mean(const GradientScalars& s) {
  return s.rare == Rare::row ? s.mean_lo : plain::RestOfMean<A>(plain::kOne, s.mean, s.mean_lo);
}

// A block of columns. Sums over runs of columns are those of dy alone.
template <class T>
GradientNode sum_block(BackwardRows<T>& rows, std::size_t row, const GradientScalars& s, ColumnRange block) {
  using A = Arithmetic<T>;
  const Weights weights = rows.plan.runs ? Weights::ones : Weights::gamma;
  const A centre = static_cast<A>(s.mean);
  GradientLanes lanes;
  if (s.rare != Rare::row) {
    rows.for_pieces(row, block, weights, rows.plan.columns, [&](const GradientPiece<T>& piece, std::size_t col) {
      rows.kernels.template of<T>().sum_gradients(piece, centre, col == block.first, &lanes);
    });
    const GradientNode sums{join_lanes(lanes.g), join_lanes(lanes.gd)};
    const bool has_digits = !rows.plan.runs || std::abs(sums.gd) >= kLeastOfRun;
    const bool needs_g = rows.is_centred() || rows.plan.runs;
    const bool are_finite = (!needs_g || std::isfinite(sums.g)) && std::isfinite(sums.gd);
    if (rows.kWide || (has_digits && are_finite)) return sums;
  }
  const double wide_centre = s.rare == Rare::row ? s.mean : static_cast<double>(centre);
  rows.for_wide_pieces(row, block, weights, s.exponent, [&](const GradientPiece<double>& wide, auto&, std::size_t col) {
    rows.kernels.template of<double>().sum_gradients(wide, wide_centre, col == block.first, &lanes);
  });
  return {join_lanes(lanes.g), join_lanes(lanes.gd)};
}

// Some columns, from the start of a block on.
template <class T>
GradientNode sum_columns(BackwardRows<T>& rows, std::size_t row, const GradientScalars& s, ColumnRange range) {
  GradientTree tree({rows.scratch.sum_nodes});
  for (std::size_t block = range.first; block < range.end; block += kBlock) {
    tree.push(sum_block(rows, row, s, {block, std::min(block + kBlock, range.end)}));
  }
  return tree.finish();
}

// Sums each run of columns, to `to` if it is not null: slot_of_row() numbers. Returns the sums of the row, weighed run
// by run.
template <class T>
GradientNode sum_runs(BackwardRows<T>& rows, std::size_t row, const GradientScalars& s, double* to) {
  const GradientProblem& p = rows.p;
  GradientTree tree({rows.scratch.sum_nodes + nodes_for(blocks_of(p.shared))});
  for (std::size_t i = 0, col = 0; col < p.cols; ++i, col += p.shared) {
    const GradientNode sums = sum_columns(rows, row, s, {col, col + p.shared});
    if (to != nullptr) {  // the sums of dy xhat and of dy; 0 is +0
      to[i] = sum_about_mean(rows.is_centred(), sums, rest_of_mean<Arithmetic<T>>(s)) * s.rstd + 0.0;
      to[i + p.cols / p.shared] = sums.g + 0.0;
    }
    const double gamma = p.gamma.data == nullptr ? 1.0 : static_cast<double>(rows.gamma.at(col));
    tree.push({sums.g * gamma, sums.gd * gamma});
  }
  return tree.finish();
}

// Completes the scalars of a row, which has its statistics, by its sums over all columns.
template <class T>
void finish_scalars(const BackwardRows<T>& rows, const GradientNode& sums, GradientScalars& s) {
  using A = Arithmetic<T>;
  const auto means = means_of(rows.is_centred(), sums, rest_of_mean<A>(s), s.rstd, rows.p.whole_cols);
  s.c1 = means.c1, s.c2 = means.c2;
  DxScalarsOfRows<A> scalars;
  if (!store_dx_scalars(s, scalars) && s.rare == Rare::nothing) s.rare = Rare::dx;
}

// All of them, of new scalars. run_sums: see sum_runs().
template <class T>
void find_scalars(BackwardRows<T>& rows, std::size_t row, double* run_sums, GradientScalars& s) {
  find_statistics(rows, row, s);
  const GradientNode sums =
      rows.plan.runs ? sum_runs(rows, row, s, run_sums) : sum_columns(rows, row, s, {0, rows.p.cols});
  finish_scalars(rows, sums, s);
}

}  // namespace evenorm::internal
