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
  using nanobind::literals::operator""_a;
  nb::set_leak_warnings(false);
  import_numpy();
  m.attr("__doc__") = "The library behind evenorm's NumPy functions; call those.";
  m.def("norm", &norm, "rms"_a, any("x"), any("normalized_shape"), any("weight"), any("bias"), any("eps"), any("axis"),
        any("zero_centered"), any("out"), any("return_stats"));
  m.def("add_norm", &add_norm, "rms"_a, any("x"), any("residual"), any("normalized_shape"), any("weight"), any("bias"),
        any("eps"), any("axis"), any("residual_scale"), any("zero_centered"), any("out"));
  m.def("norm_pair", &norm_pair, "rms"_a, any("x"), any("normalized_shape"), any("weight"), any("bias"), any("weight2"),
        any("bias2"), any("eps"), any("axis"), any("zero_centered"), any("out"));
  m.def("norm_int8", &norm_int8, "rms"_a, any("x"), any("normalized_shape"), any("weight"), any("bias"), any("eps"),
        any("axis"), any("scale"), any("zero_centered"), any("out"));
  m.def("norm_backward", &norm_backward, "rms"_a, any("dy"), any("x"), any("normalized_shape"), any("weight"),
        any("eps"), any("axis"), any("mean"), any("rstd"), any("dsum"), any("zero_centered"), any("accumulate"),
        any("param_dtype"), any("out"));
  m.def("check_norm", &check_norm, "rms"_a, any("x"), any("normalized_shape"), any("weight"), any("bias"), any("eps"),
        any("axis"), any("zero_centered"), any("dtype"));
  m.def("sharded_moments", &sharded_moments, "rms"_a, any("x"), "columns"_a, "rank"_a, any("wide"), any("eps"));
  m.def("sharded_norm", &sharded_norm, "rms"_a, any("x"), any("messages"), "columns"_a, "rank"_a, any("wide"),
        any("weight"), any("bias"), any("eps"), any("out"));
  m.def("sharded_sums", &sharded_sums, "rms"_a, any("dy"), any("x"), any("moments"), "columns"_a, "rank"_a, any("wide"),
        any("weight"), any("eps"), any("out"));
  m.def("sharded_backward", &sharded_backward, "rms"_a, any("dy"), any("x"), any("moments"), any("messages"),
        "columns"_a, "rank"_a, any("wide"), any("weight"), any("eps"), any("out"));
  add_tensor_functions(m);
  m.def("set_num_threads", &set_threads);
  m.def("get_num_threads", &threads);
  m.def("targets", &evenorm::supported_targets);
  m.def("target", &evenorm::target);
  m.def("version", &evenorm::version);
  m.def("numerics_revision", &evenorm::numerics_revision);
}
