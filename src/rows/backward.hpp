// The backward pass over rows: statistics -> sums -> map, a few rows at a time, over runs of row blocks; and the same
// in two steps, for few long rows. backward.cpp has the order and the sums, backward_statistics.cpp what is known of a
// row before them, backward_map.cpp dx. Knows nothing of threads, or of how row blocks are joined.
#pragma once

#include "plan/gradient_plan.hpp"
#include "rows/gradient_columns.hpp"
#include "rows/parameter.hpp"
#include "rows/scaled.hpp"
#include "rows/scaled_gradient.hpp"

namespace evenorm::internal {

// One of the rows that are looked at together: blocks of x or dy, with scratch of their own where they need it.
template <class T>
class RowSource {
  using A = Arithmetic<T>;

 public:
  RowSource(const Kernels& kernels, const Matrix<const void*>& m, const RowPlan& plan, const Scratch& scratch)
      : kernels_(kernels),
        matrix_(m),
        is_tiled_(plan.tile.bytes != 0),
        scratch_(scratch.at<A>(plan.converted)),
        tile_(kernels, m, false, scratch.at<char>(plan.tile), 0),
        source_(kernels, m, is_tiled_ ? &tile_ : nullptr, scratch_) {}
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  Source<T>& get() { return source_; }
  // The same in the arithmetic's type, to be scaled; converted scratch is planned.
  Source<A> wide() { return Source<A>(kernels_, matrix_, is_tiled_ ? &tile_ : nullptr, scratch_); }

 private:
  const Kernels& kernels_;
  const Matrix<const void*>& matrix_;
  bool is_tiled_;
  A* scratch_;
  Tile<const void*> tile_;
  Source<T> source_;
};

// T: the arithmetic's type, or a 16-bit one: x, dy and dx are then of it and dense, dx apart, and there is no dsum.
template <class T>
class BackwardRows {
 public:
  using A = Arithmetic<T>;
  static constexpr std::size_t kPiece = kGradientPiece<A>;
  static_assert(kBlock % kPiece == 0);

  // used: the columns whose gamma is looked at.
  BackwardRows(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Scratch& scratch,
               ColumnRange used);

  // dx of the rows, and their sums to `sums`, which are cleared first, unless there are none.
  void run(std::size_t first, std::size_t count, const ColumnSums& sums);

  // Of at most kRowsAtOnce rows whose moments are known: their sums over columns [first_col, first_col + cols), whole
  // blocks.
  void sum_run(std::size_t first, std::size_t count, std::size_t first_col, std::size_t cols, GradientSums* sums);
  // The scalars of such a row, from its sums over the columns of all processes.
  GradientScalars finish_sums(std::size_t row, const GradientSums& sums);

  // The scalars of at most kRowsAtOnce rows; and their sums over all columns to `sums`, unless there are none.
  void look(std::size_t first, std::size_t count, const ColumnSums& sums, GradientScalars* scalars);

  // Columns [first_col, first_col + cols), no more than a piece of one block, of all rows, whose scalars are known.
  void run_strip(const GradientScalars* scalars, std::size_t first_col, std::size_t cols, const ColumnSums& sums);

 private:
  static constexpr bool kWide = std::is_same_v<A, double>;

  // How the elements of a row's dx are made.
  enum class MapBy { arithmetic, wider, scaling };
  struct RowMap {
    GradientMapScalarsOfRows<A> scalars;
    MapBy by;
  };

  void run_rows(std::size_t first, std::size_t count, const ColumnSums& sums);
  void run_known(std::size_t first, std::size_t count, const ColumnSums& sums);
  void add_and_map(const GradientScalars* scalars, std::size_t first, std::size_t count, std::size_t first_col,
                   std::size_t cols, const ColumnSums& sums);
  void run_short_rows(std::size_t first, std::size_t count, const ColumnSums& sums);
  void run_even_rows(std::size_t first, std::size_t count, const double* mean, const double* rstd,
                     const ColumnSums& sums);
  void run_together(std::size_t first, const ColumnSums& sums);
  bool map_together(std::size_t first, const GradientScalars* statistics, const BlockSums* sums);

