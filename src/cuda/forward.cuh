// The forward kernel: a team of threads takes a few rows, reads them once if shared memory holds them, and gives the
// bits of docs/numerics.md.
#pragma once

#include "cuda/forms.cuh"
#include "cuda/team.cuh"
#include "rows/scaled_statistics.hpp"

namespace evenorm::internal::cuda {

// What a row's normalise step takes.
template <class A>
struct alignas(16) Scalars {
  A centre, offset, rstd;
  // x is multiplied by it first. 1, but for out-of-range rows; until these are finished it is 0.
  A scale;
};
// And the statistics that are stored.
template <class A>
struct FinishedRow {
  Scalars<A> scalars;
  double mean, rstd;
};

// kKeep: the team holds its row as a whole.
template <class Form, class Team, int kV, bool kKeep>
class ForwardRow {
  using A = typename Form::A;
  using W = Number<A>;
  using By = typename Team::By;
  static constexpr int kWidth = Form::kWidth;

 public:
  // shared: the part's, of kScalarsBytes and what the form takes.
  __device__ ForwardRow(const ForwardArguments& p, char* shared)
      : p_(p),
        team_(blocks_of(p.cols)),
        form_(p, shared + kScalarsBytes),
        scalars_(reinterpret_cast<Scalars<A>*>(shared)),
        factors_(reinterpret_cast<float*>(scalars_ + Team::kRows)) {}
  static constexpr std::size_t kScalarsBytes =
      (Team::kRows * (sizeof(Scalars<A>) + (Form::kQuantises ? sizeof(float) : 0)) + kChunk - 1) / kChunk * kChunk;

  __device__ __forceinline__ void run() {
    finish(moments(1));
    if (p_.y.data == nullptr) return;
    if (Form::kQuantises && p_.y.dtype == DType::i8) {
      const float factor = quantisation_factor(scalars_[row()]);
      if (team_.group.member == 0) factors_[row()] = factor;
    }
    team_.sync();
    bool plain = true;  // no row is scaled
    for (int r = 0; r < part_.rows; ++r) plain = plain && scalars_[r].scale == A{1};
    for_each_step(kWrites, [&] { write(plain); });
  }

 private:
  enum Pass { kReads, kWrites };

  // Calls work() for each part of the row that the team holds at once. A row that it holds as a whole is read once.
  template <class Work>
  __device__ __forceinline__ void for_each_step(Pass pass, const Work& work) {
    if constexpr (kKeep) {
      if (!Form::kHolds || !loaded_) load(0, Form::kHolds || pass == kWrites);
      loaded_ = true;
      work();
    } else {
      for (step_ = 0; step_ < team_.steps(); ++step_) {
        load(step_, pass == kWrites);
        work();
      }
    }
  }
  __device__ __forceinline__ void load(std::size_t step, bool stores_sum) {
    part_ = team_.part(p_, step);
    form_.template load<By>(part_, stores_sum);
  }
  // The group's row in the part, and whether there is one.
  __device__ int row() const { return team_.row(); }
  __device__ bool exists() const { return row() < part_.rows; }
  // The columns of the group's block.
  __device__ int columns() const {
    const int rest = exists() ? part_.cols - team_.col() : 0, most = static_cast<int>(kBlock);
    return rest < most ? rest : most;
  }
  __device__ Count count() const {  // of columns(); a division is slow
    if (!Team::kLong) return p_.count;
    return columns() == static_cast<int>(kBlock) ? Count(kBlock) : Count(columns());
  }
  __device__ Block<Form, kV> block(A scale) const { return {form_, row(), team_.col(), columns(), scale}; }

  // The moments of the row times `scale`, which is 1 in f32 arithmetic.
  __device__ __forceinline__ MomentNode moments(A scale) {
    MomentNode nodes[kKeep ? 1 : kMaxNodes];
    MomentTree<A> tree({nodes, p_.centred});
    for_each_step(kReads, [&] {
      const MomentNode own = columns() > 0 ? block(scale).moments(team_.group, p_.centred, count()) : MomentNode{};
      const MomentNode joined = team_.joined(own, step_, p_.centred);
      if constexpr (kKeep) {
        nodes[0] = joined;
      } else {
        tree.push(joined, team_.blocks_of_step());
      }
    });
    return kKeep ? nodes[0] : tree.finish();
  }

