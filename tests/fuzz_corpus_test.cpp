// Every input under fuzz/corpus/, through the function that its fuzzer calls: what was found once stays mended, in
// builds without sanitizers and with compilers without libFuzzer too.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/targets.hpp"
#include "support/places.hpp"

namespace evenorm {
namespace {

class Fuzz_Corpus : public ::testing::TestWithParam<fuzz::NamedTarget> {};

TEST_P(Fuzz_Corpus, KeepsEveryPromise) {
  const std::filesystem::path directory = testing::in_sources("fuzz/corpus/" + std::string(GetParam().name));
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_NO_THROW(GetParam().run(bytes)) << entry.path();
    ++inputs;
  }
  EXPECT_GE(inputs, 10);
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz_Corpus, ::testing::ValuesIn(fuzz::kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace evenorm
