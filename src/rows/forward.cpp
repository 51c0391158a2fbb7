// The forward pass of rows of one block, in groups, and what all routes share: the normalise step and its arguments.
// Other rows: forward_long.cpp, line_rows.cpp.
#include "rows/forward.hpp"

#include "rows/stream.hpp"

namespace evenorm::internal {

template <class T>
ForwardRows<T>::ForwardRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, Scratch& scratch,
                            std::size_t set, ColumnRange used, bool reduces)
    : kernels_(kernels),
      of_type_(kernels.of<T>()),
      p_(p),
      plan_(plan),
      part_(partition(p)),
      x_scratch_(scratch.at<A>(plan.scratch.x)),
      gamma_(kernels, p.gamma, set, p.zero_centered, p.cols, used, scratch.span<A>(plan.scratch.gamma)),
      beta_(kernels, p.beta, set, false, p.cols, used, scratch.span<A>(plan.scratch.beta)),
      nodes_(scratch.at<MomentNode>(plan.scratch.nodes)),
      x_tile_(kernels, p.x, false, scratch.at<void>(plan.scratch.tile.x), plan.scratch.tile.x_bytes),
      y_tile_(kernels, p.y, plan.cache.stream_y, scratch.at<void>(plan.scratch.tile.y), plan.scratch.tile.y_bytes),
      sum_source_(kernels, p.x, x_tile_.if_used(), scratch.at<A>(plan.scratch.sum)),
      normalise_source_(kernels, p.x, x_tile_.if_used(), x_scratch_),
      sink_(kernels, p.y, y_tile_.if_used(), scratch.at<A>(plan.scratch.y)),
      only_numbers_(gamma_.is_finite() && beta_.is_finite() && p.moments == nullptr),
      stream_(plan.cache.stream_y && only_numbers_ && !sink_.is_staged()),
      ahead_(plan.cache.prefetch_x && !sum_source_.is_staged() ? kPrefetchAhead : 0) {
  if (is_fused(p)) fuse(scratch, reduces);
}

// Sets up what only a fused pass has.
template <class T>
[[gnu::noinline]] void ForwardRows<T>::fuse(Scratch& scratch, bool reduces) {
  const ForwardScratch& plan = plan_.scratch;
  fusion_.emplace(Fusion{Residual<T>(kernels_, p_), reduces ? HeldSums<T>(p_, plan, scratch) : HeldSums<T>(),
                         Quantiser<A>(kernels_, p_, plan, scratch)});
  const HeldSums<T>& held = fusion_->held;
  if (fusion_->residual.is_present()) {
    const HeldSums<T>* const where = held.are_held() ? &held : nullptr;
    sum_source_.add_residual(fusion_->residual, plan_.cache.prefetch_x ? kPrefetchAhead : 0, where);
    held.are_held() ? normalise_source_.read_held(where) : normalise_source_.add_residual(fusion_->residual, 0);
    const bool stores_sums = p_.sum.data != nullptr && !held.are_in_tensor();
    copies_sum_ = stores_sums && p_.sum.dtype == dtype_of<T>;
    writes_beside_ = stores_sums && !copies_sum_;
  }
  if (fusion_->quantiser.is_on()) sink_.set_quantiser(&fusion_->quantiser);
  const bool reads_y = held.are_in_tensor() && p_.sum.data == nullptr;
  stream_ = stream_ && !sink_.is_staged() && !reads_y;
  if (sum_source_.is_staged()) ahead_ = sum_source_.has_terms() ? sum_source_.ahead() : 0;
}

// Runs rows tile by tile, or all at once if both tensors have dense rows.
template <class T>
void ForwardRows<T>::run(std::size_t first, std::size_t count) {
  const TilePlan& tile = plan_.scratch.tile;
  const std::size_t at_once = tile.rows == 0 ? count : tile.rows;
  for (std::size_t row = first, rows; row < first + count; row += rows) {
    rows = std::min(at_once, first + count - row);
    if (plan_.otherwise == ForwardRoute::blocks) {
      run_blocks(row, rows);
      continue;
    }
    if (tile.cols == p_.cols) open({row, rows, 0, p_.cols});
    if (plan_.otherwise == ForwardRoute::precomputed) {
      run_precomputed(row, rows);
    } else if (plan_.otherwise == ForwardRoute::short_rows) {
      run_short_rows(row, rows);
    } else {
      run_long_rows(row, rows);
    }
    close();
  }
  if (plan_.cache.stream_y || plan_.cache.stream_sum) flush_stream();
}

