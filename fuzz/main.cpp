// libFuzzer's entry point for the fuzz target that EVENORM_FUZZ_TARGET names.
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    evenorm::fuzz::EVENORM_FUZZ_TARGET({data, size});
  } catch (const std::exception& finding) {
    std::fprintf(stderr, "FINDING: %s\n", finding.what());
    std::abort();
  }
  return 0;
}
