// Implements pieces.hpp.
#include "contracts/pieces.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "plan/gradient_plan.hpp"
#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "run/schedule.hpp"

namespace evenorm::contracts {
namespace {

using internal::GradientProblem;

constexpr std::byte kUntouched{0x5A};

void run_forward_in_pieces(internal::Target target, const Forward& forward, std::size_t piece, std::size_t part) {
  const internal::Problem p = internal::validate(forward);
  internal::validate_buffers(p);
  const bool stream = piece % 3 == 0 && p.x.data != p.y.data, fetch = piece % 2 == 0;
  const internal::ForwardPlan plan = internal::make_plan(p, {stream, false, fetch});
  const internal::Kernels& kernels = internal::kernels_of(target);
  const internal::Partition whole = internal::partition(p);
  const std::size_t unit = whole.runs() == 1 ? internal::kBlock : whole.run;  // columns
  const std::size_t units = (p.cols + unit - 1) / unit, parts = (units + part - 1) / part;
  piece = (piece + plan.unit - 1) / plan.unit * plan.unit;  // as threads take rows
  for (std::size_t row = 0; row < p.rows; row += piece) {
    if (units == 1 || piece != 1) {
      internal::run_forward(kernels, p, plan, row, std::min(piece, p.rows - row));
      continue;
    }
    const auto first_of = [&](std::size_t i) { return i * part * unit; };
    const auto part_of = [&](std::size_t i) {
      const std::size_t n = std::min(part * unit, p.cols - first_of(i));
      return internal::Partition{n, std::min(whole.run, n)};
    };
    std::vector<internal::MomentNode> moments(parts);
    for (std::size_t i = parts; i-- > 0;) {
      moments[i] = internal::part_moments(kernels, p, row, first_of(i), part_of(i));
    }
    const internal::RowScalars scalars = internal::finish_row(p, row, moments.data(), parts);
    if (scalars.out_of_range) {
      internal::run_forward(kernels, p, plan, row, 1);
      continue;
    }
    for (std::size_t i = parts; i-- > 0;) {
      internal::normalise_part(kernels, p, plan, row, scalars, first_of(i), part_of(i));
    }
  }
}

// Calls work(first, count) for pieces of `most` of all units, in reverse order.
template <class Work>
void cut(std::size_t units, std::size_t most, const Work& work) {
  for (std::size_t first = (units - 1) / most * most;; first -= most) {
    work(first, std::min(most, units - first));
    if (first == 0) return;
  }
}

void run_backward_in_pieces(internal::Target target, const Backward& backward, std::size_t amount) {
  // Caches of no bytes: x and dy are prefetched, dx is streamed.
  const internal::Caches caches{amount % 2 == 0 ? 0 : internal::kPrefetchBytes,
                                amount % 3 == 0 ? 0 : internal::kStreamBytes * internal::kLastToStream};
  internal::GradientPass pass(internal::validate(backward), caches);
  GradientProblem& p = pass.problem;
  const internal::GradientPlan& plan = pass.plan;
  internal::validate_buffers(p);
  const internal::Kernels& kernels = internal::kernels_of(target);
  const std::size_t piece = 1 + amount % 8, blocks = internal::row_blocks(p);
  if (p.dgamma.data == nullptr && p.dbeta.data == nullptr) {
    return cut(p.rows, piece, [&](std::size_t first, std::size_t count) {
      internal::run_backward(kernels, p, plan, first, count, nullptr);
    });
  }
  if (blocks == 1 && amount % 5 != 0) {
    std::vector<internal::GradientScalars> scalars(p.rows);
    cut(p.rows, piece, [&](std::size_t first, std::size_t count) {
      internal::find_row_scalars(kernels, p, plan, first, count, scalars.data());
    });
    p.scalars = scalars.data();
    return cut(p.cols, internal::kBlock * (1 + amount % 3),
               [&](std::size_t first, std::size_t count) { internal::run_columns(kernels, p, plan, first, count); });
  }
  const std::size_t run = std::size_t{1} << amount % 4;
  const std::size_t slot = internal::sums_bytes(p.cols, plan.chain_length) / sizeof(double);
  std::vector<double> slots(blocks * slot);
  cut(blocks, run, [&](std::size_t first, std::size_t count) {
    internal::run_row_blocks(kernels, p, plan, first, count, slots.data() + first * slot);
  });
  internal::finish_row_blocks(kernels, p, 0, slots.data(), (blocks + run - 1) / run, run * slot);
}

struct Planned {
  void operator()(const Forward& forward, const Executor& executor) const {
    Forward planned = forward;
    for (Tensor* tensor : {&planned.y, &planned.mean, &planned.rstd, &planned.sum, &planned.scale}) move(*tensor);
    for (ConstTensor* tensor : {&planned.weight, &planned.bias, &planned.residual}) move(*tensor);
    planned.x.data = nullptr;
    const Plan plan = Plan(planned);
    const Buffers buffers{forward.x.data,        forward.y.data,    forward.weight.data,
                          forward.bias.data,     forward.mean.data, forward.rstd.data,
                          forward.residual.data, forward.sum.data,  forward.scale.data};
    plan.run(buffers, executor);
  }
  void operator()(const Backward& backward, const Executor& executor) const {
    Backward planned = backward;
    for (ConstTensor* tensor : {&planned.weight, &planned.mean, &planned.rstd, &planned.dsum}) move(*tensor);
    for (Tensor* tensor : {&planned.dx, &planned.dweight, &planned.dbias}) move(*tensor);
    planned.x.data = planned.dy.data = nullptr;
    const BackwardPlan plan = BackwardPlan(planned);
    std::vector<std::byte> scratch(scratch_bytes(backward) + 1);
    if (plan.scratch_bytes() + 1 != scratch.size()) throw std::logic_error("a plan needs other scratch than the pass");
    const Backward& b = backward;
    plan.run({b.x.data, b.dy.data, b.weight.data, b.mean.data, b.rstd.data, b.dx.data, b.dweight.data, b.dbias.data,
              b.dsum.data},
             std::span(scratch).subspan(1), executor);
  }

