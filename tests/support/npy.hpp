// Writes and reads the simplest .npy files, without the command line's code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "contracts/inputs.hpp"

namespace evenorm::testing {

// Any type (bf16 as '<V2'), in C order, format 1.0.
void write_npy(const std::filesystem::path& file, const contracts::Array& values,
               const std::vector<std::int64_t>& shape);

// The elements, with the header's type. Throws std::runtime_error.
contracts::Array read_npy(const std::filesystem::path& file);

// The elements of an f64 array. Throws std::runtime_error for other types.
std::vector<double> doubles_of(const contracts::Array& values);

}  // namespace evenorm::testing
