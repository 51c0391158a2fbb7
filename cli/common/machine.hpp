// What is known of the machine that this runs on. Reads /proc and /sys, and does without what is not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evenorm::cli {

std::string processor_name();  // "AMD EPYC 9654 96-Core Processor"; empty where it is not told

// Bytes that a process can take without pushing others out: what the system has left, or all that its group is allowed.
std::optional<std::uint64_t> available_memory();

}  // namespace evenorm::cli
