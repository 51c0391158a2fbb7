// evenorm._core: the module's contents.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "evenorm/evenorm.hpp"

NB_MODULE(_core, m) {
  nanobind::set_leak_warnings(false);
  m.def("targets", &evenorm::supported_targets);
  m.def("target", &evenorm::target);
  m.def("version", &evenorm::version);
  m.def("numerics_revision", &evenorm::numerics_revision);
}
