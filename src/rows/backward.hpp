// The backward pass over rows: statistics -> sums -> dx and columns, row by row or short rows together; and the same in
// two steps, for few long rows. backward.cpp has the order of rows, backward_row.cpp what becomes of one of them,
// backward_statistics.cpp what is known of it before, backward_rare.cpp rare rows. Knows nothing of threads, or of how
// row blocks are joined.
#pragma once

#include "plan/gradient_plan.hpp"
#include "rows/gradient_columns.hpp"
#include "rows/parameter.hpp"
#include "rows/rare_row.hpp"
#include "rows/sink.hpp"
#include "rows/source.hpp"

namespace evenorm::internal {

// A block's lanes, joined to one number each.
inline GradientNode joined(const GradientLanes& lanes) {
  double g[kLanes / 2], gd[kLanes / 2];
  std::copy_n(lanes.g, kLanes / 2, g);
  std::copy_n(lanes.gd, kLanes / 2, gd);
  for (std::size_t step = kLanes / 4; step != 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) g[l] += g[l + step], gd[l] += gd[l + step];
  }
  return {g[0], gd[0]};
}

// T: the arithmetic's type, or a 16-bit one: x, dy and dx are then of it and dense, dx apart, and there is no dsum.
template <class T>
class BackwardRows {
 public:
  using A = Arithmetic<T>;
  static_assert(kBlock % kGradientPiece<A> == 0 && kGradientPiece<A> % (kChainLines * kLanes) == 0);

