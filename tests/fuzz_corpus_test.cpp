// Runs the fuzz targets in every build, also without libFuzzer. Every input in fuzz/corpus/ runs, so that fixed bugs
// stay fixed. Targets that take any bytes as choices also run on random bytes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "contracts/inputs.hpp"
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

class Fuzz_Random : public ::testing::TestWithParam<fuzz::NamedTarget> {
 protected:
  static void run_from(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      contracts::Random random(seed);
      std::vector<std::uint8_t> bytes(16 + random.below(240));
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
      EXPECT_NO_THROW(GetParam().run(bytes)) << "seed " << seed;
    }
  }
};

TEST_P(Fuzz_Random, KeepsEveryPromise) { run_from(0, 300); }

TEST_P(Fuzz_Random, KeepsEveryPromise_Slow) { run_from(1000, 5000); }

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz_Random, ::testing::ValuesIn(std::span(fuzz::kTargets).subspan(3)),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace evenorm
