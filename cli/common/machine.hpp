// Facts about this machine, from /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evenorm::cli {

std::string processor_name();  // "AMD EPYC 9654 96-Core Processor"; empty if unknown

// The bytes that a process can allocate: those that the system has available, at most the limit of its control group.
std::optional<std::uint64_t> available_memory();

// Throws Failure if `what`, the subject of the message, takes more. Checked before anything is allocated: a system may
// promise memory that it lacks, and kill programs later.
void expect_memory(const std::string& what, std::uint64_t bytes);

}  // namespace evenorm::cli