  // From moments, which the threads that finish rows have, to the row's scalars and statistics.
  __device__ __forceinline__ void finish(const MomentNode& node) {
    FinishedRow<A> finished{};  // a scale of 0: the row is out of range
    if (team_.finishes() && exists()) {
      const W mean = W::From(kOne, node.mean_hi, node.mean_lo), m2 = W::From(kOne, node.m2_hi, node.m2_lo);
      const W var = plain::MeanOf(kOne, m2, p_.count);
      if (plain::InSafeRange<A>(kOne, mean.hi * mean.hi + var.hi, p_.eps)) {
        const double rstd = plain::RstdOf(kOne, var, p_.eps);
        finished = finished_from({node.mean_hi, node.mean_lo, rstd, plain::IsNearZero(kOne, mean.hi, var.hi), false},
                                 A{1}, node.mean_hi, rstd);
        if (team_.is_leader()) store_statistics(finished);
      }
      scalars_[row()] = finished.scalars;
    }
    team_.sync();
    const bool own = exists() && scalars_[row()].scale == 0;
    bool out_of_range = own;
    if constexpr (Team::kLong) {  // all threads come along, since they wait for each other
      for (int r = 0; r < part_.rows; ++r) out_of_range = out_of_range || scalars_[r].scale == 0;
      team_.sync();
    }
    if (out_of_range) finish_out_of_range(node, own);
  }
  static __device__ __forceinline__ FinishedRow<A> finished_from(const RowScalars& row, A scale, double mean,
                                                                 double rstd) {
    Scalars<A> scalars{0, 0, 0, scale};
    plain::StoreNormScalars<A>(kOne, row.mean_hi, row.mean_lo, row.rstd, row.near_zero, &scalars.centre,
                               &scalars.offset, &scalars.rstd);
    return {scalars, mean, rstd};
  }
  // Rows that hold a NaN or an infinity, rows of zeros, and rows that are scaled by a power of two. own: the group's
  // row is one of them.
  __device__ __forceinline__ void finish_out_of_range(MomentNode node, bool own) {
    const A largest = largest_magnitude();
    const bool scales = largest != 0 && largest <= std::numeric_limits<A>::max();
    int exponent = 0;
    if constexpr (std::is_same_v<A, double>) {
      const int least = kLeastExponent<A>;
      if (scales) exponent = max(std::ilogb(largest), least);
      if (Team::kLong || scales) node = moments(std::ldexp(1.0, -exponent));
    }
    FinishedRow<A> finished{{kNanOf<A>, kNanOf<A>, kNanOf<A>, A{1}}, kNanOf<double>, kNanOf<double>};
    if (own && team_.finishes()) {
      if (scales) {
        const ScaledRow scaled = finish_scaled<A>(with_exponent(node, exponent, static_cast<double>(largest)), p_.eps);
        finished = finished_from(scaled.scalars, static_cast<A>(std::ldexp(1.0, -scaled.normalise_exponent)),
                                 scaled.mean, scaled.rstd.hi);
      } else if (largest == 0) {
        const WideNumber rstd = rstd_of_constant<A>(p_.eps);
        finished = finished_from({0, 0, rstd.hi, true, false}, A{1}, 0, rstd.hi);
      }
      if (team_.is_leader()) store_statistics(finished);
      scalars_[row()] = finished.scalars;
    }
    if (Team::kLong) team_.sync();
  }
  // The largest magnitude of the row, or infinity if an element is not finite.
  __device__ __forceinline__ A largest_magnitude() {
    A most = 0;
    for_each_step(kReads, [&] { block(1).for_each_element(team_.group, [&](A x) { most = larger(most, x); }); });
    return team_.largest(most);
  }
  static __device__ A larger(A most, A x) {
    const A magnitude = std::fabs(x);
    return magnitude <= std::numeric_limits<A>::max() ? max(most, magnitude) : std::numeric_limits<A>::infinity();
  }

  __device__ __forceinline__ void store_statistics(const FinishedRow<A>& finished) const {
    if (p_.mean.data != nullptr) store_as(finished.mean, p_.mean.at(part_.row + row()), p_.mean.dtype);
    if (p_.rstd.data != nullptr) store_as(finished.rstd, p_.rstd.at(part_.row + row()), p_.rstd.dtype);
  }

