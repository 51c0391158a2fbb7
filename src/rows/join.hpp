// The fixed trees that join blocks to a row, and row blocks to sums over rows.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "plan/scratch_plan.hpp"
#include "rows/plain.hpp"

namespace evenorm::internal {

// The sum of kCount lanes, of which distant ones are joined first.
template <std::size_t kCount>
double join_lanes(const double (&lanes)[kCount]) {
  double halves[kCount / 2];
  for (std::size_t l = 0; l < kCount / 2; ++l) halves[l] = lanes[l] + lanes[l + kCount / 2];
  if constexpr (kCount == 2) return halves[0];
  if constexpr (kCount > 2) return join_lanes(halves);
}

// Joins parts of equal size, pushed from left to right, in a binary tree whose left subtrees are all full; the last
// part may be smaller. A pushed part may be a subtree of `weight` = 2^k parts that begins at a multiple of 2^k. Rule
// provides the type Part, join(left, right), and load() and store() of waiting nodes, one for each level.
template <class Rule>
class JoinTree {
 public:
  using Part = typename Rule::Part;

  JoinTree() = default;
  EVENORM_BOTH explicit JoinTree(const Rule& rule) : rule_(rule) {}

  EVENORM_BOTH std::size_t depth() const { return depth_; }  // the nodes in use

  EVENORM_BOTH void push(Part part, std::size_t weight = 1) {
    parts_ += weight;
    add(part, parts_ / weight);
  }

  EVENORM_BOTH Part finish() {
    parts_ = 0;
    return collapse(0);
  }

 protected:
  // The last of `count` parts.
  EVENORM_BOTH void add(Part part, std::size_t count) {
    for (; count % 2 == 0; count /= 2) part = rule_.join(rule_.load(--depth_), part);
    rule_.store(part, depth_++);
  }
  // Joins all nodes behind the first ones.
  EVENORM_BOTH Part collapse(std::size_t first) {
    Part joined = rule_.load(--depth_);
    while (depth_ != first && depth_ <= kMaxNodes) joined = rule_.join(rule_.load(--depth_), joined);
    return joined;
  }

 private:
  Rule rule_{};
  std::size_t parts_ = 0;
  std::size_t depth_ = 0;
};

// Joins a row's blocks, pushed from left to right, by one tree for each run, and the runs by another. A run's nodes
// come behind those of the runs before it.
template <class Rule>
class RowTree : JoinTree<Rule> {
 public:
  using Part = typename Rule::Part;

  RowTree() = default;
  // rule: with nodes_for(row) nodes.
  RowTree(const Rule& rule, const Partition& row) : JoinTree<Rule>(rule), blocks_(row.blocks_of_run()) {}

  void push(const Part& block) {
    this->add(block, ++pushed_);
    if (pushed_ != blocks_) return;
    const Part run = this->collapse(runs_waiting_);
    pushed_ = 0;
    this->add(run, ++runs_);
    runs_waiting_ = this->depth();
  }
  Part finish() {
    runs_ = runs_waiting_ = 0;
    return this->collapse(0);
  }

 private:
  std::size_t blocks_ = 1, pushed_ = 0, runs_ = 0;  // the blocks of a run; those that are pushed; so many runs are
  std::size_t runs_waiting_ = 0;                    // the nodes in use for runs
};

// The sum of squares about the joint mean, by the formula of Chan, Golub and LeVeque: from those about the means of
// both sides, which are `delta` apart. between: the columns of one side times the other side's part of all.
EVENORM_BOTH inline double joined_squares(double a, double b, double delta, double between) {
  return (a + b) + delta * delta * between;
}
// a's columns are left of b's. Without a mean, it adds sums of squares (RMS norm).
template <class A>
EVENORM_BOTH MomentNode join_moments(bool centred, const MomentNode& a, const MomentNode& b) {
  const double count = a.count + b.count;
  if (!centred) return {count, 0, 0, a.m2 + b.m2};
  constexpr bool kHasLow = std::is_same_v<A, double>;
  const double weight = b.count / count, high = b.mean - a.mean;
  const double delta = kHasLow ? high + (b.mean_lo - a.mean_lo) : high, step = delta * weight;
  const double m2 = joined_squares(a.m2, b.m2, delta, a.count * weight);
  if constexpr (kHasLow) {
    const auto mean = plain::TwoSum(a.mean, step);
    const auto joined = plain::FastTwoSum(mean.hi, mean.lo + a.mean_lo);
    return {count, joined.hi, joined.lo, m2};
  }
  return {count, a.mean + step, 0, m2};
}

template <class A>
struct JoinMoments {
  using Part = MomentNode;

