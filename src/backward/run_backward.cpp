// The backward half of rows/passes.hpp: the order of rows and columns, row blocks and their tree, or two steps.
#include <algorithm>

#include "backward/backward_dx.hpp"
#include "backward/gradient_columns.hpp"
#include "lines/line_gradients.hpp"
#include "problem/fp_environment.hpp"
#include "rows/passes.hpp"
#include "rows/stream.hpp"
#include "rows/types.hpp"

namespace evenorm::internal {
namespace {

// The order of the rows of one set. Knows nothing of threads, or of how row blocks are joined.
template <class T>
class BackwardPass {
 public:
  using A = Arithmetic<T>;
  static constexpr bool kWide = std::is_same_v<A, double>;

  // used: the columns that are computed. run_sums: where each row's sums over runs of columns go, if they are wanted:
  // slot_of_row() numbers for each row of the problem.
  BackwardPass(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t set,
               ColumnRange used, double* run_sums)
      : rows_(kernels, p, plan, set, used), run_sums_(run_sums) {}

  // Some columns of a row block, and their sums, if they are wanted; all columns, unless the scalars of rows are known.
  void run(const RowBlock<A>& block, ColumnRange range, const GradientColumns<A>& columns) {
    const bool dx_last = rows_.plan.dx_last;
    run_rows({block, range, columns, rows_.p.dx.data != nullptr && !dx_last});
    if (!kWide && columns.are_wanted()) repair({block, range, columns, false});
    if (dx_last) run_rows({block, range, {}, true});
  }

 private:
  void run_rows(const BackwardTask<A>& task) {
    if (rows_.plan.together && rows_.p.scalars == nullptr) return run_short_rows(task);
    for (std::size_t row = task.block.first; row < task.block.end; ++row) run_row(row, task);
  }

  void run_row(std::size_t row, const BackwardTask<A>& task) {
    double* const sums = run_sums_ != nullptr ? run_sums_ + row * slot_of_row(rows_.p) : nullptr;
    GradientScalars found;
    if (rows_.p.scalars == nullptr) find_scalars(rows_, row, sums, found);
    const GradientScalars& s = rows_.p.scalars != nullptr ? rows_.p.scalars[row] : found;
    if (task.dx || task.columns.are_wanted()) DxWriter<T>(rows_, row, s, task).run();
  }

  // Evenly spaced short rows, several in one call of a kernel, which stops at a rare row, and after rows whose dx is
  // not finite. Others are run alone.
  void run_short_rows(const BackwardTask<A>& task) {
    // All of f64 may be found.
    const std::size_t most = !kWide && rows_.p.rstd.data != nullptr ? kMaxShortRows : kMaxGroup, cols = rows_.p.cols;
    RowStatistics statistics;
    for (std::size_t row = task.block.first, n; row < task.block.end; row += n) {
      n = std::min(most, task.block.end - row);
      const bool even = rows_.x.even(row, n) == n && rows_.dy.even(row, n) == n && rows_.dx.even(row, n) == n;
      const bool together = even && find_short_statistics(rows_, row, n, statistics);
      const Part part{row, n, 0, cols};
      for (GradientsDone done{0, 0}; done.next < n;) {
        if (together) {
          done = rows_.kernels.template of<T>().gradient_short_rows(
              {rows_.x.at(part, EvenRows<const T>{}), rows_.dy.at(part, EvenRows<const T>{}),
               rows_.dx.at(part, EvenRows<T>{}), done.next, n, cols, rows_.gamma.block(0, cols), statistics,
               task.columns, rows_.is_centred(), rows_.plan.stream, rows_.plan.narrow, rows_.plan.ahead});
        }
        for (std::size_t i = done.next - done.not_finite; i < done.next; ++i) {
          run_row(row + i, {task.block, task.range, {}, true});
        }
        if (done.next < n && done.not_finite == 0) run_row(row + done.next++, task);
      }
    }
  }

  // Sums of f32 that are not finite, because numbers left the range of f32 on the way: anew, as if all rows were rare.
  void repair(const BackwardTask<A>& task) {
    double* const sums = rows_.scratch.sums_again;
    constexpr std::size_t kAtOnce = std::extent_v<decltype(rows_.scratch.sums_again)> / 2;
    const auto are_finite = rows_.kernels.template in<double>().are_finite;
    for (std::size_t col = task.range.first, n; col < task.range.end; col += n) {
      n = std::min(kAtOnce, task.range.end - col);
      const GradientColumns<A> found = from_column(task.columns, col - task.range.first);
      if (are_finite(found.sums.dgamma, n) && are_finite(found.sums.dbeta, n)) continue;
      const BackwardTask<A> again{task.block, {col, col + n}, cleared_columns(sums, n, found.dgamma_chain, n), false};
      for (std::size_t row = task.block.first; row < task.block.end; ++row) {
        GradientScalars s;
        rows_.p.scalars != nullptr ? static_cast<void>(s = rows_.p.scalars[row]) : find_statistics(rows_, row, s);
        s.rare = Rare::row;
        DxWriter<T>(rows_, row, s, again).run();
      }
      for (std::size_t i = 0; i < n; ++i) {
        if (!std::isfinite(found.sums.dgamma[i])) found.sums.dgamma[i] = sums[i];
        if (!std::isfinite(found.sums.dbeta[i])) found.sums.dbeta[i] = sums[n + i];
      }
    }
  }

