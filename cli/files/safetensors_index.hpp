// Reads the index of a model whose tensors are in several .safetensors files: model.safetensors.index.json.
#pragma once

#include <string>
#include <string_view>

namespace evenorm::cli {

// Names up to three of the files that an index refers to: "'a', 'b', 'c' and others". Empty if the text is no index.
std::string shards_of_index(std::string_view text);

}  // namespace evenorm::cli