  static std::size_t run_length(const GradientScalars* scalars, std::size_t count);
  void find_statistics(std::size_t first, std::size_t count, GradientScalars* scalars);
  bool find_short_statistics(std::size_t first, std::size_t count, double* mean, double* rstd);
  void find_gamma_range(ColumnRange used);
  bool has_plain_elements(std::size_t row);
  bool needs_scaling(std::size_t row, const RowScalars& s);
  void scale_x(std::size_t row, GradientScalars* s);
  void set_statistics(const RowGroup<A>& group, std::size_t at, std::size_t row, GradientScalars* s);

  void fill_rows(std::size_t first, std::size_t count, const GradientScalars* s, std::size_t col, std::size_t n,
                 GradientRow<T>* rows);
  void look_at(std::size_t first, std::size_t count, const GradientScalars* scalars, ColumnRange range,
               const ColumnSums& sums, BlockSums* joined);
  void look_at_block(std::size_t first, std::size_t count, const GradientScalars* scalars, std::size_t first_col,
                     std::size_t cols, const ColumnSums& sums, BlockSums* joined);
  void finish_look(const BlockSums& sums, GradientScalars* s);
  void set_means(const BlockSums& sums, GradientScalars* s);
  static bool holds_k2(const BlockSums& sums, const GradientScalars& s);
  void add_to_columns(std::size_t first, std::size_t count, const GradientScalars* scalars, std::size_t col,
                      std::size_t n, const ColumnSums& sums);
  void sum_scaled_gradients(std::size_t row, GradientScalars* s);
  GradientSums scaled_sums(std::size_t row, ColumnRange range, GradientScalars* s);
  void set_scaled_means(const GradientSums& sums, GradientScalars* s);
  void add_scaled_to_columns(std::size_t row, const GradientScalars& s, std::size_t first_col, std::size_t cols,
                             const ColumnSums& sums);
  template <class Work>
  void for_pieces(std::size_t row, ColumnRange range, const Work& work);

  RowMap map_of(const GradientScalars& s) const;
  void map(std::size_t first, std::size_t count, const GradientScalars* scalars, std::size_t first_col,
           std::size_t cols);
  void map_piece(std::size_t row, const GradientScalars& scalars, const RowMap& map, std::size_t col, std::size_t n);
  void map_wider(const GradientScalars& s, const RowMap& map, const T* x, const T* dy, const A* gamma, std::size_t n,
                 T* dx);
  void deliver(std::size_t row, std::size_t col, std::size_t n, const A* dx, A* place);
  void add_sum(std::size_t row, std::size_t col, std::size_t n, A* place);
  void add_pieces(std::size_t row, std::size_t col, std::size_t n, A* place);

  bool is_centred() const { return p_.kind == Kind::layer; }
  // True if dx is 0 by definition.
  bool is_zero(const GradientScalars& s) const { return s.rstd == 0 || (is_centred() && p_.whole_cols == 1); }

  const Kernels& kernels_;
  const GradientProblem& p_;
  bool wants_dx_;
  MomentNode* moment_nodes_;
  GradientNode* sum_nodes_;
  RowSource<T> whole_row_;  // by blocks
  RowSource<T> x_[kRowsAtOnce], dy_[kRowsAtOnce];
  Parameter<A, 1> gamma_;
  Tile<void*> dx_tile_;
  Sink<T> sink_;
  T* aside_;  // where dx is made if it takes the place of what it is made from
  bool stream_;
  bool direct_;  // x, dy and dx have type T and dense rows, and dx is elsewhere
  std::size_t ahead_;
  bool has_plain_gamma_ = true;  // in f64 arithmetic: products of gamma lose no digit
};

}  // namespace evenorm::internal
