// The kernels' interface: plain arguments, and a table of functions for each SIMD target. kernels.inc lists them. A
// kernel works on a block of at most kBlock columns, or on a group of short rows, or on lines. src/forward/, backward/
// and lines/ decide their order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "plan/kernel_sizes.hpp"
#include "plan/spec.hpp"

namespace evenorm::internal {

// The type of the arithmetic for a storage type.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The elements of a type as bits.
template <class T>
using BitsOf =
    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

// True if this CPU has an instruction that rounds f32 to bf16, for avx3. It affects no bit.
extern const bool kRoundsToBf16;

// Loads one element from any address; callers' elements need not be aligned.
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

// Sums of a block's columns: of x and x^2, or of x - k and (x - k)^2.
struct BlockSums {
  double s, q;
};

// A number of columns, and its inverse, which MeanOf() multiplies by.
struct Count {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Count(double columns) : n(columns), inverse(1.0 / columns) {}

  double n, inverse;
};

// A row's scalars in the arithmetic's type: xhat = fma(x - centre, rstd, offset). centre is 0 for a row near zero.
template <class A>
struct NormScalars {
  A centre, offset, rstd;
};
template <class A>
struct NormScalarsOfRows {
  NormScalars<A> of(std::size_t row) const { return {centre[row], offset[row], rstd[row]}; }

  alignas(64) A centre[kMaxGroup], offset[kMaxGroup], rstd[kMaxGroup];
};

// Up to kMaxGroup rows: their sums (s and q in the places of mean and m2), then their moments, then the scalars that
// follow from them. The mean has a low part in f64 arithmetic, else 0. Unused rows are computed, too; clear_from()
// gives them values that set no flag.
template <class A>
struct RowGroup {
  void clear_from(std::size_t row) {
    for (std::size_t i = row; i < kMaxGroup; ++i) {
      mean[i] = mean_lo[i] = 0;
      m2[i] = 1;
    }
  }
  void set(std::size_t row, double m, double m_lo, double squares) {
    mean[row] = m;
    mean_lo[row] = m_lo;
    m2[row] = squares;
  }
  bool any_flag(std::size_t rows) const {
    double any = 0;
    for (std::size_t i = 0; i < rows; ++i) any += flag[i];
    return any != 0;
  }

  alignas(64) double mean[kMaxGroup], mean_lo[kMaxGroup], m2[kMaxGroup];
  alignas(64) double rstd[kMaxGroup], flag[kMaxGroup];  // flag: needs a second pass; once finished: is out of range
  NormScalarsOfRows<A> scalars;
};

// Rows that begin `step` bytes apart; step is unused for a single row.
template <class T>
struct EvenRows {
  T* at(std::size_t row) const { return after(first, row); }
  EvenRows from(std::size_t row) const { return {at(row), step}; }
  T* after(T* place, std::size_t rows) const {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(place) + rows * static_cast<std::uintptr_t>(step));
  }

  T* first = nullptr;
  std::ptrdiff_t step = 0;
};

// gamma and beta of some columns. mask: all ones, or 0 if all columns have one gamma and one beta; memory then has
// kStep of each.
template <class A>
struct Affine {
  const A* gamma_at(std::size_t col) const { return gamma + (col & mask); }
  const A* beta_at(std::size_t col) const { return beta + (col & mask); }
  Affine from(std::size_t col) const { return {gamma_at(col), beta_at(col), mask}; }

  const A* gamma;
  const A* beta;
  std::size_t mask = ~std::size_t{0};
};

// Rows to be normalised, each of n columns, with the scalars of `scalars` from `first` on. copy: where x is copied to;
// nowhere if its first is null. Each column is copied before y is written, because y may overwrite x.
template <class T>
struct NormaliseRows {
  EvenRows<const T> x;
  EvenRows<T> y;
  std::size_t rows, n;
  Affine<Arithmetic<T>> affine;
  const NormScalarsOfRows<Arithmetic<T>>* scalars;
  std::size_t first;
  bool stream;  // non-temporal stores of y, if it is aligned
  EvenRows<T> copy = {};
  bool stream_copy = false;  // the same for the copy
};

// The terms of rows that are sums: fma(scale, r, x), rounded to T. If r.first is null, the rows are there already.
template <class T>
struct TermRows {
  TermRows from(std::size_t row) const {
    return r.first == nullptr ? *this : TermRows{x.from(row), r.from(row), scale};
  }

  EvenRows<const T> x, r;
  Arithmetic<T> scale = 0;
};

// Rows to be summed, to `group` from row `first` on. ahead: the prefetch distance in bytes of x or of its terms; 0:
// none. terms: if present, x is computed from them first, in place.
template <class T>
struct SumRows {
  EvenRows<const T> x;
  std::size_t rows, n;
  RowGroup<Arithmetic<T>>* group;
  std::size_t first;
  std::size_t ahead = 0;
  TermRows<T> terms = {};
};

