// From sums to finished statistics, for single rows: moments of blocks, the tree that joins them, and 1 / sqrt(var +
// eps). docs/numerics.md specifies every operation. Kernels finish groups of short rows with the same formulas.
#pragma once

#include "evenorm/sharded.hpp"
#include "kernels/kernels.hpp"
#include "plan/numbers.hpp"
#include "rows/join.hpp"

namespace evenorm::internal {

inline double load_statistic(const Vector<const void*>& from, std::size_t row) {
  return load_one(reinterpret_cast<const double*>(static_cast<const char*>(from.data) + from.axes.offset(row)));
}
inline void store_statistic(const Vector<void*>& to, std::size_t row, double value) {
  if (to.data == nullptr) return;
  if (value != value) value = std::numeric_limits<double>::quiet_NaN();
  char* place = static_cast<char*>(to.data) + to.axes.offset(row);
  if (to.dtype == DType::f64) {
    store_one(value, place);
  } else {
    store_one(static_cast<float>(value), place);
  }
}

template <class A>
BlockSums sums_of(const RowGroup<A>& g, std::size_t row) {
  return {g.mean[row], g.m2[row]};
}
template <class A>
RowScalars scalars_of(const RowGroup<A>& g, std::size_t row) {
  return {g.mean[row], g.mean_lo[row], g.rstd[row], g.scalars.centre[row] == 0, g.flag[row] != 0};
}
template <class A>
void set_moments(RowGroup<A>& g, std::size_t row, const MomentNode& m) {
  g.set(row, m.mean, m.mean_lo, m.m2);
}

// Precomputed moments; f32 arithmetic ignores the mean's low part.
template <class A>
MomentNode node_of(const Moments& m) {
  return {m.count, m.mean, std::is_same_v<A, double> ? m.mean_low : 0, m.m2};
}

// Finishes one row of a group in plain code: vector loads would wait for the stores that just wrote its moments.
template <class A>
void finish_one(RowGroup<A>& g, std::size_t row, const MomentNode& m, double eps) {
  set_moments(g, row, m);
  g.flag[row] =
      plain::FinishMoments<A>(plain::kOne, plain::MeanAndM2<double>{m.mean, m.mean_lo, m.m2}, m.count, eps, g, row);
}

// The second pass of a block of n columns, about k, its mean from the first pass.
template <class T>
[[gnu::noinline]] MomentNode moments_about(const Kernels& kernels, const T* x, std::size_t n, double k) {
  const BlockSums sums = kernels.of<T>().sum_about(x, n, k);
  const auto count = static_cast<double>(n);
  const auto m =
      plain::MomentsFromSumsAbout<Arithmetic<T>>(plain::kOne, k, plain::SumsOfRows<double>{sums.s, sums.q}, count);
  return {count, m.mean, m.mean_lo, m.m2};
}

// The moments of one block of n <= kBlock columns, from its sums about 0. A second pass gets the block from get_x().
template <class T, class GetX>
MomentNode moments_of(const Kernels& kernels, bool centred, const BlockSums& sums, std::size_t n, const GetX& get_x) {
  const auto count = static_cast<double>(n);
  if (!centred) return {count, 0, 0, sums.q};
  const auto m = plain::MomentsFromSums(plain::kOne, plain::SumsOfRows<double>{sums.s, sums.q}, count);
  if (plain::NeedsSecondPass<Arithmetic<T>>(plain::kOne, m.m2, sums.q)) {
    return moments_about<T>(kernels, get_x(), n, m.mean);
  }
  return {count, m.mean, 0, m.m2};
}

// The moments of one block in memory.
template <class T>
MomentNode moments_of_block(const Kernels& kernels, Kind kind, const T* x, std::size_t n) {
  RowGroup<Arithmetic<T>> group;
  kernels.of<T>().sum_rows[index_of(kind)]({{x, 0}, 1, n, &group, 0, 0});
  return moments_of<T>(kernels, kind == Kind::layer, sums_of(group, 0), n, [=] { return x; });
}

// Sums the blocks of a row that is divided as `part` says, and joins them. get(first, n): where n columns are.
template <class T, class Get>
MomentNode sum_blocks(const Kernels& kernels, Kind kind, MomentNode* nodes, const Partition& part, const Get& get) {
  MomentRowTree<Arithmetic<T>> tree({nodes, kind == Kind::layer}, part);
  for (std::size_t i = 0; i < part.blocks(); ++i) {
    const auto [first, n] = part.block(i);
    tree.push(moments_of_block<T>(kernels, kind, static_cast<const T*>(get(first, n)), n));
  }
  return tree.finish();
}

// A row's scalars for the normalise step, as row 0 of a group.
template <class A>
NormScalarsOfRows<A> norm_scalars_of(const RowScalars& row) {
  NormScalarsOfRows<A> scalars;
  plain::StoreNormScalars<A>(plain::kOne, row.mean, row.mean_lo, row.rstd, row.near_zero, scalars.centre,
                             scalars.offset, scalars.rstd);
  return scalars;
}

}  // namespace evenorm::internal
