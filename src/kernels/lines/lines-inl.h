// y and dx of lines (plan/lines.hpp). Across memory, a vector holds one position of several lines, so that nothing is
// transposed. Included once per target.
#pragma once

#include "kernels/backward/gradient_dx-inl.h"
#include "kernels/forward/normalise-inl.h"
#include "kernels/lines/line_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// What all lines have: the sum of dx, which is not finite where a dx is not; gamma and beta of a position.
template <class V>
struct OfAllLines {
  V watch, gamma, beta;
};
// They make y of x, or dx of x and dy, with the scalars of a line, or of several: vectors that `load` returns.
// kIsByPosition: all lines have gamma and beta of their positions.
template <bool kIsByPosition, class V>
struct MakeY {
  static constexpr bool kReadsDy = false, kByPosition = kIsByPosition;

  template <class Load>
  HWY_INLINE void Set(const Load& load) {
    centre = load(OfY::centre), offset = load(OfY::offset), rstd = load(OfY::rstd);
    if constexpr (!kByPosition) gamma = load(OfY::gamma), beta = load(OfY::beta);
  }
  HWY_INLINE V operator()(V x, V, OfAllLines<V>& all) const {
    const NormaliseVectors<true, hn::DFromV<V>> normalise(centre, offset, rstd);
    return normalise({}, x, kByPosition ? all.gamma : gamma, kByPosition ? all.beta : beta);
  }

  V centre, offset, rstd, gamma, beta;
};
template <class V>
struct MakeDx {
  static constexpr bool kReadsDy = true, kByPosition = false;

  template <class Load>
  HWY_INLINE void Set(const Load& load) {
    centre = load(OfDx::centre), rstd = load(OfDx::rstd), k2 = load(OfDx::k2), a = load(OfDx::a);
    gamma = load(OfDx::gamma);
  }
  HWY_INLINE V operator()(V x, V dy, OfAllLines<V>& all) const {
    return DxOf(hn::DFromV<V>(), dy, gamma, hn::Sub(centre, x), rstd, k2, a, all.watch);
  }

  V centre, rstd, k2, a, gamma;
};
template <class Make, class T, class V>
HWY_INLINE PairOf<V> MakePair(const Make& a, const Make& b, const T* x, const T* dy, OfAllLines<V>& all) {
  const hn::DFromV<V> d;
  const PairOf<V> from = LoadPair(d, x), dy_pair = Make::kReadsDy ? LoadPair(d, dy) : from;
  return {a(from.a, dy_pair.a, all), b(from.b, dy_pair.b, all)};
}
template <class Make, class T>
HWY_INLINE void PrefetchLines(const T* x, const T* dy, size_t bytes, size_t ahead) {
  if (ahead == 0) return;
  PrefetchBehind(x, bytes, ahead);
  if constexpr (Make::kReadsDy) PrefetchBehind(dy, bytes, ahead);
}

// Lines from `line` on that fill a cache line, which may then be written with non-temporal stores.
template <class Make, bool kStream, class T, class V>
HWY_INLINE void WriteCacheLines(const Lines<T>& c, size_t line, OfAllLines<V>& all) {
  const hn::DFromV<V> d;
  constexpr size_t kN = hn::MaxLanes(d), kCount = kOfCacheLine<T> / kN;
  Make make[kCount];
  for (size_t k = 0; k < kCount; ++k) {
    make[k].Set([&](size_t i) HWY_ATTR { return hn::LoadU(d, c.scalars[i] + line + k * kN); });
  }
  EvenRows<const T> x = c.x, dy = c.dy;
  EvenRows<T> to = c.to;
  const size_t ahead = c.ahead;
#pragma GCC unroll 1
  for (size_t i = 0, n = c.positions; i < n; ++i) {
    const T *x_at = x.first + line, *dy_at = dy.first + line;
    T* to_at = to.first + line;
    PrefetchLines<Make>(x_at, dy_at, 1, ahead);
    if constexpr (Make::kByPosition) {
      all.gamma = hn::Set(d, load_one(c.scalars[OfY::gamma] + i));
      all.beta = hn::Set(d, load_one(c.scalars[OfY::beta] + i));
    }
    if constexpr (kCount == 1) {
      StoreWhole<kStream>(make[0](LoadArithmetic(d, x_at), LoadArithmetic(d, dy_at), all), d, to_at);
    } else {
      HWY_UNROLL(8)
      for (size_t k = 0; k < kCount; k += 2) {
        const auto made = MakePair(make[k], make[k + 1], x_at + k * kN, dy_at + k * kN, all);
        StorePair<kStream>(made.a, made.b, d, to_at + k * kN);
      }
    }
    x.first = x.at(1), dy.first = dy.at(1), to.first = to.at(1);
  }
}
template <class Make, bool kStream, class T>
HWY_NOINLINE bool WriteAcross(const Lines<T>& c) {
  const auto zero = hn::Zero(DF32());
  OfAllLines<hn::Vec<DF32>> all{zero, zero, zero};
  Lines<T> some = c;
  const size_t together = StayNear(c) ? c.positions : kPositionsTogether;
  for (size_t i = 0; i < c.positions; i += together) {
    some.positions = HWY_MIN(together, c.positions - i);
    for (size_t line = 0; line < c.count; line += kOfCacheLine<T>) WriteCacheLines<Make, kStream>(some, line, all);
    some.x.first = some.x.at(together), some.dy.first = some.dy.at(together), some.to.first = some.to.at(together);
    if constexpr (Make::kByPosition) some.scalars[OfY::gamma] += together, some.scalars[OfY::beta] += together;
  }
  return AllFinite<float>(all.watch);
}

