// The backward pass of two norms of one x: some rows, or pieces of a few rows, at a time, the second norm's dx passes
// through scratch to where the first one's is added to it. Knows nothing of what either does.
#pragma once

#include "rows/backward.hpp"
#include "rows/rows.hpp"

namespace evenorm::internal {

struct PairSums {
  ColumnSums first, second;
};

// A: the pair's arithmetic.
template <class A>
class BackwardPairRows {
 public:
  BackwardPairRows(const Kernels& kernels, const GradientNorms& norms, const GradientPairScratch& plan,
                   const Scratch& scratch, ColumnRange used);

  // dx of the rows, and their sums, which are cleared first, where there are any.
  void run(std::size_t first, std::size_t count, const PairSums& sums);

  // dx of columns [first_col, first_col + cols) of all rows, whose scalars are known; planned without whole rows.
  void map_strip(const KnownScalars& scalars, std::size_t first_col, std::size_t cols);

  BackwardRows<A>& first() { return first_; }
  BackwardRows<A>& second() { return second_; }

 private:
  static constexpr std::size_t kPiece = BackwardRows<A>::kPiece;

  void run_whole(std::size_t first, std::size_t count, const PairSums& sums);
  void run_pieces(std::size_t first, std::size_t count, const PairSums& sums);
  void map(std::size_t row, std::size_t count, const KnownScalars& scalars, std::size_t first_col, std::size_t cols);
  void add(std::size_t row);
  void hold(std::size_t row, std::size_t col);
  void share_statistics(std::size_t first, std::size_t count);

  const Kernels& kernels_;
  const GradientProblem& p_;
  const Matrix<const void*>& dsum_;
  std::size_t rows_, row_bytes_, at_once_;
  char* between_;
  bool finds_;                      // statistics, once for both
  double found_[2][kMaxShortRows];  // mean and rstd of the rows at hand
  Vector<const void*> mean_, rstd_;
  Matrix<void*> of_second_, of_first_;  // dx of the rows at hand
  Matrix<const void*> added_, none_;    // what the first norm adds: what the second one made; and nothing
  BackwardRows<A> second_, first_;
};

}  // namespace evenorm::internal
