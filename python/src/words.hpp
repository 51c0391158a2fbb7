// Errors about wrong arguments: TypeError for types, ValueError for the rest.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "evenorm/evenorm.hpp"

namespace evenorm::python {

[[noreturn]] inline void fail_type(const std::string& what) { throw nanobind::type_error(what.c_str()); }
[[noreturn]] inline void fail_value(const std::string& what) { throw nanobind::value_error(what.c_str()); }

// "None", or "of type str".
inline std::string kind_of(nanobind::handle object) {
  return object.is_none() ? "None" : "of type " + nanobind::cast<std::string>(object.type().attr("__name__"));
}

inline std::string_view numpy_name(DType dtype) {
  constexpr std::string_view kNames[] = {"float64", "float32", "bfloat16", "float16", "int8"};
  return kNames[static_cast<std::size_t>(dtype)];
}

[[noreturn]] inline void fail_kind(const char* name, nanobind::handle object) {
  fail_type(std::string(name) + " is " + kind_of(object) +
            ", but it should be an array (of NumPy, or with DLPack or the buffer protocol) or a sequence of numbers");
}

[[noreturn]] inline void fail_dtype(const char* name, const std::string& dtype) {
  fail_type(std::string(name) + " has dtype " + dtype + ", but it should have float64, float32, float16 or bfloat16");
}

}  // namespace evenorm::python
