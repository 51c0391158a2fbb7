// The backward half of rows.hpp: rows, row blocks and their tree, or two steps, by BackwardRows, or BackwardPairRows,
// with scratch.
#include <algorithm>

#include "rows/backward_pair.hpp"
#include "rows/fp_environment.hpp"
#include "rows/rows.hpp"
#include "rows/types.hpp"

namespace evenorm::internal {
namespace {

template <class T>
[[gnu::noinline]] void run_rows(const Kernels& kernels, const GradientProblem& p, std::size_t first,
                                std::size_t count) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T>(kernels, p, gradient_scratch(p), scratch, {0, p.cols}).run(first, count, {});
}

template <class A>
[[gnu::noinline]] void run_rows_of_pair(const Kernels& kernels, const GradientNorms& norms, std::size_t first,
                                        std::size_t count) {
  ScratchMemory<kGradientPairScratchBytes> scratch;
  const GradientPairScratch plan = gradient_pair_scratch(norms, true);
  BackwardPairRows<A>(kernels, norms, plan, scratch, {0, norms.first.cols}).run(first, count, {});
}

// Sums of row blocks, and where they are until they are joined; without slots: of nothing.
template <class A>
class BlockSlots {
 public:
  BlockSlots(const Kernels& kernels, const GradientProblem& p, double* slots)
      : slots_(slots), slot_(column_numbers(p) * p.cols), cols_(p.cols), tree_({&kernels, nodes_, 2 * p.cols}) {}
  BlockSlots(const BlockSlots&) = delete;
  BlockSlots& operator=(const BlockSlots&) = delete;

  ColumnSums next() const {
    return slots_ == nullptr ? ColumnSums{} : ColumnSums{slots_ + tree_.depth() * slot_, 0, cols_};
  }
  void push(const ColumnSums& sums) {
    if (slots_ != nullptr) tree_.push(sums.values);
  }
  void finish() {
    if (slots_ != nullptr) tree_.finish();
  }

 private:
  double* slots_;
  std::size_t slot_, cols_;
  double* nodes_[kMaxNodes];
  ColumnTree<A> tree_;
};

// run(first, count): the rows of each of the blocks.
template <class Run>
void for_blocks(const GradientProblem& p, std::size_t first, std::size_t count, const Run& run) {
  const std::size_t blocks = row_blocks(p);
  for (std::size_t block = first; block < first + count; ++block) {
    const std::size_t row = share_start(p.rows, blocks, block);
    run(row, share_start(p.rows, blocks, block + 1) - row);
  }
}

template <class T>
[[gnu::noinline]] void run_blocks(const Kernels& kernels, const GradientProblem& p, std::size_t first,
                                  std::size_t count, double* slots) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, gradient_scratch(p), scratch, {0, p.cols});
  BlockSlots<Arithmetic<T>> sums(kernels, p, slots);
  for_blocks(p, first, count, [&](std::size_t row, std::size_t n) {
    const ColumnSums next = sums.next();
    rows.run(row, n, next);
    sums.push(next);
  });
  sums.finish();
}

template <class A>
[[gnu::noinline]] void run_blocks_of_pair(const Kernels& kernels, const GradientNorms& norms, std::size_t first,
                                          std::size_t count, const SumSlots& slots) {
  ScratchMemory<kGradientPairScratchBytes> scratch;
  const GradientProblem& p = norms.first;
  BackwardPairRows<A> rows(kernels, norms, gradient_pair_scratch(norms, true), scratch, {0, p.cols});
  BlockSlots<A> sums(kernels, p, slots.first), sums2(kernels, p, slots.second);
  for_blocks(p, first, count, [&](std::size_t row, std::size_t n) {
    const PairSums next{sums.next(), sums2.next()};
    rows.run(row, n, next);
    sums.push(next.first);
    sums2.push(next.second);
  });
  sums.finish();
  sums2.finish();
}

