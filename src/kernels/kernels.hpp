// The kernels' interface: plain arguments, a table of functions for each SIMD target. kernels.inc lists them.
// A kernel works on a block of at most kBlock columns, or on a group of short rows; which comes when is for src/rows/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "plan/spec.hpp"
#include "plan/tuning.hpp"

namespace evenorm::internal {

// The arithmetic of a storage type.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Has this CPU an instruction that rounds f32 to bf16, which kernels of avx3 may then use? No bit depends on it. (Tests
// set it.)
extern bool rounds_to_bf16;

// One element at any address: callers' elements need not be at a multiple of their size.
template <class T>
T load_one(const T* place) {
  T value;
  std::memcpy(&value, static_cast<const void*>(place), sizeof value);
  return value;
}
template <class T>
void store_one(T value, void* place) {
  std::memcpy(place, &value, sizeof value);
}

// A wide number: lo is 0 but in f64 arithmetic.
struct WideNumber {
  double hi, lo;
};
// Sums of a block's columns: of x and x^2, or of x - k and (x - k)^2; or of g and g (x - mean).
struct BlockSums {
  WideNumber s, q;
};

// A number of columns, and what MeanOf() multiplies by.
struct Count {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Count(double columns) : n(columns), inverse(1.0 / columns) {}

  double n, inverse;
};

// A row's scalars in the arithmetic's type: xhat = fma(x - centre, rstd, offset). centre: 0 in a row near zero.
template <class A>
struct MapScalars {
  A centre, offset, rstd;
};
template <class A>
struct MapScalarsOfRows {
  MapScalars<A> of(std::size_t row) const { return {centre[row], offset[row], rstd[row]}; }

  alignas(64) A centre[kMaxGroup], offset[kMaxGroup], rstd[kMaxGroup];
};

// Up to kMaxGroup rows side by side: their sums (s and q in the places of mean and m2), then their moments, then what
// becomes of them. Unused rows are computed too: clear_from() makes them such that ask for nothing.
template <class A>
struct RowGroup {
  void clear_from(std::size_t row) {
    for (std::size_t i = row; i < kMaxGroup; ++i) {
      mean_hi[i] = mean_lo[i] = m2_lo[i] = 0;
      m2_hi[i] = 1;
    }
  }
  void set(std::size_t row, const WideNumber& a, const WideNumber& b) {
    mean_hi[row] = a.hi;
    mean_lo[row] = a.lo;
    m2_hi[row] = b.hi;
    m2_lo[row] = b.lo;
  }
  bool any_flag(std::size_t rows) const {
    double any = 0;
    for (std::size_t i = 0; i < rows; ++i) any += flag[i];
    return any != 0;
  }

  alignas(64) double mean_hi[kMaxGroup], mean_lo[kMaxGroup];
  alignas(64) double m2_hi[kMaxGroup], m2_lo[kMaxGroup];
  alignas(64) double rstd[kMaxGroup], flag[kMaxGroup];  // flag: wants a second look; once finished: is extreme
  MapScalarsOfRows<A> map;
};

// Rows that begin `step` bytes apart; of one row, step is of no use.
template <class T>
struct EvenRows {
  T* at(std::size_t row) const {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(first) + row * static_cast<std::uintptr_t>(step));
  }

  T* first = nullptr;
  std::ptrdiff_t step = 0;
};

// Rows to be mapped: each of n columns, with the scalars of `scalars` from `first` on. copy: where x goes besides,
// first null: nowhere; of each column before y, which may lie where x does.
template <class T>
struct MapRows {
  EvenRows<const T> x;
  EvenRows<T> y;
  std::size_t rows, n;
  const Arithmetic<T>* gamma;
  const Arithmetic<T>* beta;
  const MapScalarsOfRows<Arithmetic<T>>* scalars;
  std::size_t first;
  bool stream;  // y past the caches, where it is aligned so
  EvenRows<T> copy = {};
  bool stream_copy = false;  // the same of the copy
};

// What rows of a sum are made of: fma(scale, r, x), rounded to T. r.first null: they are there already.
template <class T>
struct TermRows {
  EvenRows<const T> x, r;
  Arithmetic<T> scale = 0;
};

