// The operations of evenorm._core. Their callers, evenorm/_norms.py and _fused.py, document the arguments.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace evenorm::python {

namespace nb = nanobind;

nb::any norm(bool rms, nb::handle x, nb::handle normalized_shape, nb::handle weight, nb::handle bias, nb::handle eps,
             nb::handle axis, nb::handle zero_centered, nb::handle out, nb::handle return_stats);
nb::any add_norm(bool rms, nb::handle x, nb::handle residual, nb::handle normalized_shape, nb::handle weight,
                 nb::handle bias, nb::handle eps, nb::handle axis, nb::handle residual_scale, nb::handle zero_centered,
                 nb::handle out);
nb::any norm_pair(bool rms, nb::handle x, nb::handle normalized_shape, nb::handle weight, nb::handle bias,
                  nb::handle weight2, nb::handle bias2, nb::handle eps, nb::handle axis, nb::handle zero_centered,
                  nb::handle out);
nb::any norm_int8(bool rms, nb::handle x, nb::handle normalized_shape, nb::handle weight, nb::handle bias,
                  nb::handle eps, nb::handle axis, nb::handle scale, nb::handle zero_centered, nb::handle out);
nb::any norm_backward(bool rms, nb::handle dy, nb::handle x, nb::handle normalized_shape, nb::handle weight,
                      nb::handle eps, nb::handle axis, nb::handle mean, nb::handle rstd, nb::handle dsum,
                      nb::handle zero_centered, nb::handle accumulate, nb::handle param_dtype, nb::handle out);

// Checks the arguments of a forward pass that runs later. x, weight and bias have the types and shapes of its tensors;
// their elements are not read, and they have the shape of the normalised axes. dtype is y's type. Returns the
// normalised axes, as negative numbers, and eps.
nb::any check_norm(bool rms, nb::handle x, nb::handle normalized_shape, nb::handle weight, nb::handle bias,
                   nb::handle eps, nb::handle axis, nb::handle zero_centered, nb::handle dtype);

// The steps of a norm over processes. x has two axes: all rows, this process's columns. `columns` has the number of
// columns of each process.
using Columns = std::vector<std::int64_t>;
nb::any sharded_moments(bool rms, nb::handle x, const Columns& columns, std::size_t rank, nb::handle wide,
                        nb::handle eps);
nb::any sharded_norm(bool rms, nb::handle x, nb::handle messages, const Columns& columns, std::size_t rank,
                     nb::handle wide, nb::handle weight, nb::handle bias, nb::handle eps, nb::handle out);
nb::any sharded_sums(bool rms, nb::handle dy, nb::handle x, nb::handle moments, const Columns& columns,
                     std::size_t rank, nb::handle wide, nb::handle weight, nb::handle eps, nb::handle out);
void sharded_backward(bool rms, nb::handle dy, nb::handle x, nb::handle moments, nb::handle messages,
                      const Columns& columns, std::size_t rank, nb::handle wide, nb::handle weight, nb::handle eps,
                      nb::handle out);

}  // namespace evenorm::python
