// Rows whose channels lie side by side in memory, with those of their neighbours: groups of channels-last images.
#pragma once

#include <cstddef>

#include "plan/spec.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// A row has `channels` of `positions` columns each. Channels are one element apart. `groups` rows, of which each is
// `step` rows after the last, form a sample: the channels of one follow those of the last. groups is 0 if rows lie
// otherwise.
struct ChannelsLast {
  bool operator==(const ChannelsLast&) const = default;

  // The row with this number if rows are counted sample by sample.
  std::size_t row(std::size_t number) const {
    const std::size_t sample = number / groups;
    return (sample / step * groups + number % groups) * step + sample % step;
  }
  // The block that begins first in a channel or after it.
  std::size_t first_block(std::size_t channel) const { return blocks_of(channel * positions); }

  std::size_t groups = 0, step = 1;
  std::size_t channels = 1, positions = 0;
  std::size_t unit = 1;  // the least rows of a sample that fill whole cache lines of each position
};
ChannelsLast channels_last(const Problem& p) noexcept;
ChannelsLast channels_last(const GradientProblem& p) noexcept;

}  // namespace evenorm::internal