  EVENORM_BOTH Part join(const Part& left, const Part& right) const { return join_moments<A>(centred, left, right); }
  EVENORM_BOTH const Part& load(std::size_t node) const { return nodes[node]; }
  EVENORM_BOTH void store(const Part& part, std::size_t node) const { nodes[node] = part; }

  MomentNode* nodes = nullptr;
  bool centred = true;
};
template <class A>
using MomentTree = JoinTree<JoinMoments<A>>;
template <class A>
using MomentRowTree = RowTree<JoinMoments<A>>;

// Joins the sums of a row's blocks in the same tree as their moments.
struct JoinGradientSums {
  using Part = GradientNode;

  EVENORM_BOTH static Part join(const Part& left, const Part& right) { return {left.g + right.g, left.gd + right.gd}; }
  EVENORM_BOTH const Part& load(std::size_t node) const { return nodes[node]; }
  EVENORM_BOTH void store(const Part& part, std::size_t node) const { nodes[node] = part; }

  GradientNode* nodes = nullptr;
};
using GradientTree = JoinTree<JoinGradientSums>;

// A row's sum of g (x - mean). rest: what the centre leaves of the mean. RMS norm needs no sum of g, which may not be
// finite.
inline double sum_about_mean(bool centred, const GradientNode& sums, double rest) {
  return plain::SumAboutMean(plain::kOne, centred ? sums.g : 0, sums.gd, rest);
}
// c1 and c2 of a row of so many columns.
inline plain::GradientMeans<double> means_of(bool centred, const GradientNode& sums, double rest, double rstd,
                                             std::size_t cols) {
  const plain::SumsOfRows<double> about{sums.g, sum_about_mean(centred, sums, rest)};
  return plain::GradientMeansOf(plain::kOne, centred, about, rstd, static_cast<double>(cols));
}

// The moments of some columns of a line (plan/lines.hpp), in f32 arithmetic.
struct LineMoments {
  double mean, m2;
};
// weight: what part of all columns `b` has. between: that times a's columns.
inline LineMoments joined(const LineMoments& a, const LineMoments& b, double weight, double between) {
  const double delta = b.mean - a.mean;
  return {a.mean + delta * weight, joined_squares(a.m2, b.m2, delta, between)};
}
inline GradientNode joined(const GradientNode& a, const GradientNode& b, double, double) {
  return JoinGradientSums::join(a, b);
}

// Joins the numbers of the same columns of `lines` lines, or those of the lines of a row. What waits is in `nodes`,
// `lines` numbers for each level of the tree, and in `parts`.
template <class Node>
struct JoinLines {
  struct Part {
    Node* numbers;
    double count;  // of columns
  };

  // The left part, which waits, takes the right one up.
  Part join(const Part& left, const Part& right) const {
    const double count = left.count + right.count;
    const double weight = left.count == right.count ? 0.5 : right.count / count, between = left.count * weight;
    for (std::size_t i = 0; i < lines; ++i) {
      left.numbers[i] = joined(left.numbers[i], right.numbers[i], weight, between);
    }
    return {left.numbers, count};
  }
  const Part& load(std::size_t level) const { return parts[level]; }
  void store(const Part& part, std::size_t level) const {
    Node* const place = nodes + level * lines;
    if (part.numbers != place) std::copy_n(part.numbers, lines, place);
    parts[level] = {place, part.count};
  }

  std::size_t lines;
  Node* nodes;
  Part* parts;
};
}  // namespace evenorm::internal
