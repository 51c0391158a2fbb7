// What the fuzzers of the forward and the backward pass choose alike, and what they ask of any result.
#pragma once

#include <optional>

#include "contracts/scattered.hpp"
#include "fuzz/support.hpp"
#include "reference/reference.hpp"

namespace evenorm::fuzz {

contracts::Shape choose_shape(Choices& choices);
double choose_eps(Choices& choices);

// An adversarial row, some elements of which may be others.
contracts::Array choose_row(Choices& choices, DType dtype, std::size_t cols);
// Powers of two that tensors are multiplied by, as shares of their types' exponents, from -1 to 1; mostly 0.
struct Magnitudes {
  double x = 0, dy = 0, gamma = 0, beta = 0;
  bool by_turns = false;  // every other row by the inverse
};
Magnitudes choose_magnitudes(Choices& choices);
// Rows of `cols`. What is finite stays so.
void scale_rows(contracts::Array& rows, std::size_t cols, double share, bool by_turns);
inline void scale(contracts::Array& parameter, double share) { scale_rows(parameter, parameter.size(), share, false); }

contracts::Array choose_parameter(Choices& choices, std::optional<DType> dtype, std::size_t cols, bool weight);

// A parameter's tensor holds what its memory can where elements meet: that is what counts.
contracts::Scattered place_parameter(contracts::Array& values, const contracts::Shape& shape,
                                     const contracts::Choose& choose);

// Of the tensor's shape, some of whose axes are normalised: places_of_rows() is its order. Where elements may meet,
// `rows` becomes what its memory can hold.
contracts::Scattered place_rows(contracts::Array& rows, const contracts::Shape& shape,
                                const std::vector<std::size_t>& order, const contracts::Choose& choose,
                                contracts::Scattered::Elements elements);

std::vector<std::byte> bytes_of(const contracts::Array& array);
bool all_finite(const contracts::Array& array, std::size_t first, std::size_t count);
// A NaN is the canonical one.
bool is_canonical(const contracts::Array& array, std::size_t i, bool must_be_nan);
bool is_canonical(double value, bool must_be_nan);

}  // namespace evenorm::fuzz
