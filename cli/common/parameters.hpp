// weight and bias of a norm: from .npy files of their own, or by name from a .safetensors file of a whole model.
#pragma once

#include <optional>
#include <string>

#include "cli/common/layout.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/safetensors.hpp"

namespace evenorm::cli {

// As on the command line: empty where not given.
struct ParameterPaths {
  std::string weight, bias;  // .npy
  std::string params, name;  // .safetensors, and which of its norms
};

// In two steps, so that arguments can be checked before anything large is read. Both throw Failure; where a name is
// missing it tells near ones, where one is needed those that there are.
class Parameters {
 public:
  explicit Parameters(const ParameterPaths& paths);  // opens the files
  void expect_apart(const Outputs& outputs) const;   // throws Failure where an output is one of the files
  void read();

  // Each may be absent; before read() they hold nothing yet.
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

// Which axes are normalised, from what --axes and --normalized-shape were given and the parameters.
AxesChoice axes_choice(const std::string& axes, const std::string& normalized_shape, const Array& weight,
                       const Array& bias);

}  // namespace evenorm::cli