  BackwardRows<T> rows_;
  double* run_sums_;
};

void run_by_sets(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                 std::size_t count, double* sums) {
  for_sets(p, first, count, [&](std::size_t set, std::size_t row, std::size_t rows) {
    with_type(plan.rows.type, [&]<class T>() {
      BackwardPass<T>(kernels, p, plan, set, {0, p.cols}, sums).run({row, row + rows}, {0, p.cols}, {});
    });
  });
}

[[gnu::noinline]] void run_lines(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                                 std::size_t first, std::size_t count, double* sums) {
  with_type(p.x.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      for_lines<T>(
          *plan.lines, first, first + count,
          [&](const LinesOfRows& lines) { return gradients_of_lines<T>(kernels, p, plan, lines, sums); },
          [&](std::size_t row, std::size_t rows) { run_by_sets(kernels, p, plan, row, rows, sums); });
    }
  });
}

}  // namespace

void run_backward(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count, double* sums) noexcept {
  const FpEnvironment environment;
  (plan.lines ? run_lines : run_by_sets)(kernels, p, plan, first, count, sums);
  if (plan.cache.stream_dx) flush_stream();
}

void run_row_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                    std::size_t count, double* slots) noexcept {
  const FpEnvironment environment;
  with_type(plan.rows.type, [&]<class T>() {
    using A = Arithmetic<T>;
    BackwardPass<T> pass(kernels, p, plan, 0, {0, p.cols}, nullptr);
    const std::size_t blocks = row_blocks(p), slot = 2 * p.cols;
    alignas(kCacheLine) A of_short_rows[kChainsOfColumn<A> * kBlock];
    A* const chains = plan.chain_length == 0 ? of_short_rows : reinterpret_cast<A*>(slots + count * slot);
    const std::size_t length = plan.chain_length == 0 ? whole_vectors(p.cols) : plan.chain_length;
    double* nodes[kMaxNodes];
    ColumnTree tree({&kernels, nodes, slot});
    for (std::size_t block = first; block < first + count; ++block) {
      double* sums = slots + tree.depth() * slot;
      pass.run({share_start(p.rows, blocks, block), share_start(p.rows, blocks, block + 1)}, {0, p.cols},
               cleared_columns(sums, p.cols, chains, length));
      tree.push(sums);
    }
    tree.finish();
  });
  if (plan.cache.stream_dx) flush_stream();
}

void finish_row_blocks(const Kernels& kernels, const GradientProblem& p, std::size_t set, double* sums,
                       std::size_t shares, std::size_t distance) noexcept {
  const FpEnvironment environment;
  const std::size_t columns = p.cols / summed_run(p);
  double* nodes[kMaxNodes];
  ColumnTree tree({&kernels, nodes, 2 * columns});
  for (std::size_t i = 0; i < shares; ++i) tree.push(sums + i * distance);
  finish_columns(kernels, p, set, tree.finish(), 0, columns);
}

void find_row_scalars(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                      std::size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(plan.rows.type, [&]<class T>() {
    BackwardRows<T> rows(kernels, p, plan, 0, {0, p.cols});
    for (std::size_t row = first; row < first + count; ++row) find_scalars(rows, row, nullptr, scalars[row] = {});
  });
}

void run_columns(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                 std::size_t count) noexcept {
  const FpEnvironment environment;
  with_type(plan.rows.type, [&]<class T>() {
    using A = Arithmetic<T>;
    constexpr std::size_t kPiece = kColumnPiece<A>;
    double sums[2 * kPiece];
    alignas(kCacheLine) A chains[kChainsOfColumn<A> * kPiece];
    BackwardPass<T> pass(kernels, p, plan, 0, {first, first + count}, nullptr);
    for (std::size_t col = first, n; col < first + count; col += n) {
      n = std::min(kPiece, first + count - col);
      pass.run({0, p.rows}, {col, col + n}, cleared_columns(sums, n, chains, kPiece));
      finish_columns(kernels, p, 0, sums, col, n);
    }
  });
  if (plan.cache.stream_dx) flush_stream();
}

}  // namespace evenorm::internal
