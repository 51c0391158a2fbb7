// The loops of the copies are compiled once per SIMD target.
#include "bench/copies.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/copies.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "run/parallel.hpp"

#ifndef EVENORM_BENCH_COPIES_WAYS_
#define EVENORM_BENCH_COPIES_WAYS_
namespace evenorm::bench {
namespace {

using Share = Copy::Share;
using Loop = Copy::Loop;

// Inputs in memory are prefetched. Prefetching data in the caches gains nothing (docs/lab/README.md, "How rivals and
// copies are measured").
constexpr std::size_t kFetchFrom = std::size_t{4} << 20U;  // bytes of a share's output
constexpr std::size_t kAhead = 4096;

// input() returns the address of input number `read` for the output at byte `at`; input_of_rest() that for the last
// `rest` bytes, which are less than a block.
template <std::size_t reads, std::size_t writes>
struct Apart {
  static constexpr std::size_t kReads = reads, kWrites = writes;
  static const std::byte* input(const Share& share, std::size_t read, std::size_t at) { return share.from[read] + at; }
  static const std::byte* input_of_rest(const Share& share, std::size_t read, std::size_t at, std::size_t) {
    return share.from[read] + at;
  }
};

template <std::size_t fold>
struct Folded {
  static constexpr std::size_t kReads = fold, kWrites = 1;
  static const std::byte* input(const Share& share, std::size_t read, std::size_t at) {
    return share.from[0] + at / kCopyBlock * (fold * kCopyBlock) + read * kCopyBlock + at % kCopyBlock;
  }
  static const std::byte* input_of_rest(const Share& share, std::size_t read, std::size_t at, std::size_t rest) {
    return share.from[0] + at * fold + read * rest;
  }
};

// The loops of one target, one for each kind of traffic.
struct Loops {
  Loop one_to_one, two_to_one, two_to_two, folded_2, folded_4, folded_8;
};
struct BothLoops {
  Loops plain, streaming;
};

}  // namespace
}  // namespace evenorm::bench
#endif

