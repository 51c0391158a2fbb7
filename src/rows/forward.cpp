// Rows of one block in groups, and what both orders share. Rows that go block by block: forward_blocks.cpp.
#include "rows/forward.hpp"

#include "rows/rare_row.hpp"
#include "rows/stream.hpp"

namespace evenorm::internal {

template <class T>
ForwardRows<T>::ForwardRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, Scratch& scratch,
                            std::size_t set, ColumnRange used)
    : kernels_(kernels),
      p_(p),
      plan_(plan),
      scratch_(scratch),
      partition_(partition(p)),
      gamma_(kernels, p.gamma, set, p.zero_centered, p.cols, used, scratch.span<A>(plan.gamma)),
      beta_(kernels, p.beta, set, false, p.cols, used, scratch.span<A>(plan.beta)),
      input_(kernels, p, plan, scratch),
      output_(kernels, p, plan, scratch, gamma_.is_finite() && beta_.is_finite() && p.moments == nullptr) {}

template <class T>
void ForwardRows<T>::run(std::size_t first, std::size_t count) {
  if (plan_.order == Order::blocks) {
    run_blocks(first, count);
  } else {
    const std::size_t end = first + count, at_once = plan_.tile != 0 ? plan_.tile : count;
    for (std::size_t row = first, n; row < end; row += n) {
      n = std::min(at_once, end - row);
      n = std::min(input_.even(row, n), output_.even(row, n));
      run_groups(row, n);
    }
  }
  if (plan_.cache.stream_y || plan_.cache.stream_sum) flush_stream();
}

template <class T>
struct ForwardRows<T>::Groups {
  static const Groups& of(const void* context) { return *static_cast<const Groups*>(context); }
  Part part(std::size_t t) const { return {first + t * rows.group, rows.rows_of(t), 0, rows.n}; }

  ForwardRows* self;
  std::size_t first;
  ShortRows<T> rows;
};

// A tile is opened before all of its groups, and closed after them. Otherwise, what is not in place is opened and
// closed group by group.
template <class T>
void ForwardRows<T>::run_groups(std::size_t first, std::size_t count) {
  const Part all{first, count, 0, p_.cols};
  const bool by_tile = plan_.tile != 0, opens = !by_tile && input_.opens(), closes = !by_tile && output_.closes();
  const Opened<T> input = by_tile ? input_.open(all, 0) : input_.place(all, 0);
  Groups groups{this, first, {}};
  groups.rows = {.x = {input.x.first, input.x.step},
                 .y = output_.at(all, 0),
                 .x_slots = by_tile ? 0 : plan_.x_memory.slots,
                 .y_slots = by_tile ? 0 : plan_.y_memory.slots,
                 .count = count,
                 .group = plan_.rows,
                 .n = p_.cols,
                 .gamma = gamma_.block(0, p_.cols),
                 .beta = beta_.block(0, p_.cols),
                 .groups = groups_,
                 .eps = p_.eps,
                 .ahead = plan_.ahead,
                 .terms = input.terms,
                 .copy = input_.copy(all),
                 .stream = output_.streams(),
                 .stream_copy = plan_.cache.stream_sum,
                 .few = plan_.few,
                 .calls = {&groups, nullptr, nullptr, nullptr, nullptr}};
  GroupCalls& calls = groups.rows.calls;
  if (opens) {
    calls.open = [](const void* c, std::size_t t) { Groups::of(c).self->input_.open(Groups::of(c).part(t), t); };
  }
  if (p_.mean.data != nullptr || p_.rstd.data != nullptr) {
    calls.finished = [](const void* c, std::size_t t) {
      const Part part = Groups::of(c).part(t);
      Groups::of(c).self->store_statistics(Groups::of(c).self->groups_[t % kGroups], part.row, part.rows);
    };
  }
  calls.rare = [](const void* c, std::size_t t) { Groups::of(c).self->run_rare_group(Groups::of(c), t); };
  if (closes) {
    calls.close = [](const void* c, std::size_t t) {
      Groups::of(c).self->output_.close_rows(Groups::of(c).part(t), Groups::of(c).rows.y_of(t));
    };
  }
  kernels_.of<T>().short_rows[index_of(p_.kind)](groups.rows);
  if (by_tile) output_.close(all, 0);
}

// A group of which some rows are rare.
template <class T>
[[gnu::noinline]] void ForwardRows<T>::run_rare_group(const Groups& groups, std::size_t t) {
  const Group& g = groups_[t % kGroups];
  const ShortRows<T>& rows = groups.rows;
  Part part = groups.part(t);
  for (std::size_t i = 0, count = std::exchange(part.rows, 1); i < count; ++i, ++part.row) {
    const T* const x = rows.x_of(t).at(i);
    const EvenRows<T> y{rows.y_of(t).at(i), rows.y.step};
    const EvenRows<T> copy{rows.copy.first != nullptr ? rows.copy.at(t * rows.group + i) : nullptr, 0};
    if (g.flag[i] == 0) {
      kernels_.of<T>().normalise_rows({{x, 0}, y, 1, rows.n, {rows.gamma, rows.beta}, &g.scalars, i, false, copy});
      if (plan_.tile == 0) output_.close_rows(part, y);
      continue;
    }
    run_rare(part.row, g, i, RowReader([&](std::size_t first, std::size_t n, double* to, bool last) {
               kernels_.convert[index_of(dtype_of<T>)][index_of(DType::f64)](x + first, to, n);
               if (last && copy.first != nullptr)
                 std::memcpy(static_cast<void*>(copy.first + first), x + first, n * sizeof(T));
             }));
    if (plan_.tile != 0) output_.reopen(part, y);
  }
}

template <class T>
void ForwardRows<T>::run_rare(std::size_t row, const Group& g, std::size_t at, const RowReader& read) {
  run_rare_row<A>(kernels_, p_, read, gamma_, beta_, scratch_.at<double>(plan_.block),
                  scratch_.at<MomentNode>(plan_.nodes), row, g, at);
}

template <class T>
void ForwardRows<T>::store_statistics(const Group& g, std::size_t first, std::size_t count) const {
  for (std::size_t i = 0; i < count; ++i) {
    store_statistic(p_.mean, first + i, g.mean[i]);
    store_statistic(p_.rstd, first + i, g.rstd[i]);
  }
}

template class ForwardRows<double>;
template class ForwardRows<float>;
template class ForwardRows<bfloat16>;
template class ForwardRows<float16>;

}  // namespace evenorm::internal