template <class A>
void finish_blocks(const Kernels& kernels, const GradientProblem& p, double* sums, std::size_t runs,
                   std::size_t distance) {
  double* nodes[kMaxNodes];
  ColumnTree<A> tree({&kernels, nodes, 2 * p.cols});
  tree.push(sums);
  for (std::size_t i = 1; i < runs; ++i) tree.push(sums + i * distance);
  finish_columns<A>(kernels, p, {tree.finish(), 0, p.cols}, p.cols);
}

template <class T>
[[gnu::noinline]] void look_at_range(const Kernels& kernels, const GradientProblem& p, std::size_t first,
                                     std::size_t count, GradientScalars* scalars) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, gradient_scratch(p), scratch, {0, p.cols});
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = std::min(kRowsAtOnce, first + count - row);
    rows.look(row, n, {}, scalars + row);
  }
}

template <class T>
[[gnu::noinline]] void run_strips(const Kernels& kernels, const GradientProblem& p, const GradientScalars* scalars,
                                  std::size_t first, std::size_t count) {
  using A = Arithmetic<T>;
  ScratchMemory<kGradientScratchBytes> scratch;
  const GradientScratch plan = gradient_scratch(p);
  auto* values = scratch.at<double>(plan.strip_sums);
  BackwardRows<T> rows(kernels, p, plan, scratch, {first, first + count});
  for (std::size_t col = first, n; col < first + count; col += n) {
    n = std::min(kGradientPiece<A>, first + count - col);
    const ColumnSums sums{values, col, kGradientPiece<A>};
    rows.run_strip(scalars, col, n, sums);
    finish_columns<A>(kernels, p, sums, n);
  }
}

// Of each piece the sums of one norm after the other, and then dx: they take turns in scratch.
template <class A>
[[gnu::noinline]] void run_strips_of_pair(const Kernels& kernels, const GradientNorms& norms,
                                          const KnownScalars& scalars, std::size_t first, std::size_t count) {
  ScratchMemory<kGradientPairScratchBytes> scratch;
  const GradientPairScratch plan = gradient_pair_scratch(norms, false);
  BackwardPairRows<A> rows(kernels, norms, plan, scratch, {first, first + count});
  const auto sum = [&](const GradientProblem& p, BackwardRows<A>& of, const GradientScalars* known,
                       const GradientScratch& planned, std::size_t col, std::size_t n) {
    if (!sums_over_rows(p)) return;
    const ColumnSums sums{scratch.at<double>(planned.strip_sums), col, kGradientPiece<A>};
    of.sum_strip(known, col, n, sums);
    finish_columns<A>(kernels, p, sums, n);
  };
  for (std::size_t col = first, n; col < first + count; col += n) {
    n = std::min(kGradientPiece<A>, first + count - col);
    sum(*norms.second, rows.second(), scalars.second, plan.second, col, n);
    sum(norms.first, rows.first(), scalars.first, plan.first, col, n);
    rows.map_strip(scalars, col, n);
  }
}

// work.operator()<A>().
template <class Work>
void with_arithmetic(const GradientProblem& p, const Work& work) {
  arithmetic_type(p) == DType::f64 ? work.template operator()<double>() : work.template operator()<float>();
}

template <class T>
[[gnu::noinline]] void sum_runs(const Kernels& kernels, const GradientProblem& p, const Cuts& cuts, std::size_t first,
                                std::size_t count, double* message) {
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, gradient_scratch(p), scratch, {0, p.cols});
  const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kWide);
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = std::min(kRowsAtOnce, first + count - row);
    std::fill_n(message + row * numbers, n * numbers, 0.0);
    std::size_t place = row * numbers;
    for (const Cuts::Run& run : cuts.runs_of(cuts.rank())) {
      GradientSums sums[kRowsAtOnce];
      const std::size_t col = run.first * kBlock;
      rows.sum_run(row, n, col, std::min(run.blocks * kBlock, p.cols - col), sums);
      for (std::size_t r = 0; r < n; ++r) visit_sums(Writer(message + place + r * numbers), p.kind, kWide, sums[r]);
      place += numbers_of_run(Pass::backward, p.kind, kWide);
    }
  }
}

