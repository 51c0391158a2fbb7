// What the steps of a backward pass share: rows of x, dy and gamma, piece by piece, and memory.
#pragma once

#include <cmath>

#include "forward/rare_row.hpp"
#include "panels/panel.hpp"
#include "panels/parameter.hpp"
#include "plan/gradient_plan.hpp"
#include "rows/plain.hpp"

namespace evenorm::internal {

// Temporary memory, on a worker's stack. T: the type of the kernels.
template <class T>
struct BackwardScratch {
  using A = Arithmetic<T>;
  static constexpr std::size_t kPiece = kGradientPiece<A>;
  static_assert(kBlock % kPiece == 0 && kPiece % (kChainSlices * kLanes) == 0);

  union {  // moments are no longer needed when sums begin
    MomentNode moment_nodes[kMaxNodes];
    GradientNode sum_nodes[kMaxNodes + 1];
  };
  alignas(kCacheLine) A gamma[kBlock];
  alignas(kCacheLine) T block[kBlock];  // of x, for its moments
  alignas(kCacheLine) T x[kPiece], dy[kPiece], dx[kPiece];
  union {  // without dx, there is no dsum
    alignas(kCacheLine) T dsum[kPiece];
    double sums_again[kPiece * sizeof(T) / sizeof(double)];
  };
};

enum class Weights { gamma, ones };

// T: the arithmetic's type, or a 16-bit one: x, dy and dx are then of it and dense, dx apart, and there is no dsum.
template <class T>
struct BackwardRows {
  using A = Arithmetic<T>;
  static constexpr bool kWide = std::is_same_v<A, double>;

  // set: that of the rows. used: the columns whose gamma is used.
  BackwardRows(const Kernels& all_kernels, const GradientProblem& problem, const GradientPlan& pass, std::size_t set,
               ColumnRange used)
      : kernels(all_kernels),
        p(problem),
        plan(pass.rows),
        x(kernels, p.x, dtype_of<T>, plan.x),
        dy(kernels, p.dy, dtype_of<T>, plan.dy),
        dsum(kernels, p.dsum, dtype_of<T>, plan.dsum),
        dx(kernels, p.dx, dtype_of<T>, plan.dx),
        gamma(kernels, p.gamma, set, p.zero_centered, p.cols, used, scratch.gamma) {}
  BackwardRows(const BackwardRows&) = delete;
  BackwardRows& operator=(const BackwardRows&) = delete;

  bool is_centred() const { return p.kind == Kind::layer; }

  // Calls work(piece, its first column) for some columns of a row, at most so many at once.
  template <class Work>
  void for_pieces(std::size_t row, ColumnRange range, Weights weights, std::size_t most, const Work& work) {
    for (std::size_t col = range.first, n; col < range.end; col += n) {
      n = std::min(most, range.end - col);
      const Part part{row, 1, col, n};
      const A* weight = weights == Weights::gamma ? gamma.block(col, n) : kConstantBlock<A, 1>.data();
      const T *of_x = x.open(part, EvenRows<T>{scratch.x}).first, *of_dy = dy.open(part, EvenRows<T>{scratch.dy}).first;
      work(GradientPiece<T>{of_x, of_dy, weight, n, plan.ahead}, col);
    }
  }

  // The same in f64, a few columns at once, with x 2^-exponent in place of x: work(wide piece, piece, first column).
  template <class Work>
  void for_wide_pieces(std::size_t row, ColumnRange range, Weights weights, int exponent, const Work& work) {
    Convert* widen = kernels.convert[index_of(dtype_of<T>)][index_of(DType::f64)];
    Convert* widen_gamma = kernels.convert[index_of(dtype_of<A>)][index_of(DType::f64)];
    const double factor = std::ldexp(1.0, -exponent);
    for_pieces(row, range, weights, kRarePiece, [&](const GradientPiece<T>& piece, std::size_t col) {
      double wide_x[kRarePiece], wide_dy[kRarePiece], wide_gamma[kRarePiece];
      widen(piece.x, wide_x, piece.n);
      widen(piece.dy, wide_dy, piece.n);
      widen_gamma(piece.gamma, wide_gamma, piece.n);
      for (std::size_t i = 0; exponent != 0 && i < piece.n; ++i) wide_x[i] *= factor;
      work(GradientPiece<double>{wide_x, wide_dy, wide_gamma, piece.n}, piece, col);
    });
  }

  const Kernels& kernels;
  const GradientProblem& p;
  const GradientRowsPlan& plan;
  Panel x, dy, dsum, dx;
  BackwardScratch<T> scratch;
  Parameter<A, 1> gamma;
};

// A row's scalars in f32 or f64 arithmetic. Returns false if they do not make dx.
template <class B>
bool store_dx_scalars(const GradientScalars& s, DxScalarsOfRows<B>& scalars) {
  using namespace plain;
  StoreNormScalars<B>(kOne, s.mean, s.mean_lo, s.rstd, false, scalars.centre, scalars.offset, scalars.rstd);
  return StoreDxScalars<B>(kOne, RestOfMean<B>(kOne, s.mean, s.mean_lo), s.rstd, GradientMeans<double>{s.c1, s.c2}, 0,
                           scalars);
}

}  // namespace evenorm::internal
