#include "plan/caches.hpp"

#include <unistd.h>

#include <algorithm>

#include "plan/tuning.hpp"

namespace evenorm::internal {
namespace {

// sysconf() returns 0 or less if a size is unknown.
[[maybe_unused]] std::size_t known_or(long bytes, std::size_t otherwise) {
  return bytes > 0 ? static_cast<std::size_t>(bytes) : otherwise;
}

Caches find_caches() {
  Caches found;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  found.second = known_or(sysconf(_SC_LEVEL2_CACHE_SIZE), found.second);
  found.last = known_or(sysconf(_SC_LEVEL3_CACHE_SIZE), found.last);
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
