// The contents of the module evenorm._core. Only the Python files in evenorm/ use it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "norms.hpp"
#include "torch_tensors.hpp"
#include "view.hpp"
#include "work.hpp"

NB_MODULE(_core, m) {
  using namespace evenorm::python;
  nb::set_leak_warnings(false);
  import_numpy();
  m.attr("__doc__") = "The library behind evenorm's NumPy functions; call those.";
  add_forward(m);
  add_backward(m);
  add_sharded_steps(m);
  add_tensor_functions(m);
  m.def("set_num_threads", &set_threads);
  m.def("get_num_threads", &threads);
  m.def("targets", &evenorm::supported_targets);
  m.def("target", &evenorm::target);
  m.def("version", &evenorm::version);
  m.def("numerics_revision", &evenorm::numerics_revision);
}
