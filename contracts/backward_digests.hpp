// The contract of equal bits for gradients. Each case has one digest, whatever the target, number of threads, layout,
// gradients asked for and caller's floating-point mode, in place or not, with given or computed statistics.
#pragma once

#include "contracts/backward_harness.hpp"
#include "contracts/digests.hpp"

namespace evenorm::contracts {

// A case asks for all gradients.
struct GradientCase {
  BackwardOperation op;
  std::size_t rows;

  std::string name() const;  // e.g. "130 x layer f32 weight=f32 769, dx=f32 dgamma=f64 dbeta=f64"
};

// Kinds, types and their mixtures, from one column to long rows and from one row block to many.
std::vector<GradientCase> gradient_cases();

// Rows of several kinds of input alternately, without statistics. Tensors to accumulate into are filled.
BackwardInputs make_gradient_inputs(const GradientCase& c);

// The digest over the digests of dx, dgamma and dbeta, of those that were asked for.
std::uint64_t gradients_digest(const BackwardOutcome& outcome);

// The counterparts of run_digest_case and run_digests.
DigestRow run_gradient_case(const GradientCase& c, const std::vector<internal::Target>& targets);
DigestTable run_gradient_digests(const DigestOptions& options);

}  // namespace evenorm::contracts
