// The examples that check themselves, run as their users run them.
#include <gtest/gtest.h>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

using testing::in_sources;
using testing::ProgramRun;
using testing::run_evenorm;

ProgramRun train_module(const std::string& weight, const std::string& bias) {
  const std::string data = "examples/minilm/";
  return run_evenorm({in_sources(data + "hidden.npy"), in_sources(data + weight), in_sources(data + bias),
                      in_sources(data + "expected.npy")},
                     {.program = testing::example("train_module")});
}

TEST(Examples_TrainModule, FindsAModelsParameters) {
  const ProgramRun run = train_module("weight.npy", "bias.npy");
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_NE(run.out.find("found the model's gamma and beta to 1e-06"), std::string::npos) << run.out;
}

TEST(Examples_TrainModule, DoesNotFindOthers) {
  const ProgramRun run = train_module("bias.npy", "weight.npy");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("NOT FOUND"), std::string::npos);
}

}  // namespace
}  // namespace evenorm
