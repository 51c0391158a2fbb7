// Text from elsewhere, made fit for an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace evenorm::internal {

// `text` as one line of UTF-8. Control characters, line separators and bytes that are no character become '?'; what
// exceeds `limit` bytes becomes "...". Every error message passes foreign text through it: environment variables, other
// processes' words, names of tensors and files.
std::string printable(std::string_view text, std::size_t limit = 4096);

}  // namespace evenorm::internal