// Rows to be summed, to `group` from row `first` on. ahead: how many bytes behind a column x is fetched meanwhile, or
// its terms; 0: not. terms: of x, which is made of them first, where it lies.
template <class T>
struct SumRows {
  EvenRows<const T> x;
  std::size_t rows, n;
  RowGroup<Arithmetic<T>>* group;
  std::size_t first;
  std::size_t ahead = 0;
  TermRows<T> terms = {};
};

// Rows that lie side by side, a cache line of each column: sums go to `groups`, scalars are taken from them.
template <class T>
inline constexpr std::size_t kPlanarRows = 64 / sizeof(T);
static_assert(kPlanarRows<double> % kMaxGroup == 0);
template <class T>
struct PlanarRows {
  const T* x;                     // of the first row, the first column
  T* y;                           // likewise; may be x
  std::ptrdiff_t x_step, y_step;  // bytes from a column to the next
  std::size_t n;                  // columns, no more than a block
  RowGroup<Arithmetic<T>>* groups;
  const Arithmetic<T>* gamma;
  const Arithmetic<T>* beta;
  std::size_t ahead;  // bytes from rows of a column that are mapped to those that are fetched meanwhile
  bool stream;        // y past the caches, where it is aligned so
};

// Short rows in groups that lie evenly. In turn t group t is mapped, t + 1 finished, t + 2 summed; group t is in
// groups[t mod kGroups].
template <class T>
struct ShortRows {
  T* y_of(std::size_t t) const { return in_turn ? y.first : y.at(t * group); }

  EvenRows<const T> x;
  EvenRows<T> y;
  std::size_t count, group, n;  // rows in all, and in a group
  const Arithmetic<T>* gamma;
  const Arithmetic<T>* beta;
  RowGroup<Arithmetic<T>>* groups;
  double eps;
  std::size_t ahead;  // as of SumRows
  TermRows<T> terms;
  bool stream;   // as of MapRows
  bool few;      // 2 to kFewRows in a group, with kStep columns or more, of f32 arithmetic, no terms, not to stream
  bool in_turn;  // do all groups have the same place in y, each until mapped() was called?
  // Called when group t is finished, but where it ends the turns; and when it is mapped. Null: not wanted.
  using Hook = void(void* context, std::size_t t);
  void* context;
  Hook* finished;
  Hook* mapped;
};

// What a driver does between the steps of map_and_sum: before columns [first, first + n) are summed, or mapped.
struct StepHooks {
  using Hook = void(void* context, std::size_t first, std::size_t n);

  void* context = nullptr;
  Hook* before_sum = nullptr;
  Hook* before_map = nullptr;
};

// Converts n elements; exact when widening, rounded once to nearest even when narrowing.
using Convert = void(const void* from, void* to, std::size_t n);

// A rectangle of a tensor, over which both rows and columns step evenly.
struct Plane {
  char* data;
  std::ptrdiff_t row_stride, col_stride;  // bytes
  std::size_t rows, cols;
};
enum class Move { gather, scatter };  // from the tensor to the tile; from the tile to the tensor

// n columns of one row, no more than a block. ahead: how many bytes behind a column x and dy are prefetched meanwhile;
// 0: not.
template <class T>
struct GradientPiece {
  const T* x;
  const T* dy;
  const Arithmetic<T>* gamma;
  std::size_t n;
  std::size_t ahead = 0;
};

// A row's sums over a block, in wide lanes: of g = dy gamma and of g (centre - x); low parts in f64 arithmetic.
struct alignas(64) GradientLanes {
  double g_hi[kLanes / 2], g_lo[kLanes / 2], gd_hi[kLanes / 2], gd_lo[kLanes / 2];
};

// Sums over rows: dgamma and dbeta of consecutive columns, and how far behind each of them its low part is. Null where
// the columns are not summed.
struct ColumnPlaces {
  double* dgamma = nullptr;
  double* dbeta = nullptr;
  std::size_t low = 0;
};
// The same, and the chains of rows that are on their way to them.
template <class A>
struct GradientColumns {
  A* dgamma_chain = nullptr;
  A* dbeta_chain = nullptr;
  ColumnPlaces sums = {};
};
// The same from column c on; where there are no columns, none.
template <class A>
constexpr GradientColumns<A> from_column(const GradientColumns<A>& columns, std::size_t c) {
  if (columns.sums.dgamma == nullptr) return columns;
  return {columns.dgamma_chain + c,
          columns.dbeta_chain + c,
          {columns.sums.dgamma + c, columns.sums.dbeta + c, columns.sums.low}};
}
// Whether a row is the first one in its chains, and the last one, which takes them to the columns.
struct ChainPlace {
  bool begins, ends;
};

