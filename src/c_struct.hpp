// The rule by which the C API's structures grow: struct_size says how much of one the caller knows.
// Knows nothing of what they hold.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// Throws Error unless struct_size is one that this version knows: today's, or first_size, T's in the version that
// introduced it. One between them would end within a field.
template <class T>
void check_struct_size(std::string_view argument, std::size_t struct_size, std::size_t first_size) {
  if (struct_size == first_size || struct_size == sizeof(T)) return;
  throw Error(std::string(argument) + ".struct_size is " + std::to_string(struct_size) + ", but it should be " +
              (first_size == sizeof(T) ? "" : std::to_string(first_size) + " or ") + std::to_string(sizeof(T)));
}

// *given over `defaults`, as far as the caller knows it.
template <class T>
T completed(std::string_view argument, const T* given, std::size_t first_size, const T& defaults) {
  if (given == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size<T>(argument, given->struct_size, first_size);
  T result = defaults;
  std::memcpy(&result, given, given->struct_size);
  return result;
}

// Sets the first struct_size bytes of *out to `defaults`, and its struct_size.
template <class T>
void initialise(std::string_view argument, T* out, std::size_t struct_size, std::size_t first_size, T defaults) {
  if (out == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size<T>(argument, struct_size, first_size);
  defaults.struct_size = struct_size;
  std::memcpy(out, &defaults, struct_size);
}

}  // namespace evenorm::internal
