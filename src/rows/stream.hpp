// The end of what kernels stored past the caches: the machine keeps such stores in no order of its own.
#pragma once

#include <atomic>

namespace evenorm::internal {

// What was stored is there for others.
inline void flush_stream() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace evenorm::internal
