// A validated pass as plain data, without templates: validate() makes it, and the layers below run it. It owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "evenorm/evenorm.hpp"
#include "problem/dtype.hpp"
#include "problem/layout.hpp"

namespace evenorm {
struct Moments;  // evenorm/sharded.hpp
}

namespace evenorm::internal {

// Element (r, c) lies rows.offset(r) + cols.offset(c) bytes from data.
template <class Pointer>
struct Matrix {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  Axes rows, cols;

  AxesPair layout() const { return {&cols, &rows}; }
};

// One value per column (gamma, beta) or per row (mean, rstd). Absent if data is null.
template <class Pointer>
struct Vector {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  Axes axes;

  AxesPair layout() const { return {&axes, nullptr}; }
};

// gamma, beta or a gradient of theirs: one value per column for each set of rows. Its strides are 0 along axes of x
// where it has one element.
template <class Pointer>
struct Broadcast : Vector<Pointer> {
  Axes sets;                   // none if there is one value per column for all rows, as in most problems
  std::optional<Axes> shared;  // the axes of the elements, if columns share elements

  const void* of_set(std::size_t set) const { return static_cast<const char*>(this->data) + sets.offset(set); }
  bool has_shared_columns() const { return shared.has_value(); }
  const Axes& elements() const { return shared.has_value() ? *shared : this->axes; }
  AxesPair layout() const { return {&elements(), &sets}; }
};
using SetVector = Broadcast<const void*>;
using SetGradient = Broadcast<void*>;

// The most columns of a row. No address space can hold longer rows.
inline constexpr std::size_t kMaxCols = std::size_t{1} << 48U;

struct GradientScalars;  // plan/numbers.hpp

// What both passes have.
struct AnyProblem {
  Kind kind = Kind::layer;
  std::size_t rows = 0, cols = 0;
  // Rows that share one gamma and beta, or their gradients, are a set. The rows of a set are neighbours, and all sets
  // have equally many.
  std::size_t sets = 1;
  std::size_t shared = 1;  // how many neighbouring columns share an element of each parameter
  Matrix<const void*> x;
  SetVector gamma;
  double eps = 1e-5;
  bool zero_centered = false;
  // If x has only some columns of longer rows: the moments of the whole rows, one per row.
  const Moments* moments = nullptr;
};

// A forward pass. With moments, x is only normalised.
struct Problem : AnyProblem {
  Matrix<void*> y;
  SetVector beta;
  Vector<void*> mean, rstd;
  // The fused forms.
  Matrix<const void*> residual;
  double residual_scale = 1;
  Matrix<void*> sum;
  Vector<void*> scale;
  float given_scale = 0;
};

// A backward pass. Absent tensors have null data. If there are rows, at least one output is present.
struct GradientProblem : AnyProblem {
  Matrix<const void*> dy, dsum;
  Matrix<void*> dx;
  Vector<const void*> mean, rstd;
  SetGradient dgamma, dbeta;
  bool accumulate = false;
  // With moments: the columns of the whole rows, and, once the sums of whole rows are known, the scalars of each row.
  std::size_t whole_cols = 0;
  const GradientScalars* scalars = nullptr;
};

template <class Tensor>
bool is_f64(const Tensor& t) {
  return t.data != nullptr && t.dtype == DType::f64;
}

// The type of the element-wise arithmetic: f64 if x, y, gamma or beta is f64, else f32.
inline DType arithmetic_type(const Problem& p) {
  const bool wide = p.x.dtype == DType::f64 || p.y.dtype == DType::f64 || is_f64(p.gamma) || is_f64(p.beta);
  return wide ? DType::f64 : DType::f32;
}
// The arithmetic of the sum of x and the residual.
inline DType arithmetic_type_of_sum(const Problem& p) {
  return p.x.dtype == DType::f64 || is_f64(p.residual) ? DType::f64 : DType::f32;
}

inline DType arithmetic_type(const GradientProblem& p) {
  const bool wide =
      p.x.dtype == DType::f64 || p.dy.dtype == DType::f64 || is_f64(p.dx) || is_f64(p.gamma) || is_f64(p.dsum);
  return wide ? DType::f64 : DType::f32;
}

// True if dgamma or dbeta is wanted.
inline bool sums_over_rows(const GradientProblem& p) { return p.dgamma.data != nullptr || p.dbeta.data != nullptr; }

// True if dx overwrites x, dy or dsum.
inline bool is_in_place(const GradientProblem& p) {
  return p.dx.data != nullptr && (p.dx.data == p.x.data || p.dx.data == p.dy.data || p.dx.data == p.dsum.data);
}

inline std::size_t rows_of_set(const AnyProblem& p) { return p.sets <= 1 ? p.rows : p.rows / p.sets; }

// Calls work(set, first, count) for the rows of each set in [first, first + count).
template <class Work>
void for_sets(const AnyProblem& p, std::size_t first, std::size_t count, const Work& work) {
  const std::size_t rows = rows_of_set(p);
  for (std::size_t row = first, n; row < first + count; row += n) {
    n = std::min(first + count - row, rows - row % rows);
    work(row / rows, row, n);
  }
}

// True if the elements of each row are contiguous. Otherwise rows are gathered into scratch.
template <class Pointer>
bool has_dense_rows(const Matrix<Pointer>& m) {
  return m.cols.is_dense(bytes_of(m.dtype));
}

inline bool has_shared_columns(const GradientProblem& p) {
  return p.dgamma.has_shared_columns() || p.dbeta.has_shared_columns();
}
// The address of an element of a matrix with dense rows.
template <class Pointer>
inline const char* place_in_row(const Matrix<Pointer>& m, std::size_t row, std::size_t col) {
  return static_cast<const char*>(m.data) + m.rows.offset(row) + static_cast<std::ptrdiff_t>(col * bytes_of(m.dtype));
}

// True if the pass has a residual or a quantised y.
inline bool is_fused(const Problem& p) { return p.residual.data != nullptr || p.y.dtype == DType::i8; }

}  // namespace evenorm::internal
