// A module's parameters in .safetensors files, by PyTorch's names: "weight" and "bias" after a prefix, as
// "encoder.layer.0.norm." in the file of a whole model. Gradients, eps and kind are in no such file.
#pragma once

#include <string>
#include <string_view>

#include "evenorm/modules.hpp"

namespace evenorm::cli {

// Writes them alone. The file is replaced whole or not at all. Throws Failure.
void save_module(const NormModule& module, const std::string& path, std::string_view prefix = {});

// As NormModule::load() with the file's tensors: those whose names do not begin with `prefix` do not matter. Throws
// Failure, which names the file and the key; the module is as it was then.
void load_module(NormModule& module, const std::string& path, std::string_view prefix = {});

}  // namespace evenorm::cli
