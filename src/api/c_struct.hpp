// The rule by which the C API's structures grow: struct_size says how much of one the caller knows.
// Knows nothing of what they hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

// The sizes of a structure in all versions, today's last.
using StructSizes = std::span<const std::size_t>;

// Throws Error unless struct_size is one of them: one between them would end within a field.
inline void check_struct_size(std::string_view argument, std::size_t struct_size, StructSizes sizes) {
  if (std::find(sizes.begin(), sizes.end(), struct_size) != sizes.end()) return;
  std::string known;
  for (const std::size_t size : sizes) known += (known.empty() ? "" : " or ") + std::to_string(size);
  throw Error(std::string(argument) + ".struct_size is " + std::to_string(struct_size) + ", but it should be " + known);
}

// *given over `defaults`, as far as the caller knows it.
template <class T>
T completed(std::string_view argument, const T* given, StructSizes sizes, const T& defaults) {
  if (given == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size(argument, given->struct_size, sizes);
  T result = defaults;
  std::memcpy(&result, given, given->struct_size);
  return result;
}

// Sets the first struct_size bytes of *out to `defaults`, and its struct_size.
template <class T>
void initialise(std::string_view argument, T* out, std::size_t struct_size, StructSizes sizes, T defaults) {
  if (out == nullptr) throw Error(std::string(argument) + " is null");
  check_struct_size(argument, struct_size, sizes);
  defaults.struct_size = struct_size;
  std::memcpy(out, &defaults, struct_size);
}

}  // namespace evenorm::internal
