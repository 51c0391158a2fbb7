#include "plan/caches.hpp"

#include <unistd.h>

#include <algorithm>

#include "plan/tuning.hpp"

namespace evenorm::internal {
namespace {

Caches find_caches() {
  Caches found;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  const long second = sysconf(_SC_LEVEL2_CACHE_SIZE), last = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or less: unknown
  if (second > 0) found.second = static_cast<std::size_t>(second);
  if (last > 0) found.last = static_cast<std::size_t>(last);
#endif
  return found;
}

}  // namespace

const Caches& caches() noexcept {
  static const Caches found = find_caches();
  return found;
}

std::size_t streamed_from(const Caches& caches) noexcept { return std::min(caches.last / kLastToStream, kStreamBytes); }

std::size_t prefetched_from(const Caches& caches) noexcept {
  return std::min(caches.second * kSecondToPrefetch, kPrefetchBytes);
}

}  // namespace evenorm::internal