// Gathers a part of x, and lets results of this part stay in the tile of y until close().
template <class T>
void ForwardRows<T>::open(const Part& part) {
  if (x_tile_.if_used() != nullptr) x_tile_.gather(part);
  if (y_tile_.if_used() != nullptr) y_tile_.hold(part);
}
template <class T>
void ForwardRows<T>::close() {
  if (y_tile_.is_held()) y_tile_.scatter();
  x_tile_.release();
  y_tile_.release();
}

template <class T>
void ForwardRows<T>::normalise_part(std::size_t row, const RowScalars& scalars, std::size_t first_col,
                                    const Partition& part) {
  const auto norm_scalars = norm_scalars_of<A>(scalars);
  for (std::size_t i = 0; i < part.blocks(); ++i) {
    const Partition::Block block = part.block(i);
    normalise(block_of_row(row, {first_col + block.first, block.n}, norm_scalars));
  }
  if (plan_.cache.stream_y || plan_.cache.stream_sum) flush_stream();
}

// How many rows one kernel call may take: rows that have memory of their own.
template <class T>
std::size_t ForwardRows<T>::normalised_at_once(std::size_t row, std::size_t rows) const {
  if (writes_beside_) return 1;
  const std::size_t even = copies_sum_ ? even_run(p_.sum.rows, row, rows) : rows;
  return std::min(normalise_source_.even_rows(row, even), sink_.even_rows(row, even));
}

// Rows of one block, in groups: each iteration normalises one group, finishes the next and sums the one after.
template <class T>
void ForwardRows<T>::run_short_rows(std::size_t first, std::size_t count) {
  std::optional<ShortRows<T>> even = even_short_rows(first, count);
  const std::size_t group = even.has_value() ? even->group : plan_.scratch.group, end = first + count;
  const auto rows_at = [=](std::size_t row) { return row < end ? std::min(group, end - row) : 0; };
  sum_short_rows(groups_[0], first, 0, rows_at(first));
  finish_short_rows(groups_[0], first, rows_at(first));
  sum_short_rows(groups_[1], first + group, 0, rows_at(first + group));
  StageContext context{this, first, group, count};
  if (even.has_value()) add_hooks(*even, context);
  for (std::size_t row = first; row < end;) {
    const std::size_t stage = (row - first) / group, next_row = row + group, later_row = next_row + group;
    const Group& g = groups_[stage % kGroups];
    if (even.has_value() && !g.any_flag(rows_at(row))) {
      row = first + run_pipeline(*even, first, stage) * group;
      continue;
    }
    finish_short_rows(groups_[(stage + 1) % kGroups], next_row, rows_at(next_row));
    normalise_short_rows(g, row, rows_at(row), groups_[(stage + 2) % kGroups], later_row, rows_at(later_row));
    row = next_row;
  }
}

// Adds hooks for what the kernel's pipeline leaves to do: storing statistics, and quantising y.
template <class T>
void ForwardRows<T>::add_hooks(ShortRows<T>& rows, StageContext& context) const {
  rows.context = &context;
  if (p_.mean.data != nullptr || p_.rstd.data != nullptr) {
    rows.finished = [](void* pointer, std::size_t stage) {
      const auto& c = *static_cast<const StageContext*>(pointer);
      c.self->store_statistics(c.self->groups_[stage % kGroups], 0, c.row(stage), c.rows(stage));
    };
  }
  if (rows.reuses_y) {
    rows.normalised = [](void* pointer, std::size_t stage) {
      const auto& c = *static_cast<const StageContext*>(pointer);
      c.self->sink_.done(c.row(stage), c.rows(stage), 0, c.self->p_.cols);
    };
  }
}

// True if a kernel reads its blocks in place and nothing is written beside y.
template <class T>
bool ForwardRows<T>::reads_in_place() const {
  return only_numbers_ && !writes_beside_ && !sum_source_.passes() && !normalise_source_.passes();
}

// True if these rows are evenly spaced, and a kernel writes nothing but y.
template <class T>
bool ForwardRows<T>::are_even(std::size_t first, std::size_t count) const {
  return reads_in_place() && !copies_sum_ && sum_source_.even_rows(first, count) == count &&
         sink_.are_even(first, count);
}

