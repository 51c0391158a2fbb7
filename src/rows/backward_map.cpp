// dx of rows whose scalars are known: by the kernel; in f64, where f32 cannot hold what it is made of; or scaled.
#include <cmath>
#include <cstring>
#include <limits>

#include "rows/backward.hpp"

namespace evenorm::internal {
namespace {

// In f64, for f32 arithmetic: all n elements, or those that are not finite.
[[gnu::noinline]] void map_in_f64(const GradientScalars& s, bool all, const float* x, const float* dy,
                                  const float* gamma, std::size_t n, float* dx) {
  const bool finite = std::isfinite(s.c1_hi) && std::isfinite(s.c2_hi);
  const double c1 = finite ? s.c1_hi : std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < n; ++i) {
    if (!all && std::isfinite(load_one(dx + i))) continue;
    const double g = static_cast<double>(load_one(dy + i)) * static_cast<double>(load_one(gamma + i));
    const double xhat = (static_cast<double>(load_one(x + i)) - s.mean_hi) * s.rstd;
    const double value = ((g - c1) - xhat * s.c2_hi) * s.rstd;
    store_one(value != value ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value), dx + i);
  }
}

}  // namespace

template <class T>
typename BackwardRows<T>::RowMap BackwardRows<T>::map_of(const GradientScalars& s) const {
  using namespace plain;
  using W = Number<A>;
  RowMap map{{}, MapBy::arithmetic};
  if (is_zero(s) && std::isfinite(s.c1_hi) && std::isfinite(s.c2_hi) && !s.scaled_map) return map;
  const GradientMeans<W> means{W::From(kOne, s.c1_hi, s.c1_lo), W::From(kOne, s.c2_hi, s.c2_lo)};
  const bool holds =
      StoreGradientMap<A>(kOne, s.mean_hi, s.mean_lo, W::From(kOne, s.rstd, s.rstd_lo), means, 0, map.scalars);
  if (s.scaled_map) {
    map.by = MapBy::scaling;
  } else if (!kWide && !holds) {
    map.by = MapBy::wider;
  }
  return map;
}

template <class T>
void BackwardRows<T>::map(std::size_t first, std::size_t count, const GradientScalars* scalars, std::size_t first_col,
                          std::size_t cols) {
  for (std::size_t i = 0; i < count; ++i) {
    const RowMap map = map_of(scalars[i]);
    for (std::size_t col = first_col; col < first_col + cols; col += kPiece) {
      map_piece(first + i, scalars[i], map, col, std::min(kPiece, first_col + cols - col));
    }
  }
}

template <class T>
void BackwardRows<T>::map_piece(std::size_t row, const GradientScalars& scalars, const RowMap& map, std::size_t col,
                                std::size_t n) {
  const GradientRow<T> source{x_[0].get().block(row, col, n), dy_[0].get().block(row, col, n), 0, 0, 0, 0};
  const A* gamma = gamma_.block(col, n);
  T* place = sink_.block(row, col, n);
  T* dx = aside_ != nullptr ? aside_ : place;
  if (kWide && map.by == MapBy::scaling) {
    if constexpr (kWide) ScaledGradient(scalars).map(is_zero(scalars), source.x, source.dy, gamma, n, dx);
  } else {
    const bool stream = stream_ && !kWide && dx == place;
    const bool finite =
        map.by == MapBy::arithmetic && kernels_.of<T>().gradient_map({&source, 1, n, gamma, &map.scalars, &dx, stream});
    if (!kWide && !finite) map_wider(scalars, map, source.x, source.dy, gamma, n, dx);
  }
  if constexpr (std::is_same_v<T, A>) deliver(row, col, n, dx, place);  // else it is where it should be
}

// What the kernel left not finite, or all; of a 16-bit type by way of f32.
template <class T>
void BackwardRows<T>::map_wider(const GradientScalars& s, const RowMap& map, const T* x, const T* dy, const A* gamma,
                                std::size_t n, T* dx) {
  const bool all = map.by == MapBy::wider;
  if constexpr (std::is_same_v<T, float>) {
    map_in_f64(s, all, x, dy, gamma, n, dx);
  } else if constexpr (!kWide) {
    constexpr std::size_t kAtOnce = 64;
    Convert* widen = kernels_.convert[index_of(dtype_of<T>)][index_of(DType::f32)];
    Convert* narrow = kernels_.convert[index_of(DType::f32)][index_of(dtype_of<T>)];
    float wide_x[kAtOnce], wide_dy[kAtOnce], wide_dx[kAtOnce];
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(kAtOnce, n - i);
      widen(x + i, wide_x, count);
      widen(dy + i, wide_dy, count);
      const GradientRow<float> row{wide_x, wide_dy, 0, 0, 0, 0};
      float* to = wide_dx;
      if (!all) kernels_.f32.gradient_map({&row, 1, count, gamma + i, &map.scalars, &to, false});
      map_in_f64(s, all, wide_x, wide_dy, gamma + i, count, wide_dx);
      narrow(wide_dx, dx + i, count);
    }
  }
}

template <class T>
void BackwardRows<T>::deliver(std::size_t row, std::size_t col, std::size_t n, const A* dx, A* place) {
  if (p_.dsum.data != nullptr) {
    add_sum(row, col, n, place);
  } else if (dx != place) {
    std::memcpy(static_cast<void*>(place), dx, n * sizeof(A));
  }
  sink_.done(row, 1, col, n);
}

// What is aside and the gradient of the sum, to `place`.
template <class T>
void BackwardRows<T>::add_sum(std::size_t row, std::size_t col, std::size_t n, A* place) {
  if constexpr (std::is_same_v<T, A>) {
    if (p_.dsum.dtype == dtype_of<A> && has_dense_rows(p_.dsum)) {
      const auto* dsum = reinterpret_cast<const A*>(place_in_row(p_.dsum, row, col));
      kernels_.of<A>().add(A{1}, aside_, dsum, n, place, stream_);
    } else {
      add_pieces(row, col, n, place);
    }
  }
}
template <class T>
[[gnu::noinline]] void BackwardRows<T>::add_pieces(std::size_t row, std::size_t col, std::size_t n, A* place) {
  if constexpr (std::is_same_v<T, A>) {
    constexpr std::size_t kAtOnce = 64;
    char gathered[kAtOnce * sizeof(double)];
    A converted[kAtOnce];
    Tile<const void*> tile(kernels_, p_.dsum, false, gathered, 0);
    Source<A> source(kernels_, p_.dsum, has_dense_rows(p_.dsum) ? nullptr : &tile, converted);
    for (std::size_t i = 0, count; i < n; i += count) {
      count = std::min(kAtOnce, n - i);
      kernels_.of<A>().add(A{1}, aside_ + i, source.block(row, col + i, count), count, place + i, false);
    }
  }
}

#define EVENORM_INSTANTIATE(T) \
  template void BackwardRows<T>::map(std::size_t, std::size_t, const GradientScalars*, std::size_t, std::size_t);
EVENORM_INSTANTIATE(double)
EVENORM_INSTANTIATE(float)
EVENORM_INSTANTIATE(bfloat16)
EVENORM_INSTANTIATE(float16)
#undef EVENORM_INSTANTIATE

}  // namespace evenorm::internal
