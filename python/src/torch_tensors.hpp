// Norms of PyTorch's tensors without PyTorch's headers, for versions of PyTorch that this build has no C++ operators
// for (src/torch/). Memory is found by DLPack's C exchange API, which PyTorch has from 2.10 on; threads are PyTorch's.
#pragma once

#include <nanobind/nanobind.h>

namespace evenorm::python {

// Adds to the module, for evenorm/torch/_fallback.py alone:
//
// use_torch(exchange_api, tensor, parameter, empty_like, is_grad_enabled, is_inference, is_neg, modes, forward_ad,
// differentiate, library): called once, before the others.
//   modes: functions without arguments; while one gives a true value, calls are left to PyTorch's dispatcher
//   differentiate: called if a gradient is wanted, with x, residual, weight, bias, (rms, normalized_shape, eps,
//     residual_scale), and (y,) or (y, sum); its result is returned
//   library: libtorch_cpu's path
//
// tensor_layer_norm(x, normalized_shape, weight, bias, eps), tensor_add_layer_norm(x, residual, normalized_shape,
// weight, bias, eps, residual_scale), and the same for rms: y, or (y, sum). They return NotImplemented for what
// src/torch/eager.cpp does not take, either, for x that is not contiguous, and wherever the dispatcher may have
// something to do.
//
// are_plain(dy, dsum): whether these gradients, too, need nothing from the dispatcher.
//
// write_norm(rms, x, residual, normalized_shape, weight, bias, eps, residual_scale, y, sum) and write_backward(rms, dy,
// x, normalized_shape, weight, eps, dsum, dx, dweight, dbias): the operators' kernels, to tensors that exist. True for
// a gradient makes a tensor like x (dx) or weight. write_backward returns (dx, dweight, dbias).
void add_tensor_functions(nanobind::module_& m);

}  // namespace evenorm::python
