// Completes the non-temporal stores of kernels, which the hardware does not order with other stores.
#pragma once

#include <atomic>

namespace evenorm::internal {

// Makes all earlier stores visible to other threads.
inline void flush_stream() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace evenorm::internal