// A row's scalars in the arithmetic's type, with d = centre - x: dx = fma(dy gamma, rstd, fma(d, k2, a)) and
// xhat = fma(-d, rstd, offset).
template <class A>
struct GradientMapScalars {
  A centre, offset, rstd, k2, a;
};
template <class A>
struct GradientMapScalarsOfRows {
  GradientMapScalars<A> of(std::size_t row) const { return {centre[row], offset[row], rstd[row], k2[row], a[row]}; }

  alignas(64) A centre[kGradientRows], offset[kGradientRows], rstd[kGradientRows], k2[kGradientRows], a[kGradientRows];
};

// The statistics of some rows; low parts are 0 in f32 arithmetic.
struct RowStatistics {
  double mean_hi[kMaxShortRows], mean_lo[kMaxShortRows], rstd[kMaxShortRows], rstd_lo[kMaxShortRows];
};

// Short rows that lie evenly, from row `begin` on: sums, scalars, dx and columns.
template <class T>
struct GradientShortRows {
  EvenRows<const T> x, dy;
  EvenRows<T> dx;
  std::size_t begin, count, n;
  const Arithmetic<T>* gamma;
  const RowStatistics& statistics;
  GradientColumns<Arithmetic<T>> columns;
  std::size_t at;    // where the first row is in its row block
  ChainPlace place;  // whether row `begin` begins its chains; whether the last row ends the row block
  bool centred, stream;
  std::size_t ahead;  // as of GradientPiece
};
// The row that is next. dx of the last `not_finite` rows before it is to be made again; where there are none such, the
// next row needs wider steps, if there is one.
struct GradientsDone {
  std::size_t next, not_finite;
};

// Rows of numbers to become integers of 8 bits: number * factor of the row. any: numbers of any size, and NaN to 0;
// else the products are known to round to at most 127 in magnitude.
template <class A>
struct QuantisedRows {
  EvenRows<const A> values;
  EvenRows<std::int8_t> to;
  std::size_t rows, n;
  const float* factors;
  const bool* any;
};

// By kind: layer, RMS.
template <class Function>
using ByKind = std::array<Function*, 2>;

template <class T>
struct StorageKernels {
  using A = Arithmetic<T>;
#define EVENORM_BY_STORAGE(name, kernel, ...) std::add_pointer_t<__VA_ARGS__> name;
#define EVENORM_BY_STORAGE_AND_KIND(name, kernel, ...) ByKind<__VA_ARGS__> name;
#define EVENORM_BY_ARITHMETIC(name, ...)
#include "kernels/kernels.inc"
};

template <class A>
struct ArithmeticKernels {
#define EVENORM_BY_STORAGE(name, ...)
#define EVENORM_BY_STORAGE_AND_KIND(name, ...)
#define EVENORM_BY_ARITHMETIC(name, kernel, ...) std::add_pointer_t<__VA_ARGS__> name;
#include "kernels/kernels.inc"
};

using Transpose = std::size_t(const Plane&, Move, bool stream, char* tile, std::size_t tile_stride);

// All of a target's.
struct Kernels {
  template <class T>
  const StorageKernels<T>& of() const {
    if constexpr (std::is_same_v<T, double>) {
      return f64;
    } else if constexpr (std::is_same_v<T, float>) {
      return f32;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      return bf16;
    } else {
      return f16;
    }
  }
  template <class A>
  const ArithmeticKernels<A>& in() const {
    if constexpr (std::is_same_v<A, double>) {
      return in_f64;
    } else {
      return in_f32;
    }
  }

  StorageKernels<double> f64;
  StorageKernels<float> f32;
  StorageKernels<bfloat16> bf16;
  StorageKernels<float16> f16;
  ArithmeticKernels<double> in_f64;
  ArithmeticKernels<float> in_f32;
  std::array<std::array<Convert*, kDTypeCount>, kDTypeCount> convert;  // [from][to]; to or from is f32 or f64
  std::array<Transpose*, 3> transpose;                                 // of elements of 2, 4 and 8 bytes
  bool maps_beside_sums;  // f32 arithmetic: are sums and map of rows one loop?
};

}  // namespace evenorm::internal
