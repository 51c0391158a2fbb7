// Rows of every magnitude that a type can hold, for passes of which the magnitudes of x, dy, gamma, beta and eps are
// chosen, each by itself; and what such a pass is asked: bounds, equal bits alone and together, on every target.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "contracts/backward_accuracy.hpp"
#include "contracts/backward_harness.hpp"
#include "support/fused.hpp"

namespace evenorm::testing {

// From the exponent of the smallest subnormal number to that of the largest.
struct Exponents {
  int least, largest;
};
Exponents exponents_of(DType dtype);

// About every `step`th exponent that the type has, and those beside which something changes in a kernel.
std::vector<int> exponents_by(DType dtype, int step);

// How the sweeps go through them: the step, the columns of short rows, and an eps beside x^2 or one of the usual ones.
int usual_step(DType dtype);
std::size_t usual_cols(std::size_t turn);
double eps_beside(contracts::Random& random, int x, std::span<const double> usual);

// Magnitudes of one row, as exponents of two. That of dy is chosen for dx to be of `result`.
struct RowMagnitude {
  int x = 0, result = 0;
};

// n columns of about 2^exponent, at most the type's largest number: about 0, far from it, or with an outlier, by turns.
contracts::Array row_of_magnitude(DType dtype, std::size_t cols, int exponent, std::uint64_t seed);
// The same where all are of either sign, none of them 0: factors.
contracts::Array factors_of_magnitude(DType dtype, std::size_t cols, int exponent, std::uint64_t seed);

// A backward pass over rows of such magnitudes. dy: of two rows one has a share that lies along xhat, so that the terms
// of dx cancel.
struct MagnitudePass {
  contracts::BackwardOperation op;
  std::vector<RowMagnitude> rows;
  int gamma = 0;
  std::uint64_t seed = 1;

  contracts::BackwardInputs inputs() const;
  std::string name() const;
};

// What went wrong: all of it is counted, the first of it is told.
class Findings {
 public:
  ~Findings() { EXPECT_EQ(count_, 0u) << text_ << "(" << count_ << " in " << tried_ << ")"; }
  void expect(bool holds, const std::string& what);

 private:
  std::size_t count_ = 0, tried_ = 0;
  std::string text_;
};

std::string on(internal::Target target);  // " on avx2"

// All that is promised of the pass's gradients; with statistics given, in place and with dsum by turns.
void try_gradients(const MagnitudePass& pass, Findings& findings);

// A forward pass, fused or not. x, residual, gamma, beta and their second ones: of those exponents.
struct FusedMagnitude {
  FusedOperation op;
  std::vector<int> x;  // of each row
  int gamma = 0, beta = 0, gamma2 = 0, beta2 = 0;
  int residual = 0;      // above x
  bool sharded = false;  // run as one process of a norm over processes
  std::uint64_t seed = 1;

  FusedInputs inputs() const;
  std::string name() const;
};
void try_forward(const FusedMagnitude& pass, Findings& findings);

}  // namespace evenorm::testing
