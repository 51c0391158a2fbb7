// The entry point of the program `evenorm`; see run.cpp.
#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/common/stack.hpp"
#include "cli/files/descriptors.hpp"
#include "cli/files/temporaries.hpp"

int main(int argc, char** argv) {
  evenorm::cli::keep_standard_streams();
  evenorm::cli::set_up_signals();
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return evenorm::cli::with_enough_stack([&] { return evenorm::cli::run(arguments); });
}
