// The program `evenorm`: only wires; what it does is in run.cpp.
#include <algorithm>
#include <string>
#include <vector>

#include "commands.hpp"
#include "descriptors.hpp"
#include "temporaries.hpp"

int main(int argc, char** argv) {
  evenorm::cli::keep_standard_streams();
  evenorm::cli::set_up_signals();
  return evenorm::cli::run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}
