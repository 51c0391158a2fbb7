#include "cli/common/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

// Returns the text after the colon on the first line that begins with `name`; empty if there is no such line.
std::string field_of(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return {};
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  const auto number = parse_integer(text.substr(0, text.find_first_not_of("0123456789")));
  if (!number) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

std::string processor_name() { return printable(field_of("/proc/cpuinfo", "model name"), 100); }

std::optional<std::uint64_t> available_memory() {
  std::optional<std::uint64_t> left = leading_number(field_of("/proc/meminfo", "MemAvailable"));
  if (left) *left *= 1024;
  std::ifstream group("/sys/fs/cgroup/memory.max");
  std::string limit;
  std::getline(group, limit);
  const auto most = leading_number(limit);  // empty for "max"
  return left && most ? std::min(*left, *most) : left ? left : most;
}

void expect_memory(const std::string& what, std::uint64_t bytes) {
  const std::optional<std::uint64_t> available = available_memory();
  if (!available || bytes <= *available) return;
  throw Failure(fmt::format("{} takes {} bytes of memory, but {} are available", what, with_commas(bytes),
                            with_commas(*available)));
}

}  // namespace evenorm::cli