  // What the form's transform() calls. A thread may have elements of other groups' rows. kPlain: no row is scaled, and
  // gamma is as it is.
  template <bool kPlain>
  struct Normalise {
    __device__ __forceinline__ void operator()(int row, const A (&x)[kWidth], const A (&gamma)[kWidth],
                                               const A (&beta)[kWidth], A (&y)[kWidth]) const {
      const Scalars<A> s = scalars[row];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const A scaled = kPlain ? x[i] : x[i] * s.scale;
        const A scaling = !kPlain && zero_centered ? gamma[i] + A{1} : gamma[i];
        y[i] = std::fma(std::fma(scaled - s.centre, s.rstd, s.offset), scaling, beta[i]);
      }
    }

    const Scalars<A>* scalars;
    bool zero_centered;
  };
  // plain: no row of the part is scaled.
  __device__ __forceinline__ void write(bool plain) {
    const Normalise<false> normalise{scalars_, p_.zero_centered};
    if constexpr (Form::kQuantises) {
      if (p_.y.dtype == DType::i8) {
        form_.template for_each<By>(normalise, true, [&](int row, std::size_t col, A y) {
          p_.y.data[p_.y.rows.offset(part_.row + row) + p_.y.cols.offset(col)] = quantised(y, factors_[row]);
        });
        return;
      }
    }
    const bool both = p_.gamma.data != nullptr && p_.beta.data != nullptr && !p_.zero_centered;
    if (both && plain) {
      form_.template transform<By, Team::kLong, true>(Normalise<true>{scalars_, false});
    } else {
      form_.template transform<By, Team::kLong, false>(normalise);
    }
  }

  // What y is multiplied by before it is rounded to i8. Stores the row's scale.
  __device__ __forceinline__ float quantisation_factor(const Scalars<A>& scalars) {
    if (p_.given_scale != 0) return 1 / p_.given_scale;
    constexpr float kMost = std::numeric_limits<float>::max(), kLargest = static_cast<float>(kLargestInt8);
    A most = 0;  // infinite if a y is not finite
    for_each_step(kReads, [&] { most = largest_result(scalars, most); });
    const auto largest = static_cast<float>(team_.largest(most));
    if (exists() && team_.is_leader()) {
      store_as(largest <= kMost ? largest / kLargest : kNanOf<float>, p_.scale.at(part_.row + row()), DType::f32);
    }
    return largest <= kMost && largest != 0 ? min(kLargest / largest, kMost) : 0;
  }
  __device__ __forceinline__ A largest_result(const Scalars<A>& s, A most) const {
    const Block<Form, kV> own = block(1);
    for (int c = team_.group.member; c < own.n; c += Group<kV>::kThreads) {
      const std::size_t col = part_.col + own.col + c;
      const A x[1] = {form_.at(own.row, own.col + c)};
      const A gamma = p_.gamma.data != nullptr ? load_as<A>(p_.gamma.at(col), p_.gamma.dtype) : A{1};
      const A beta = p_.beta.data != nullptr ? load_as<A>(p_.beta.at(col), p_.beta.dtype) : A{0};
      const A scaling = p_.zero_centered ? gamma + A{1} : gamma;
      most = larger(most, std::fma(std::fma(x[0] * s.scale - s.centre, s.rstd, s.offset), scaling, beta));
    }
    return most;
  }
  static __device__ __forceinline__ char quantised(A y, float factor) {
    const A limit = static_cast<A>(kLargestInt8), product = factor == 0 ? A{0} : y * static_cast<A>(factor);
    const A limited = product != product ? A{0} : min(max(product, -limit), limit);
    return static_cast<char>(std::is_same_v<A, double> ? __double2int_rn(limited)
                                                       : __float2int_rn(static_cast<float>(limited)));
  }

  const ForwardArguments& p_;
  Team team_;
  Form form_;
  Scalars<A>* scalars_;  // of the part's rows
  float* factors_;
  Part part_{};
  std::size_t step_ = 0;
  bool loaded_ = false;
};

// of_warp: the bytes of shared memory of each warp, if warps have parts of their own.
template <class Form, class Team, int kV, bool kKeep>
__global__ void __launch_bounds__(Team::kMostWarps* kWarp)
    forward_rows(const __grid_constant__ ForwardArguments p, unsigned of_warp) {
  extern __shared__ __align__(16) char memory[];
  ForwardRow<Form, Team, kV, kKeep>(p, memory + (Team::kLong ? 0 : threadIdx.x / kWarp * of_warp)).run();
}

}  // namespace evenorm::internal::cuda
