// Measures how much stack a call uses.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>

namespace evenorm::testing {

// Runs the call on a thread with a known stack, and finds the deepest byte written.
inline std::size_t stack_used_by(const std::function<void()>& call) {
  constexpr std::size_t kStack = std::size_t{1} << 18;
  const auto stack = std::make_unique<std::byte[]>(kStack);
  std::fill_n(stack.get(), kStack, std::byte{0xA5});
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstack(&attributes, stack.get(), kStack), 0);
  pthread_t thread{};
  const auto start = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, start, const_cast<std::function<void()>*>(&call)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  std::size_t untouched = 0;
  while (untouched < kStack && stack[untouched] == std::byte{0xA5}) ++untouched;
  return kStack - untouched;
}

}  // namespace evenorm::testing