HWY_BEFORE_NAMESPACE();
namespace evenorm::bench {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<std::uint8_t>;
using V = hn::Vec<D>;
constexpr std::size_t kStep = hn::MaxLanes(D());

HWY_INLINE V Get(const std::byte* from) { return hn::LoadU(D(), reinterpret_cast<const std::uint8_t*>(from)); }

template <bool kStreaming>
HWY_INLINE void Put(V v, std::byte* to) {
  auto* const place = reinterpret_cast<std::uint8_t*>(to);
  if constexpr (kStreaming) {
    hn::Stream(v, D(), place);
  } else {
    hn::StoreU(v, D(), place);
  }
}

// Prefetches the input that is read kAhead bytes of output later.
template <class Way, std::size_t kVectors>
HWY_INLINE void Fetch(const Share& share, std::size_t at) {
  for (std::size_t i = 0; i < kVectors * kStep; i += kCopyBlock) {
    for (std::size_t r = 0; r < Way::kReads; ++r) hwy::Prefetch(Way::input(share, r, at + kAhead + i));
  }
}

// All loads of a step precede its stores.
template <class Way, bool kStreaming, std::size_t kVectors>
HWY_INLINE void Move(const Share& share, std::size_t at) {
  V vectors[Way::kWrites][kVectors];
  for (std::size_t i = 0; i < kVectors; ++i) {
    const std::size_t place = at + i * kStep;
    for (std::size_t w = 0; w < Way::kWrites; ++w) vectors[w][i] = Get(Way::input(share, w, place));
    for (std::size_t r = Way::kWrites; r < Way::kReads; ++r) {
      vectors[0][i] = hn::Xor(vectors[0][i], Get(Way::input(share, r, place)));
    }
  }
  for (std::size_t w = 0; w < Way::kWrites; ++w) {
    for (std::size_t i = 0; i < kVectors; ++i) Put<kStreaming>(vectors[w][i], share.to[w] + at + i * kStep);
  }
}

template <class Way>
HWY_INLINE void MoveRest(const Share& share, std::size_t at) {
  const std::size_t rest = share.bytes - at;
  for (std::size_t w = 0; w < Way::kWrites; ++w) {
    for (std::size_t i = 0; i < rest; ++i) {
      std::byte value = Way::input_of_rest(share, w, at, rest)[i];
      for (std::size_t r = Way::kWrites; r < Way::kReads; ++r) value ^= Way::input_of_rest(share, r, at, rest)[i];
      share.to[w][at + i] = value;
    }
  }
}

template <class Way, bool kStreaming>
void Run(const Share& share) noexcept {
  constexpr std::size_t kUnrolled = 4;
  const std::size_t whole = share.bytes / kCopyBlock * kCopyBlock;
  std::size_t at = 0;
  if (share.bytes >= kFetchFrom) {
    for (; at + kAhead < whole; at += kUnrolled * kStep) {
      Fetch<Way, kUnrolled>(share, at);
      Move<Way, kStreaming, kUnrolled>(share, at);
    }
  }
  for (; at + kUnrolled * kStep <= whole; at += kUnrolled * kStep) Move<Way, kStreaming, kUnrolled>(share, at);
  for (; at < whole; at += kStep) Move<Way, kStreaming, 1>(share, at);
  if (at < share.bytes) MoveRest<Way>(share, at);
  if (kStreaming) hwy::FlushStream();
}

template <bool kStreaming>
constexpr Loops loops_of() {
  return {&Run<Apart<1, 1>, kStreaming>, &Run<Apart<2, 1>, kStreaming>, &Run<Apart<2, 2>, kStreaming>,
          &Run<Folded<2>, kStreaming>,   &Run<Folded<4>, kStreaming>,   &Run<Folded<8>, kStreaming>};
}

const BothLoops kLoops{loops_of<false>(), loops_of<true>()};

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace evenorm::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace evenorm::bench {
namespace {

using internal::Target;

// Bytes of output. Two shares of this size take as long on two threads as on one (docs/lab/README.md, "How rivals and
// copies are measured").
constexpr std::size_t kLeastShare = std::size_t{256} << 10U;

const BothLoops& loops_on(Target target) {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case Target::avx3:
      return N_AVX3::kLoops;
#endif
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::kLoops;
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return N_NEON::kLoops;
#endif
    default:
      return N_SCALAR::kLoops;
  }
}

std::size_t count_of(const auto& places) {
  return static_cast<std::size_t>(std::count_if(places.begin(), places.end(), [](auto* place) { return place; }));
}

// Returns null if there is no such loop.
Loop vector_loop(const Loops& loops, const Traffic& traffic) {
  const std::size_t reads = count_of(traffic.from), writes = count_of(traffic.to);
  if (traffic.from[0] == nullptr || traffic.to[0] == nullptr) return nullptr;
  if (traffic.fold == 1) {
    if (writes == 2) return reads == 2 ? loops.two_to_two : nullptr;
    return reads == 2 ? loops.two_to_one : loops.one_to_one;
  }
  if (reads != 1 || writes != 1) return nullptr;
  return traffic.fold == 2   ? loops.folded_2
         : traffic.fold == 4 ? loops.folded_4
         : traffic.fold == 8 ? loops.folded_8
                             : nullptr;
}

void copy_by_memcpy(const Share& share) noexcept { std::memcpy(share.to[0], share.from[0], share.bytes); }

Loop loop_of(CopyKind kind, const Traffic& traffic, Target target) {
  if (kind == CopyKind::memcpy) return copy_by_memcpy;
  const BothLoops& both = loops_on(target);
  return vector_loop(kind == CopyKind::streaming ? both.streaming : both.plain, traffic);
}

template <class Byte>
Byte* moved(Byte* place, std::size_t bytes) {
  return place == nullptr ? nullptr : place + bytes;
}

}  // namespace

std::size_t Traffic::total_bytes() const noexcept { return bytes * (fold * count_of(from) + count_of(to)); }

std::string_view name(CopyKind kind) noexcept {
  switch (kind) {
    case CopyKind::memcpy:
      return "memcpy";
    case CopyKind::streaming:
      return "streaming";
    default:
      return "plain";
  }
}

std::vector<CopyKind> copy_kinds(const Traffic& traffic) {
  const Loops& known = loops_on(Target::portable).plain;
  const Loop loop = vector_loop(known, traffic);
  if (loop == nullptr) return {};
  const auto aligned = [](const std::byte* place) { return reinterpret_cast<std::uintptr_t>(place) % kCopyBlock == 0; };
  std::vector<CopyKind> kinds;
  if (loop == known.one_to_one) kinds.push_back(CopyKind::memcpy);
  if (std::all_of(traffic.to.begin(), traffic.to.end(), aligned)) kinds.push_back(CopyKind::streaming);
  kinds.push_back(CopyKind::plain);
  return kinds;
}

Copy::Copy(CopyKind kind, const Traffic& traffic, const Executor& executor, Target target)
    : loop_(loop_of(kind, traffic, target)), executor_(executor) {
  const std::size_t count =
      std::clamp<std::size_t>(traffic.bytes / kLeastShare, 1, std::max<std::size_t>(executor.threads, 1));
  const std::size_t blocks = (traffic.bytes + kCopyBlock - 1) / kCopyBlock;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = blocks * i / count * kCopyBlock;
    const std::size_t end = std::min(blocks * (i + 1) / count * kCopyBlock, traffic.bytes);
    shares_.push_back({{moved(traffic.from[0], first * traffic.fold), moved(traffic.from[1], first)},
                       {moved(traffic.to[0], first), moved(traffic.to[1], first)},
                       end - first});
  }
}

void Copy::run() const noexcept {
  internal::parallel_for(executor_, shares_.size(), [&](std::size_t i) { loop_(shares_[i]); });
}

}  // namespace evenorm::bench
#endif
