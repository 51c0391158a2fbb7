// Rows of every magnitude that a type can hold. The magnitudes of x, dy, gamma, beta and eps of a pass are chosen
// independently. Then the checks of such a pass: bounds, and equal bits alone and together, on every target.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "contracts/backward_accuracy.hpp"
#include "contracts/backward_harness.hpp"
#include "support/fused.hpp"

namespace evenorm::testing {

// From the exponent of the smallest subnormal number to that of the largest number.
struct Exponents {
  int least, largest;
};
Exponents exponents_of(DType dtype);

// About every `step`-th exponent of the type, and the exponents around which a kernel changes its method.
std::vector<int> exponents_by(DType dtype, int step);

// How sweeps choose exponents: the step, the columns of short rows, and an eps near x^2 or a usual one.
int usual_step(DType dtype);
std::size_t usual_cols(std::size_t turn);
double eps_beside(contracts::Random& random, int x, std::span<const double> usual);

// Magnitudes of one row, as exponents of two. dy's magnitude is chosen so that dx's is `result`.
struct RowMagnitude {
  int x = 0, result = 0;
};

// n columns of about 2^exponent, at most the type's largest number. Rows alternately have a small mean, a large mean,
// or an outlier.
contracts::Array row_of_magnitude(DType dtype, std::size_t cols, int exponent, std::uint64_t seed);
// The same with numbers of either sign and without 0, for factors.
contracts::Array factors_of_magnitude(DType dtype, std::size_t cols, int exponent, std::uint64_t seed);

// A backward pass over rows of these magnitudes. In every other row, dy is partly parallel to xhat, so that the terms
// of dx cancel.
struct MagnitudePass {
  contracts::BackwardOperation op;
  std::vector<RowMagnitude> rows;
  int gamma = 0;
  std::uint64_t seed = 1;

  contracts::BackwardInputs inputs() const;
  std::string name() const;
};

// Counts all failures, and reports the first one.
class Findings {
 public:
  ~Findings() { EXPECT_EQ(count_, 0u) << text_ << "(" << count_ << " in " << tried_ << ")"; }
  void expect(bool holds, const std::string& what);

 private:
  std::size_t count_ = 0, tried_ = 0;
  std::string text_;
};

std::string on(internal::Target target);  // " on avx2"

// Checks all promises about the pass's gradients. Alternates precomputed statistics, in-place dx, and dsum.
void try_gradients(const MagnitudePass& pass, Findings& findings);

// A forward pass, fused or not. x, residual, gamma and beta have these exponents.
struct FusedMagnitude {
  FusedOperation op;
  std::vector<int> x;  // one per row
  int gamma = 0, beta = 0;
  int residual = 0;      // relative to x
  bool sharded = false;  // run as one process of a norm over processes
  std::uint64_t seed = 1;

  FusedInputs inputs() const;
  std::string name() const;
};
void try_forward(const FusedMagnitude& pass, Findings& findings);

}  // namespace evenorm::testing
