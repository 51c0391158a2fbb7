// The simplest .npy files, written and read without the command line's own code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "contracts/inputs.hpp"

namespace evenorm::testing {

// Any type (bf16 as '<V2'), C order, format 1.0.
void write_npy(const std::filesystem::path& file, const contracts::Array& values,
               const std::vector<std::int64_t>& shape);

// The elements, of the type that the header names. Throws std::runtime_error.
contracts::Array read_npy(const std::filesystem::path& file);

// The elements of an f64 array. Throws std::runtime_error for another type.
std::vector<double> doubles_of(const contracts::Array& values);

}  // namespace evenorm::testing