// A line of n positions, at least a vector. Those that do not fill pairs at its end overlap with others. They are made
// before these are stored, because `to` may be x without non-temporal stores.
template <bool kStream, class Make, class T, class V>
HWY_INLINE void WriteLine(const Make& make, const T* x, const T* dy, size_t n, size_t ahead, T* to,
                          OfAllLines<V>& all) {
  const hn::DFromV<V> d;
  constexpr size_t kN = hn::MaxLanes(d), kPair = 2 * kN;
  static_assert(kN <= kLeastRun);
  if (HWY_UNLIKELY(n < kPair)) {
    const auto at = [&](size_t i) HWY_ATTR { return make(LoadArithmetic(d, x + i), LoadArithmetic(d, dy + i), all); };
    const auto first = at(0), last = at(n - kN);
    StoreArithmetic(first, d, to);
    StoreArithmetic(last, d, to + n - kN);
    return;
  }
  const auto pair_at = [&](size_t i) HWY_ATTR { return MakePair(make, make, x + i, dy + i, all); };
  PairOf<V> last{hn::Zero(d), hn::Zero(d)};
  if (kStream || n % kPair != 0) last = pair_at(n - kPair);
  size_t i = 0;
  if constexpr (kStream) {
    const auto first = pair_at(0);
    StorePair<false>(first.a, first.b, d, to);
    constexpr size_t kBytes = sizeof(first.a);
    i = (kBytes - reinterpret_cast<uintptr_t>(to) % kBytes) % kBytes / sizeof(T);
  }
#pragma GCC unroll 1
  for (; i + kPair <= n; i += kPair) {
    PrefetchLines<Make>(x + i, dy + i, kPair * sizeof(T), ahead);
    const auto made = pair_at(i);
    StorePair<kStream>(made.a, made.b, d, to + i);
  }
  if (i != n) StorePair<false>(last.a, last.b, d, to + n - kPair);
}
template <class Make, bool kStream, class T>
HWY_NOINLINE bool WriteAlong(const Lines<T>& c) {
  const DF32 d;
  OfAllLines<hn::Vec<DF32>> all{hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (size_t line = 0; line < c.count; ++line) {
    Make make;
    make.Set([&](size_t i) HWY_ATTR { return hn::Set(d, c.scalars[i][line]); });
    WriteLine<kStream>(make, c.x.at(line), c.dy.at(line), c.positions, c.ahead, c.to.at(line), all);
  }
  return AllFinite<float>(all.watch);
}

// Non-temporal stores are of whole cache lines across memory; along it, of whole vectors inside each line.
template <class Make, class T>
HWY_INLINE bool WriteLines(const Lines<T>& c) {
  const uintptr_t places = reinterpret_cast<uintptr_t>(c.to.first) | static_cast<uintptr_t>(c.to.step);
  const bool stream = c.stream && places % (c.across ? 64 : sizeof(T)) == 0;
  if (Make::kByPosition || c.across) return stream ? WriteAcross<Make, true>(c) : WriteAcross<Make, false>(c);
  return stream ? WriteAlong<Make, true>(c) : WriteAlong<Make, false>(c);
}

// f64 has no lines.
template <class T>
bool NormaliseLines(const Lines<T>& c) {
  using V = hn::Vec<DF32>;
  if constexpr (!std::is_same_v<T, double>) {
    return c.by_position ? WriteLines<MakeY<true, V>>(c) : WriteLines<MakeY<false, V>>(c);
  }
  return false;
}
template <class T>
bool DxOfLines(const Lines<T>& c) {
  if constexpr (!std::is_same_v<T, double>) return WriteLines<MakeDx<hn::Vec<DF32>>>(c);
  return false;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