 private:
  template <class View>
  static void move(View& tensor) {
    static std::byte elsewhere[64];
    if (tensor.data != nullptr) tensor.data = elsewhere;
  }
};

}  // namespace

Runner in_pieces(internal::Target target, std::size_t amount) {
  struct Pieces {
    internal::Target target;
    std::size_t amount;
    void operator()(const Forward& forward, const Executor&) const {
      run_forward_in_pieces(target, forward, 1 + amount % 8, std::size_t{1} << amount % 3);
    }
    void operator()(const Backward& backward, const Executor&) const {
      run_backward_in_pieces(target, backward, amount);
    }
  };
  return Pieces{target, amount};
}

Runner in_scratch(internal::Target target, std::size_t amount) {
  struct Exact {
    internal::Target target;
    std::size_t before;
    void operator()(const Forward& forward, const Executor& executor) const {
      internal::run_on(target, forward, executor);
    }
    void operator()(const Backward& backward, const Executor& executor) const {
      const internal::GradientPass pass(internal::validate(backward));
      const std::size_t bytes = pass.plan.scratch_bytes, after = before % 2 == 0 ? 0 : 64;
      std::vector<std::byte> memory(before + bytes + after, kUntouched);
      const std::span scratch = std::span(memory).subspan(before, bytes);
      internal::validate_buffers(pass.problem, scratch);
      internal::run(pass, internal::kernels_of(target), scratch.data(), executor);
      const auto untouched = [](std::byte b) { return b == kUntouched; };
      if (!std::ranges::all_of(std::span(memory).first(before), untouched) ||
          !std::ranges::all_of(std::span(memory).last(after), untouched)) {
        throw std::logic_error("memory beside the scratch was written");
      }
    }
  };
  return Exact{target, amount};
}

Runner through_plan() { return Planned(); }

}  // namespace evenorm::contracts