template <class T>
[[gnu::noinline]] void finish_rows(const Kernels& kernels, const GradientProblem& p, const Cuts& cuts,
                                   const Messages& messages, std::size_t first, std::size_t count,
                                   GradientScalars* scalars) {
  constexpr bool kWide = std::is_same_v<Arithmetic<T>, double>;
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T> rows(kernels, p, gradient_scratch(p), scratch, {0, p.cols});
  const std::size_t numbers = cuts.numbers(Pass::backward, p.kind, kWide);
  GradientSums nodes[kMaxNodes];
  GradientSumsTree<Arithmetic<T>> tree({nodes});
  for (std::size_t row = first; row < first + count; ++row) {
    tree.clear();
    for_runs(cuts, [&](std::size_t process, const Cuts::Run& run, std::size_t, std::size_t i) {
      const double* from = messages.of(process, row, numbers);
      GradientSums part{};
      visit_sums(Reader(from + i * numbers_of_run(Pass::backward, p.kind, kWide)), p.kind, kWide, part);
      tree.push(part, run.weight);
    });
    scalars[row] = rows.finish_sums(row, tree.finish());
  }
}

}  // namespace

void sums_of_shards(const Kernels& kernels, const GradientProblem& p, const Cuts& cuts, std::size_t first,
                    std::size_t count, double* message) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { sum_runs<T>(kernels, p, cuts, first, count, message); });
}

void finish_shards(const Kernels& kernels, const GradientProblem& p, const Cuts& cuts, const Messages& messages,
                   std::size_t first, std::size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { finish_rows<T>(kernels, p, cuts, messages, first, count, scalars); });
}

void run_backward(const Kernels& kernels, const GradientNorms& norms, std::size_t first, std::size_t count) noexcept {
  const FpEnvironment environment;
  const GradientProblem& p = norms.first;
  if (norms.second == nullptr) {
    with_type(gradient_type(p), [&]<class T>() { run_rows<T>(kernels, p, first, count); });
  } else {
    with_arithmetic(p, [&]<class A>() { run_rows_of_pair<A>(kernels, norms, first, count); });
  }
}

void run_row_blocks(const Kernels& kernels, const GradientNorms& norms, std::size_t first, std::size_t count,
                    const SumSlots& slots) noexcept {
  const FpEnvironment environment;
  const GradientProblem& p = norms.first;
  if (norms.second == nullptr) {
    with_type(gradient_type(p), [&]<class T>() { run_blocks<T>(kernels, p, first, count, slots.first); });
  } else {
    with_arithmetic(p, [&]<class A>() { run_blocks_of_pair<A>(kernels, norms, first, count, slots); });
  }
}

void finish_row_blocks(const Kernels& kernels, const GradientProblem& p, double* sums, std::size_t runs,
                       std::size_t distance) noexcept {
  const FpEnvironment environment;
  with_arithmetic(p, [&]<class A>() { finish_blocks<A>(kernels, p, sums, runs, distance); });
}

void look_at_rows(const Kernels& kernels, const GradientProblem& p, std::size_t first, std::size_t count,
                  GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  with_type(gradient_type(p), [&]<class T>() { look_at_range<T>(kernels, p, first, count, scalars); });
}

void run_columns(const Kernels& kernels, const GradientNorms& norms, const KnownScalars& scalars, std::size_t first,
                 std::size_t count) noexcept {
  const FpEnvironment environment;
  const GradientProblem& p = norms.first;
  if (norms.second == nullptr) {
    with_type(gradient_type(p), [&]<class T>() { run_strips<T>(kernels, p, scalars.first, first, count); });
  } else {
    with_arithmetic(p, [&]<class A>() { run_strips_of_pair<A>(kernels, norms, scalars, first, count); });
  }
}

}  // namespace evenorm::internal