// The arguments of the pipeline kernel, if it can take these rows.
template <class T>
std::optional<ShortRows<T>> ForwardRows<T>::even_short_rows(std::size_t first, std::size_t count) {
  const std::size_t reuses_y = sink_.rows_at_a_time();
  if (!are_even(first, count) || reuses_y == 1 || part_.runs() != 1) return std::nullopt;
  const bool few = kernels_.normalises_beside_sums && p_.cols > kStep && !stream_ && !sum_source_.has_terms();
  const std::size_t group = few ? few_rows<T>(p_.cols) : plan_.scratch.group;
  return ShortRows<T>{{sum_source_.begin(first, 0, p_.cols), sum_source_.step()},
                      {sink_.block(first, 0, p_.cols), sink_.step()},
                      count,
                      reuses_y != 0 ? std::min(group, reuses_y) : group,
                      p_.cols,
                      gamma_.block(0, p_.cols),
                      beta_.block(0, p_.cols),
                      groups_,
                      p_.eps,
                      ahead_,
                      sum_source_.terms(first, 0),
                      stream_,
                      few,
                      reuses_y != 0,
                      nullptr,
                      nullptr,
                      nullptr};
}

// Runs the pipeline from `stage` on, until a group has an out-of-range row. Returns the next stage.
template <class T>
std::size_t ForwardRows<T>::run_pipeline(const ShortRows<T>& rows, std::size_t first, std::size_t stage) {
  stage = of_type_.short_pipeline[index_of(p_.kind)](rows, stage);
  const std::size_t row = stage * rows.group;
  if (row >= rows.count) return stage;
  store_statistics(groups_[stage % kGroups], 0, first + row, std::min(rows.group, rows.count - row));
  return stage;
}

template <class T>
void ForwardRows<T>::normalise_short_rows(const Group& g, std::size_t row, std::size_t rows, Group& later,
                                          std::size_t later_row, std::size_t later_rows) {
  const Affine<A> affine = affine_of(0, p_.cols);
  const bool out_of_range = g.any_flag(rows);
  const std::size_t fused = p_.cols > kStep && !out_of_range ? later_rows : 0;
  for (std::size_t i = 0, n; i < fused; i += n) {
    n = std::min(sum_source_.even_rows(later_row + i, fused - i), normalised_at_once(row + i, fused - i));
    const Blocks b = blocks_of_rows(row + i, n, 0, p_.cols, affine, g.scalars, i);
    normalise_and_sum(b, sums_of_rows(later_row + i, n, 0, p_.cols, later, i));
  }
  sum_short_rows(later, later_row, fused, later_rows);
  for (std::size_t i = fused, n; i < rows; i += n) {
    n = out_of_range ? 1 : normalised_at_once(row + i, rows - i);
    if (out_of_range && g.flag[i] != 0) {
      run_rare(row + i, g, i);
    } else {
      normalise(blocks_of_rows(row + i, n, 0, p_.cols, affine, g.scalars, i));
    }
  }
}

template <class T>
void ForwardRows<T>::sum_short_rows(Group& g, std::size_t first_row, std::size_t from, std::size_t to) {
  const bool made = from < to && sum_source_.make_rows(first_row + from, to - from, p_.cols);
  for (std::size_t i = from, n; i < to; i += n) {
    const std::size_t row = first_row + i;
    n = sum_source_.even_rows(row, to - i);
    const auto sum_rows = of_type_.sum_rows[index_of(p_.kind)];
    made ? sum_rows({{sum_source_.made(row, 0), sum_source_.step()}, n, p_.cols, &g, i})
         : sum_rows(sums_of_rows(row, n, 0, p_.cols, g, i));
  }
}

template <class T>
void ForwardRows<T>::finish_short_rows(Group& g, std::size_t first_row, std::size_t rows) {
  if (rows == 0) return;
  if (part_.runs() != 1) {  // the sums are not those of the row's blocks
    for (std::size_t i = 0; i < rows; ++i) {
      finish_one(g, i, sum_blocks<T>(kernels_, p_.kind, nodes_, normalise_source_, first_row + i, part_), p_.eps);
    }
  } else if (rows == 1) {
    const auto x = [&] { return normalise_source_.block(first_row, 0, p_.cols); };
    finish_one(g, 0, moments_of<T>(kernels_, is_centred(), sums_of(g, 0), p_.cols, x), p_.eps);
  } else {
    finish_group<T>(kernels_, g, rows, p_.cols, p_.eps, is_centred(), normalise_source_, first_row);
  }
  store_statistics(g, 0, first_row, rows);
}

