#include "plan/caches.hpp"

#include <unistd.h>

#include <algorithm>

#include "plan/tuning.hpp"

namespace evenorm::internal {
namespace {

Caches find_caches() {
  Caches found;
#if defined(_SC_LEVEL1_DCACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  const auto ask = [](int name, std::size_t& size) {
    const long bytes = sysconf(name);  // 0 or less: unknown
    if (bytes > 0) size = static_cast<std::size_t>(bytes);
  };
  ask(_SC_LEVEL1_DCACHE_SIZE, found.first);
  ask(_SC_LEVEL2_CACHE_SIZE, found.second);
  ask(_SC_LEVEL3_CACHE_SIZE, found.last);
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
