// Whether the tests are built with a sanitizer, which needs more time, memory and address space.
#pragma once

namespace evenorm::testing {

#if defined(__has_feature)  // clang
#define EVENORM_HAS_FEATURE(name) __has_feature(name)
#else
#define EVENORM_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || EVENORM_HAS_FEATURE(address_sanitizer) || \
    EVENORM_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr int kSanitizersCost = kSanitized ? 15 : 1;  // largest factor in time, on a busy machine

}  // namespace evenorm::testing
