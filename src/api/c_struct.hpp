// Handles struct_size, which tells which of a structure's fields the caller of the C API knows: all of them, so far.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// Throws Error unless struct_size is that of T.
template <class T>
void check_struct_size(std::string_view argument, std::size_t struct_size) {
  if (struct_size == sizeof(T)) return;
  throw Error(std::string(argument) + ".struct_size is " + std::to_string(struct_size) + ", but it should be " +
              std::to_string(sizeof(T)));
}

template <class T>
const T& checked(std::string_view argument, const T* given) {
  if (given == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size<T>(argument, given->struct_size);
  return *given;
}

template <class T>
void initialise(std::string_view argument, T* out, std::size_t struct_size, const T& defaults) {
  if (out == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size<T>(argument, struct_size);
  *out = defaults;
  out->struct_size = struct_size;
}

}  // namespace evenorm::internal
