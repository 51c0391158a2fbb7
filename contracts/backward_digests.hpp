// The contract of equal bits for gradients: one digest per case, the same for every target, number of threads, layout,
// in place or not, statistics given or found anew, whatever else is asked for, and any floating-point mode of the
// caller.
#pragma once

#include "contracts/backward_harness.hpp"
#include "contracts/digests.hpp"

namespace evenorm::contracts {

// All gradients are asked for.
struct GradientCase {
  BackwardOperation op;
  std::size_t rows;

  std::string name() const;  // e.g. "130 x layer f32 weight=f32 769, dx=f32 dgamma=f64 dbeta=f64"
};

// Kinds, types and their mixtures; one column to long rows, and one row block to many.
std::vector<GradientCase> gradient_cases();

// Rows of several natures by turns, statistics left out; what is accumulated to is there.
BackwardInputs make_gradient_inputs(const GradientCase& c);

// Of the gradients asked for: over the digests of dx, dgamma and dbeta.
std::uint64_t gradients_digest(const BackwardOutcome& outcome);

// As run_digest_case and run_digests are for the forward pass.
DigestRow run_gradient_case(const GradientCase& c, const std::vector<internal::Target>& targets);
DigestTable run_gradient_digests(const DigestOptions& options);

}  // namespace evenorm::contracts
