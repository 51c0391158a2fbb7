// Sets: rows that share one gamma and beta. A pass whose gamma or beta varies from row to row runs set by set.
#pragma once

#include <algorithm>
#include <cstddef>

#include "problem/problem.hpp"

namespace evenorm::internal {

inline void move_by(const void*& data, std::ptrdiff_t bytes) {
  if (data != nullptr) data = static_cast<const char*>(data) + bytes;
}
inline void move_by(void*& data, std::ptrdiff_t bytes) {
  if (data != nullptr) data = static_cast<char*>(data) + bytes;
}

// Calls work(set, first, count) for the rows of each set in [first, first + count).
template <class AnyProblem, class Work>
void for_sets(const AnyProblem& p, std::size_t first, std::size_t count, const Work& work) {
  const std::size_t rows = rows_of_set(p);
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = std::min(first + count - row, rows - row % rows);
    work(row / rows, row, n);
  }
}

// The problem of one set alone.
inline GradientProblem problem_of(const GradientProblem& p, std::size_t set) {
  GradientProblem one = p;
  one.sets = 1;
  one.rows = rows_of_set(p);
  const std::size_t row = set * one.rows;
  for (Matrix<const void*>* m : {&one.x, &one.dy, &one.dsum}) move_by(m->data, m->rows.offset(row));
  for (Vector<const void*>* v : {&one.mean, &one.rstd}) move_by(v->data, v->axes.offset(row));
  move_by(one.dx.data, one.dx.rows.offset(row));
  one.gamma.data = p.gamma.of_set(set);
  for (SetGradient* v : {&one.dgamma, &one.dbeta}) move_by(v->data, offset_of_set(v->sets, set));
  return one;
}

}  // namespace evenorm::internal
