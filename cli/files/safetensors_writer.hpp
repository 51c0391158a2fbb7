// Tensors to .safetensors files, byte for byte as the format's own library writes them: larger types first, then by
// name, so that every element is aligned. Knows nothing of norms. The reader: safetensors.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/files/files.hpp"
#include "evenorm/modules.hpp"

namespace evenorm::cli {

// Tensors should be C-contiguous; their names should be UTF-8, distinct and not "__metadata__". Throws Failure.
void write_safetensors(Outputs& outputs, std::size_t output, std::vector<NamedConstTensor> tensors);

}  // namespace evenorm::cli
