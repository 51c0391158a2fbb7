// Bytes as text of 64 characters (RFC 4648). Knows nothing of what they mean.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace evenorm::cli {

std::string base64(std::span<const std::byte> bytes);

}  // namespace evenorm::cli
