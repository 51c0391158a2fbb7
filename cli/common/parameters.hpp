// Reads a norm's weight and bias from .npy files, or by name from a .safetensors file.
#pragma once

#include <optional>
#include <string>

#include "cli/common/layout.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/safetensors.hpp"

namespace evenorm::cli {

// Values as on the command line; empty if not given.
struct ParameterPaths {
  std::string weight, bias;  // .npy
  std::string params, name;  // .safetensors, and the name of a norm in it
};

// The constructor opens the files; read() reads the elements. So arguments can be checked before anything large is
// read. Both throw Failure. If the name is missing or wrong, the message lists norms of the file.
class Parameters {
 public:
  explicit Parameters(const ParameterPaths& paths);
  void expect_apart(const Outputs& outputs) const;  // throws Failure if an output is one of the files
  void read();

  // Either may be absent. Before read(), the elements are not set.
  const Array& weight() const noexcept { return weight_.array; }
  const Array& bias() const noexcept { return bias_.array; }
  const std::string& name() const noexcept { return name_; }  // of the norm in the .safetensors file

 private:
  struct Parameter {
    std::optional<NpyFile> npy;
    const SafetensorsEntry* entry = nullptr;
    Array array;
  };

  void open(Parameter& parameter, const std::string& path);
  void find(const ParameterPaths& paths);
  void read(Parameter& parameter);

  std::optional<SafetensorsFile> model_;
  std::string name_;
  Parameter weight_, bias_;
};

// How to choose the normalised axes: from --axes, --normalized-shape, --groups and the parameters.
AxesChoice axes_choice(const std::string& axes, const std::string& normalized_shape, const std::string& groups,
                       const Array& weight, const Array& bias);

// The shape in which a parameter is given to the norm; empty if it is absent. Without groups it is the parameter's own.
// With groups the parameter has one element for each channel, or a shape that broadcasts to x, and has all axes of x
// in_groups(). Throws Failure.
Shape parameter_shape(const char* name, const Array& parameter, const std::string& x, const Shape& x_shape,
                      std::int64_t groups);

}  // namespace evenorm::cli