// The elements of a cache line.
template <class T>
inline constexpr std::size_t kOfCacheLine = kCacheLine / sizeof(T);

// The scalars of a line for y, and for dx. Those of its row come first.
struct OfY {
  enum : std::uint8_t { centre, offset, rstd, gamma, beta };
};
struct OfDx {
  enum : std::uint8_t { centre, rstd, k2, a, gamma };
};

// `count` lines (plan/lines.hpp). A step leads from one line to the next if they lie along memory, and from one
// position to the next if they lie across it; then they are neighbours.
template <class T>
struct Lines {
  EvenRows<const T> x, dy;  // dy: x in a forward pass
  EvenRows<T> to;           // y, which may be the same memory as x; or dx, which is elsewhere
  std::size_t positions, count;
  const Arithmetic<T>* scalars[5];  // those of each line, numbered by OfY or OfDx
  std::size_t ahead;                // the prefetch distance in bytes
  bool across;                      // else along memory, and then there are at least kLeastRun positions
  bool by_position;                 // gamma and beta are those of each position instead; only across memory
  bool stream;                      // non-temporal stores, as far as `to` is aligned
};

// What the kernel of short rows leaves to its caller, by group. Null: there is nothing to do.
struct GroupCalls {
  using Call = void(const void* context, std::size_t t);
  const void* context;
  Call* open;      // before group t is summed
  Call* finished;  // when its statistics are known
  Call* rare;      // in place of its normalise step and of close(), if one of its rows is out of range
  Call* close;     // when it is normalised
};

// Evenly spaced rows of one block, in groups. Group t is in groups[t mod kGroups].
template <class T>
struct ShortRows {
  std::size_t rows_of(std::size_t t) const { return t * group < count ? std::min(group, count - t * group) : 0; }
  EvenRows<const T> x_of(std::size_t t) const { return x.from(place(t, x_slots) * group); }
  EvenRows<T> y_of(std::size_t t) const { return y.from(place(t, y_slots) * group); }
  EvenRows<T> copy_of(std::size_t t) const { return copy.first == nullptr ? copy : copy.from(t * group); }
  TermRows<T> terms_of(std::size_t t) const { return terms.from(t * group); }

  EvenRows<const T> x;
  EvenRows<T> y;
  std::size_t x_slots, y_slots;  // the groups of which x and y have room, 1 or kGroups; 0: for all
  std::size_t count, group, n;   // rows in total, rows of a group, columns
  const Arithmetic<T>* gamma;
  const Arithmetic<T>* beta;
  RowGroup<Arithmetic<T>>* groups;
  double eps;
  std::size_t ahead;  // see SumRows
  TermRows<T> terms;
  EvenRows<T> copy;          // see NormaliseRows
  bool stream, stream_copy;  // see NormaliseRows
  GroupLoop loop;            // few: 1 to kFewRows in a group; neither it nor narrow with terms or a copy
  GroupCalls calls;

 private:
  static std::size_t place(std::size_t t, std::size_t slots) { return slots == 0 ? t : slots == 1 ? 0 : t % kGroups; }
};

// Converts n elements. Widening is exact; narrowing rounds once to nearest even.
using Convert = void(const void* from, void* to, std::size_t n);

// A rectangle of a tensor with constant strides of rows and columns.
struct Plane {
  char* data;
  std::ptrdiff_t row_stride, col_stride;  // bytes
  std::size_t rows, cols;
};
enum class Move { gather, scatter };  // from the tensor to the tile; from the tile to the tensor

// n columns of one row, no more than a block. ahead: the prefetch distance of x and dy in bytes; 0: none.
template <class T>
struct GradientPiece {
  const T* x;
  const T* dy;
  const Arithmetic<T>* gamma;
  std::size_t n;
  std::size_t ahead = 0;
};

// A row's sums over a block in wide lanes, of g = dy gamma and of g (centre - x).
struct alignas(64) GradientLanes {
  double g[kLanes / 2], gd[kLanes / 2];
};

// Sums over rows: dgamma and dbeta of consecutive columns. Null if columns are not summed.
struct ColumnPlaces {
  double* dgamma = nullptr;
  double* dbeta = nullptr;
};
// The same, and the chains of rows that have not been added to them yet.
template <class A>
struct GradientColumns {
  bool are_wanted() const { return sums.dgamma != nullptr; }

