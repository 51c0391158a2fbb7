// Choices that the fuzzers of both passes share, and checks of any result.
#pragma once

#include <optional>

#include "contracts/scattered.hpp"
#include "fuzz/support.hpp"
#include "reference/reference.hpp"

namespace evenorm::fuzz {

contracts::Shape choose_shape(Choices& choices);
double choose_eps(Choices& choices);

// An adversarial row, with some elements replaced.
contracts::Array choose_row(Choices& choices, DType dtype, std::size_t cols);
// Powers of two that multiply the tensors, as shares of their types' largest exponents, from -1 to 1. Mostly 0.
struct Magnitudes {
  double x = 0, dy = 0, gamma = 0, beta = 0;
  bool by_turns = false;  // scales every other row by the inverse
};
Magnitudes choose_magnitudes(Choices& choices);
// Scales rows of `cols` elements. Finite values stay finite.
void scale_rows(contracts::Array& rows, std::size_t cols, double share, bool by_turns);
inline void scale(contracts::Array& parameter, double share) { scale_rows(parameter, parameter.size(), share, false); }

contracts::Array choose_parameter(Choices& choices, std::optional<DType> dtype, std::size_t cols, bool weight);

// Places a parameter in a tensor. If elements share memory, `values` becomes what the memory holds.
contracts::Scattered place_parameter(contracts::Array& values, const contracts::Shape& shape,
                                     const contracts::Choose& choose);

// Places rows in a tensor of this shape; `order` is from places_of_rows(). If elements may share memory, `rows` becomes
// what the memory holds.
contracts::Scattered place_rows(contracts::Array& rows, const contracts::Shape& shape,
                                const std::vector<std::size_t>& order, const contracts::Choose& choose,
                                contracts::Scattered::Elements elements);

std::vector<std::byte> bytes_of(const contracts::Array& array);
bool all_finite(const contracts::Array& array, std::size_t first, std::size_t count);
// True if the value is the canonical NaN or no NaN at all, and a NaN if it must be one.
bool is_canonical(const contracts::Array& array, std::size_t i, bool must_be_nan);
bool is_canonical(double value, bool must_be_nan);

}  // namespace evenorm::fuzz
