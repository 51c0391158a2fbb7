// Runs the examples that check their own results, as users run them.
#include <gtest/gtest.h>

#include <span>
#include <utility>

#include "cli/files/module_files.hpp"
#include "cli/files/npy.hpp"
#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm::testing {
namespace {

ProgramRun train_module(const std::string& weight, const std::string& bias, const std::string& output) {
  const std::string data = "examples/minilm/";
  return run_evenorm({in_sources(data + "hidden.npy"), in_sources(data + weight), in_sources(data + bias),
                      in_sources(data + "expected.npy"), output},
                     {.program = example("train_module")});
}

TEST(Examples_TrainModule, FindsAModelsParameters) {
  const TemporaryFolder folder;
  const ProgramRun run = train_module("weight.npy", "bias.npy", folder / "m");
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_NE(run.out.find("found the model's gamma and beta to 1e-06"), std::string::npos) << run.out;

  LayerNorm module(384);
  cli::load_module(module, folder / "m");
  for (const auto& [name, found] : std::as_const(module).parameters()) {
    const cli::Array expected = cli::read_npy(in_sources("examples/minilm/" + name + ".npy"));
    const std::span values(static_cast<const float*>(found.data), 384);
    for (std::size_t i = 0; i < 384; ++i) EXPECT_NEAR(values[i], expected.as<float>()[i], 1e-6) << name << ' ' << i;
  }
}

TEST(Examples_TrainModule, RejectsOtherParameters) {
  const TemporaryFolder folder;
  const ProgramRun run = train_module("bias.npy", "weight.npy", folder / "m");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("NOT FOUND"), std::string::npos);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace evenorm::testing