  A* dgamma_chain = nullptr;
  A* dbeta_chain = nullptr;
  ColumnPlaces sums = {};
  std::ptrdiff_t to_other = 0;  // from these chains to the others of their pairs; negative: these are the second ones
};
// The same from column c on; where there are no columns, none.
template <class A>
GradientColumns<A> from_column(const GradientColumns<A>& columns, std::size_t c) {
  if (!columns.are_wanted()) return columns;
  const ColumnPlaces sums{columns.sums.dgamma + c, columns.sums.dbeta + c};
  return {columns.dgamma_chain + c, columns.dbeta_chain + c, sums, columns.to_other};
}
// What becomes of the chains of columns with a row: it begins them, or goes on; it ends a pair of them, and both are
// added to the columns. none: there are no columns.
enum class Chain { none, begin, middle, end, whole };

// A row's scalars in the arithmetic's type, with d = centre - x: dx = fma(dy gamma, rstd, fma(d, k2, a)) and
// xhat = fma(-d, rstd, offset).
template <class A>
struct DxScalars {
  A centre, offset, rstd, k2, a;
};
template <class A>
struct DxScalarsOfRows {
  DxScalars<A> of(std::size_t row) const { return {centre[row], offset[row], rstd[row], k2[row], a[row]}; }

  alignas(64) A centre[kNarrowRows], offset[kNarrowRows], rstd[kNarrowRows], k2[kNarrowRows], a[kNarrowRows];
};

// The statistics of some rows; low parts are 0 in f32 arithmetic.
struct RowStatistics {
  double mean[kMaxShortRows], mean_lo[kMaxShortRows], rstd[kMaxShortRows];
};

// Rows [first, end), which share the sums of their columns; chains and pairs of these begin with the first.
template <class A>
struct RowBlock {
  Chain chain(std::size_t row, const GradientColumns<A>& columns) const {
    if (!columns.are_wanted()) return Chain::none;
    const bool begins = (row - first) % kChainRows == 0;
    const bool ends = (row + 1 - first) % kPairRows<A> == 0 || row + 1 == end;
    if (begins) return ends ? Chain::whole : Chain::begin;
    return ends ? Chain::end : Chain::middle;
  }
  // The chains of a row, if `columns` has the first ones.
  GradientColumns<A> chains_of(std::size_t row, GradientColumns<A> columns) const {
    if ((row - first) % kPairRows<A> < kChainRows) return columns;
    columns.dgamma_chain += columns.to_other, columns.dbeta_chain += columns.to_other;
    columns.to_other = -columns.to_other;
    return columns;
  }

  std::size_t first, end;
};

// Short rows at even distances, from row `begin` on, for their sums, scalars, dx and columns. The first row begins a
// chain, the last one ends it.
template <class T>
struct GradientShortRows {
  EvenRows<const T> x, dy;
  EvenRows<T> dx;
  std::size_t begin, count, n;
  const Arithmetic<T>* gamma;
  const RowStatistics& statistics;
  GradientColumns<Arithmetic<T>> columns;
  bool centred, stream, narrow;
  std::size_t ahead;  // see GradientPiece
};
// The next row. dx of the last `not_finite` rows before it must be computed again. If there are none, the next row, if
// any, is rare.
struct GradientsDone {
  std::size_t next, not_finite;
};

// Rows to be converted to 8-bit integers, number * factor of the row. any: numbers may be of any size, and NaN becomes
// 0. Otherwise the products are known to round to at most 127 in magnitude.
template <class A>
struct QuantisedRows {
  EvenRows<const A> values;
  EvenRows<std::int8_t> to;
  std::size_t rows, n;
  const float* factors;
  const bool* any;
};

// One function for each kind: layer, RMS.
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

// left += right for sums over rows.
using AddColumnSums = void(double* left, const double* right, std::size_t count);
// Adds `there`, unless it is null, to n such sums. Returns true if all are finite.
using AddToColumnSums = bool(const double* sums, const double* there, std::size_t n, double* values);

using Transpose = std::size_t(const Plane&, Move, bool stream, char* tile, std::size_t tile_stride);

// All kernels of a target.
struct Kernels {
  template <class T>
  const StorageKernels<T>& of() const {
    return std::get<StorageKernels<T>>(by_storage);
  }
  template <class A>
  const ArithmeticKernels<A>& in() const {
    return std::get<ArithmeticKernels<A>>(by_arithmetic);
  }

  std::tuple<StorageKernels<double>, StorageKernels<float>, StorageKernels<bfloat16>, StorageKernels<float16>>
      by_storage;
  std::tuple<ArithmeticKernels<double>, ArithmeticKernels<float>> by_arithmetic;
  std::array<std::array<Convert*, kDTypeCount>, kDTypeCount> convert;  // [from][to]; to or from is f32 or f64
  std::array<Transpose*, 3> transpose;                                 // for elements of 2, 4 and 8 bytes
  AddColumnSums* add_columns;
  AddToColumnSums* add_to_columns;
};

}  // namespace evenorm::internal
