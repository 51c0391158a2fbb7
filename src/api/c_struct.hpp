// Handles struct_size, which tells how many of a structure's fields the caller of the C API knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// The sizes of a structure in all versions, the current one last.
using StructSizes = std::span<const std::size_t>;

// Throws Error unless struct_size is one of `sizes`. Any other size could end within a field.
inline void check_struct_size(std::string_view argument, std::size_t struct_size, StructSizes sizes) {
  if (std::find(sizes.begin(), sizes.end(), struct_size) != sizes.end()) return;
  std::string known;
  for (const std::size_t size : sizes) known += (known.empty() ? "" : " or ") + std::to_string(size);
  throw Error(std::string(argument) + ".struct_size is " + std::to_string(struct_size) + ", but it should be " + known);
}

// Returns *given. Fields that the caller does not know have their defaults.
template <class T>
T completed(std::string_view argument, const T* given, StructSizes sizes, const T& defaults) {
  if (given == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size(argument, given->struct_size, sizes);
  T result = defaults;
  std::memcpy(&result, given, given->struct_size);
  return result;
}

// Sets the first struct_size bytes of *out to the defaults, and out->struct_size.
template <class T>
void initialise(std::string_view argument, T* out, std::size_t struct_size, StructSizes sizes, T defaults) {
  if (out == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size(argument, struct_size, sizes);
  defaults.struct_size = struct_size;
  std::memcpy(out, &defaults, struct_size);
}

}  // namespace evenorm::internal
