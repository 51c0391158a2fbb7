// Saves and loads a module's parameters as .safetensors files, under PyTorch's names: "weight" and "bias" after a
// prefix, such as "encoder.layer.0.norm.". The files contain no gradients, eps or kind.
#pragma once

#include <string>
#include <string_view>

#include "evenorm/modules.hpp"

namespace evenorm::cli {

// Writes a file with these parameters only. The file is replaced as a whole or not at all. Throws Failure.
void save_module(const NormModule& module, const std::string& path, std::string_view prefix = {});

// Calls NormModule::load() with the file's tensors whose names begin with `prefix`. If it throws Failure, which names
// the file and the key, the module is unchanged.
void load_module(NormModule& module, const std::string& path, std::string_view prefix = {});

}  // namespace evenorm::cli