  // set: that of the rows. used: the columns whose gamma is used.
  BackwardRows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t set,
               ColumnRange used);
  BackwardRows(const BackwardRows&) = delete;
  BackwardRows& operator=(const BackwardRows&) = delete;

  // dx of some columns of the rows of a row block, and their sums to `sums`, which are cleared first, unless there are
  // none. scalars: of each row of the problem; null if they are not known: then all columns are computed.
  void run(RowBlock rows, ColumnRange range, const GradientScalars* scalars, const ColumnSums& sums);

  // Where each row's sums over runs of columns go: slot_of_row() numbers for each row of the problem.
  void set_row_sums(double* sums) { row_sums_ = sums; }

  // The scalars of some rows.
  void find_scalars(std::size_t first, std::size_t count, GradientScalars* scalars);

  // mean, rstd, and whether the row is rare.
  void find_statistics(std::size_t first, std::size_t count, GradientScalars* scalars);
  // A row's sums over columns [first_col, first_col + cols), whole blocks; and its scalars, from its sums over the
  // columns of all processes.
  GradientNode sum_part(std::size_t row, std::size_t first_col, std::size_t cols);
  GradientScalars finish_sums(std::size_t row, const GradientNode& sums);

 private:
  static constexpr bool kWide = std::is_same_v<A, double>;
  static constexpr std::size_t kSumPiece = 64;  // columns of dsum that are gathered or converted at once

  void run_rows(const GradientScalars* scalars, RowBlock rows, ColumnRange range, const ColumnSums& sums);
  void run_short_rows(RowBlock rows, const ColumnSums& sums);
  void run_even_rows(std::size_t first, std::size_t count, const RowStatistics& statistics, RowBlock rows,
                     const ColumnSums& sums);
  void run_row(std::size_t row, RowBlock rows, const ColumnSums& sums, bool writes_dx);
  void repair_columns(const GradientScalars* scalars, RowBlock rows, ColumnRange range, const ColumnSums& sums);

  bool load_statistics(std::size_t first, std::size_t count, double* means, double* rstds) const;
  bool find_short_statistics(std::size_t first, std::size_t count, RowStatistics& statistics);
  void set_statistics(const RowGroup<A>& group, std::size_t at, OwnSource<T, kBlock>& x, std::size_t row,
                      GradientScalars* s);
  double usable_rstd(double rstd) const { return is_centred() && p_.whole_cols == 1 && rstd == rstd ? 0 : rstd; }

  bool sums_runs() const { return summed_run(p_) != 1; }
  GradientNode sum_by_blocks(std::size_t row, const GradientScalars& s, ColumnRange range);
  GradientNode sum_block(std::size_t row, const GradientScalars& s, ColumnRange range);
  GradientNode sum_rare_block(std::size_t row, const GradientScalars& s, ColumnRange range);
  void finish(const GradientNode& sums, GradientScalars* s);
  GradientNode sum_runs(std::size_t row, const GradientScalars& s);
  void dx_of_row(std::size_t row, const GradientScalars& s, ColumnRange range, const ColumnSums& sums, Chain chain,
                 bool writes_dx);
  void dx_of_piece(std::size_t row, const GradientScalars& s, const DxScalarsOfRows<A>& scalars,
                   const GradientPiece<T>& piece, const GradientColumns<A>& columns, Chain chain, std::size_t col,
                   bool writes_dx);
  void dx_of_rare_piece(const GradientScalars& s, const DxScalarsOfRows<A>& scalars, const GradientPiece<T>& piece,
                        const GradientColumns<A>& columns, Chain chain, T* dx);
  void replace_not_finite(const DxScalarsOfRows<A>& scalars, const GradientPiece<T>& piece, const double* found, T* dx);
  // work(piece, first column) of some columns of a row.
  template <class Work>
  void for_pieces(std::size_t row, ColumnRange range, const Work& work) {
    for (std::size_t col = range.first, n; col < range.end; col += n) {
      n = std::min(piece_, range.end - col);
      const A* gamma = weighs_ ? gamma_.block(col, n) : kConstantBlock<A, 1>.data();
      work(GradientPiece<T>{x_.get().block(row, col, n), dy_.get().block(row, col, n), gamma, n, ahead_}, col);
    }
  }
  // The scalars of dx in f32 or f64 arithmetic. Returns false if they do not make dx.
  template <class B>
  bool store_dx_scalars(const GradientScalars& s, DxScalarsOfRows<B>& scalars) const {
    using namespace plain;
    StoreNormScalars<B>(kOne, s.mean, s.mean_lo, s.rstd, false, scalars.centre, scalars.offset, scalars.rstd);
    return StoreDxScalars<B>(kOne, RestOfMean<B>(kOne, s.mean, s.mean_lo), s.rstd, GradientMeans<double>{s.c1, s.c2}, 0,
                             scalars);
  }
  template <class Work>
  void widened(const GradientPiece<T>& piece, int exponent, const Work& work);
  void deliver(std::size_t row, std::size_t col, std::size_t n, const T* dx, T* place);
  void add_sum(std::size_t row, std::size_t col, std::size_t n, T* place);

  bool is_centred() const { return p_.kind == Kind::layer; }

  const Kernels& kernels_;
  const GradientProblem& p_;
  union {  // moments are no longer needed when sums begin
    MomentNode moment_nodes_[kMaxNodes];
    GradientNode sum_nodes_[kMaxNodes + 1];
  };
  alignas(kLine) A gamma_values_[kBlock];
  alignas(kLine) A aside_values_[kGradientPiece<A>], dx_converted_[kGradientPiece<A>], dx_gathered_[kGradientPiece<A>];
  OwnSource<T, kGradientPiece<A>> x_, dy_;
  OwnSource<T, kSumPiece> dsum_;
  Parameter<A, 1> gamma_;
  Tile<void*> dx_tile_;
  Sink<T> sink_;
  T* aside_;  // where dx is made if it takes the place of what it is made from, or is not asked for
  bool stream_;
  bool direct_;  // whether x, dy and dx are of type T, their rows dense, and dx elsewhere
  std::size_t ahead_;
  std::size_t piece_;
  bool weighs_ = true;  // whether g is dy gamma, or dy alone
  double* row_sums_ = nullptr;
};

}  // namespace evenorm::internal