template <class T>
void ForwardRows<T>::store_statistics(const Group& g, std::size_t at, std::size_t first_row, std::size_t rows) {
  if (p_.mean.data == nullptr && p_.rstd.data == nullptr) return;
  for (std::size_t i = 0; i < rows; ++i) {
    store_statistic(p_.mean, first_row + i, g.mean[at + i]);
    store_statistic(p_.rstd, first_row + i, g.rstd[at + i]);
  }
}

// gamma and beta of a block. If its columns share one element of each, these fill only as much as a kernel reads.
template <class T>
Affine<Arithmetic<T>> ForwardRows<T>::affine_of(std::size_t first, std::size_t n) {
  const bool constant = n > kStep && gamma_.is_constant(first, n) && beta_.is_constant(first, n);
  const std::size_t filled = constant ? kStep : n;
  return {gamma_.block(first, filled), beta_.block(first, filled), constant ? 0 : ~std::size_t{0}};
}

template <class T>
typename ForwardRows<T>::Blocks ForwardRows<T>::block_of_row(std::size_t row, const Partition::Block& block,
                                                             const NormScalarsOfRows<A>& scalars, std::size_t at) {
  return blocks_of_rows(row, 1, block.first, block.n, affine_of(block.first, block.n), scalars, at);
}
// Arguments are constructed in place. A copy would wait until what was just stored in smaller parts is in the cache.
template <class T>
typename ForwardRows<T>::Blocks ForwardRows<T>::blocks_of_rows(std::size_t row, std::size_t rows, std::size_t first,
                                                               std::size_t n, const Affine<A>& affine,
                                                               const NormScalarsOfRows<A>& scalars, std::size_t at) {
  const T* x = normalise_source_.block(row, first, n);
  T* y = sink_.block(row, first, n);
  const bool copies = copies_sum_ && !sink_.is_measuring();
  T* copy = copies ? reinterpret_cast<T*>(const_cast<char*>(place_in_row(p_.sum, row, first))) : nullptr;
  return {row,
          first,
          {{x, normalise_source_.step()},
           {y, sink_.step()},
           rows,
           n,
           affine,
           &scalars,
           at,
           stream_,
           {copy, copies ? p_.sum.rows.inner().stride : 0},
           plan_.cache.stream_sum}};
}

template <class T>
SumRows<T> ForwardRows<T>::sums_of_rows(std::size_t row, std::size_t rows, std::size_t first, std::size_t n, Group& g,
                                        std::size_t at) {
  return {
      {sum_source_.begin(row, first, n), sum_source_.step()}, rows, n, &g, at, ahead_, sum_source_.terms(row, first)};
}

template <class T>
void ForwardRows<T>::normalise(const Blocks& b) {
  store_sums_beside(b);
  of_type_.normalise_rows(b.rows);
  finish_block(b);
}
// Sums the next rows, equally many and of as many columns, during b's normalise step.
template <class T>
void ForwardRows<T>::normalise_and_sum(const Blocks& b, const SumRows<T>& next) {
  store_sums_beside(b);
  of_type_.normalise_and_sum[index_of(p_.kind)](b.rows, next);
  finish_block(b);
}

template <class T>
void ForwardRows<T>::store_sums_beside(const Blocks& b) {
  if (writes_beside_ && !sink_.is_measuring()) fusion_->residual.store_sum(b.row, b.first, b.rows.n, b.rows.x.first);
}
template <class T>
void ForwardRows<T>::finish_block(const Blocks& b) {
  if (!only_numbers_) {
    for (std::size_t i = 0; i < b.rows.rows; ++i) canonicalise_nans(b.rows.y.at(i), b.rows.n);
  }
  sink_.done(b.row, b.rows.rows, b.first, b.rows.n);
}

template <class T>
[[gnu::noinline]] void ForwardRows<T>::run_rare(std::size_t row, const Group& g, std::size_t at) {
  const bool has_sums = fusion_.has_value() && fusion_->held.are_in_tensor();
  Source<A> source = has_sums ? Source<A>(kernels_, fusion_->held.tensor(), nullptr, x_scratch_)
                              : Source<A>(kernels_, p_.x, x_tile_.if_used(), x_scratch_);
  const Residual<A> residual(kernels_, p_);
  const bool adds = residual.is_present() && !has_sums;
  if (adds) source.add_residual(residual, 0);
  run_rare_row<A>(kernels_, p_, source, adds ? &residual : nullptr, {gamma_, beta_, y_tile_.if_used()}, x_scratch_,
                  nodes_, row, g, at);
}

template class ForwardRows<double>;
template class ForwardRows<float>;
template class ForwardRows<bfloat16>;
template class ForwardRows<float16>;

}  // namespace evenorm::internal
