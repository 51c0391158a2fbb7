// Writes .safetensors files, byte for byte as the format's own library does: larger types first, then by name, so that
// every element is aligned.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/files/files.hpp"
#include "evenorm/modules.hpp"

namespace evenorm::cli {

// Tensors must be C-contiguous. Their names must be UTF-8, distinct and not "__metadata__". Throws Failure.
void write_safetensors(Outputs& outputs, std::size_t output, std::vector<NamedConstTensor> tensors);

}  // namespace evenorm::cli
