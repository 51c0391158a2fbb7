// Facts about this machine, from /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evenorm::cli {

std::string processor_name();  // "AMD EPYC 9654 96-Core Processor"; empty if unknown

// The bytes that a process can allocate: those that the system has available, at most the limit of its control group.
std::optional<std::uint64_t> available_memory();

}  // namespace evenorm::cli
