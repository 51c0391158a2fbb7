// The operations of evenorm._core. Their callers, evenorm/_norms.py and _fused.py, document the arguments.
#pragma once

#include <nanobind/nanobind.h>

namespace evenorm::python {

// Add the operations of forward.cpp, backward.cpp and sharded.cpp to the module.
void add_forward(nanobind::module_& m);
void add_backward(nanobind::module_& m);
void add_sharded_steps(nanobind::module_& m);

}  // namespace evenorm::python
