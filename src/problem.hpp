// One normalisation, or its gradients, described without templates: what every front end fills in, validate() checks
// and kernels run. Plain data; owns nothing. Pointers are the caller's.
#pragma once

#include <cstddef>

#include "evenorm/evenorm.hpp"
#include "layout.hpp"

namespace evenorm::internal {

// Element (r, c) lies rows.offset(r) + cols.offset(c) bytes from data.
template <class Pointer>
struct Matrix {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  Axes rows, cols;
};

// One value per column (gamma, beta) or per row (mean, rstd); absent where data is null.
template <class Pointer>
struct Vector {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  Axes axes;
};

struct Problem {
  Kind kind = Kind::layer;
  std::size_t rows = 0;
  std::size_t cols = 0;
  Matrix<const void*> x;
  Matrix<void*> y;
  Vector<const void*> gamma;
  Vector<const void*> beta;
  Vector<void*> mean;
  Vector<void*> rstd;
  double eps = 1e-5;
  bool zero_centered = false;
  // Set by run_problem for what would not stay in the caches: write y past them, fetch x ahead. Neither affects a bit.
  bool stream_y = false;
  bool fetch_x = false;
};

// One backward pass. Absent outputs and parameters have null data; where there are rows, at least one output is there.
struct GradientProblem {
  Kind kind = Kind::layer;
  std::size_t rows = 0;
  std::size_t cols = 0;
  Matrix<const void*> x, dy;
  Matrix<void*> dx;
  Vector<const void*> gamma;
  Vector<const void*> mean, rstd;
  Vector<void*> dgamma, dbeta;
  double eps = 1e-5;
  bool zero_centered = false;
  bool accumulate = false;
  // Set by run_problem for what would not stay in the caches: write dx past them, fetch x and dy ahead. Neither affects
  // a bit.
  bool stream_dx = false;
  bool fetch = false;
};

inline constexpr std::size_t kDTypeCount = 4;
constexpr std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }
constexpr std::size_t bytes_of(DType dtype) { return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2; }

// The type of the element-wise arithmetic, f32 or f64: f64 where x, y, gamma or beta is.
inline DType arithmetic_type(const Problem& p) {
  const bool wide = p.x.dtype == DType::f64 || p.y.dtype == DType::f64 ||
                    (p.gamma.data != nullptr && p.gamma.dtype == DType::f64) ||
                    (p.beta.data != nullptr && p.beta.dtype == DType::f64);
  return wide ? DType::f64 : DType::f32;
}

inline DType arithmetic_type(const GradientProblem& p) {
  const bool wide = p.x.dtype == DType::f64 || p.dy.dtype == DType::f64 ||
                    (p.dx.data != nullptr && p.dx.dtype == DType::f64) ||
                    (p.gamma.data != nullptr && p.gamma.dtype == DType::f64);
  return wide ? DType::f64 : DType::f32;
}

// Do the elements of each row lie side by side? Where not, rows are gathered into scratch.
template <class Pointer>
bool has_dense_rows(const Matrix<Pointer>& m) {
  return m.cols.is_dense(bytes_of(m.dtype));
}

// Is a row gathered from x, or scattered to y, in pieces that do not lie side by side?
inline bool needs_tiles(const Problem& p) { return !has_dense_rows(p.x) || !has_dense_rows(p.y); }

}  // namespace evenorm::internal
