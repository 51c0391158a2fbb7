// Makes foreign text safe to print in an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace evenorm::internal {

// Returns `text` as one line of valid UTF-8. Control characters, line separators and invalid bytes become '?'. What
// exceeds `limit` bytes becomes "...". Error messages use it for environment variables, messages of other processes,
// and names of tensors and files.
std::string printable(std::string_view text, std::size_t limit = 4096);

}  // namespace evenorm::internal
