// The forward kernel: a team of threads takes a few rows, reads them once if shared memory holds them, and gives the
// bits of docs/numerics.md.
#pragma once

#include "cuda/forms.cuh"
#include "cuda/rare_rows.cuh"
#include "cuda/team.cuh"

namespace evenorm::internal::cuda {

// What a row's normalise step takes, read at once. rare: it takes the RareRow instead.
struct alignas(16) Scalars {
  NormScalars<float> norm;
  int rare;
};

// kKeep: the team holds its row as a whole.
template <class Form, class Team, int kV, bool kKeep>
class ForwardRow {
  using By = typename Team::By;
  static constexpr int kWidth = Form::kWidth;

 public:
  // shared: the part's, of kScalarsBytes and what the form takes.
  __device__ ForwardRow(const ForwardArguments& p, char* shared)
      : p_(p),
        team_(blocks_of(p.cols)),
        form_(p, shared + kScalarsBytes),
        scalars_(reinterpret_cast<Scalars*>(shared)),
        rare_(reinterpret_cast<RareRow*>(scalars_ + Team::kRows)),
        factors_(reinterpret_cast<float*>(rare_ + Team::kRows)) {}
  static constexpr std::size_t kScalarsBytes =
      (Team::kRows * (sizeof(Scalars) + sizeof(RareRow) + (Form::kQuantises ? sizeof(float) : 0)) + kChunk - 1) /
      kChunk * kChunk;

  __device__ __forceinline__ void run() {
    finish(moments());
    if (p_.y.data == nullptr) return;
    if constexpr (Form::kQuantises) {
      if (p_.y.dtype == DType::i8) {
        const float factor = quantisation_factor();
        if (team_.group.member == 0) factors_[row()] = factor;
      }
    }
    team_.sync();
    bool rare = false;  // a row of the part is
    for (int r = 0; r < part_.rows; ++r) rare = rare || scalars_[r].rare != 0;
    for_each_step(kWrites, [&] { write(rare); });
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

  __device__ __forceinline__ MomentNode moments() {
    MomentNode nodes[kKeep ? 1 : kMaxNodes];
    MomentTree<float> tree({nodes, p_.centred});
    for_each_step(kReads, [&] {
      const Block<Form, kV> block{form_, row(), team_.col(), columns()};
      const MomentNode own = block.n > 0 ? block.moments(team_.group, p_.centred, count()) : MomentNode{};
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
    if (team_.finishes() && exists()) {
      FinishedRow finished = cuda::finished(moments_of(node), p_.count, p_.eps);
      auto& [mean, rstd] = finished.statistics;
      Scalars scalars{norm_scalars(finished.statistics, finished.near_zero), 0};
      if (!finished.finite) {
        mean = rstd = kNanOf<double>;
        scalars.norm = {kNanOf<float>, kNanOf<float>, kNanOf<float>};
      } else if (!finished.in_range) {
        scalars.rare = 1;
        rare_[row()] = rare_row(finished.statistics, finished.near_zero);
      }
      scalars_[row()] = scalars;
      if (team_.is_leader()) {
        if (p_.mean.data != nullptr) store_as(mean, p_.mean.at(part_.row + row()), p_.mean.dtype);
        if (p_.rstd.data != nullptr) store_as(rstd, p_.rstd.at(part_.row + row()), p_.rstd.dtype);
      }
    }
    team_.sync();
  }

  // What the form's transform() calls. A thread may have elements of other groups' rows. kPlain: no row is rare, and
  // gamma is as it is.
  template <bool kPlain>
  struct Normalise {
    __device__ __forceinline__ void operator()(int row, const float (&x)[kWidth], const float (&gamma)[kWidth],
                                               const float (&beta)[kWidth], float (&y)[kWidth]) const {
      const Scalars s = scalars[row];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float scaling = !kPlain && zero_centered ? gamma[i] + 1.0F : gamma[i];
        y[i] = std::fma(std::fma(x[i] - s.norm.centre, s.norm.rstd, s.norm.offset), scaling, beta[i]);
        if (!kPlain && s.rare != 0) y[i] = rare_y(rare[row], x[i], scaling, beta[i], to);
      }
    }

    const Scalars* scalars;
    const RareRow* rare;
    bool zero_centered;
    DType to;
  };
  __device__ Normalise<false> normalise() const { return {scalars_, rare_, p_.zero_centered, p_.y.dtype}; }
  // rare: a row of the part is.
  __device__ __forceinline__ void write(bool rare) {
    if constexpr (Form::kQuantises) {
      if (p_.y.dtype == DType::i8) {
        form_.template for_each<By>([&](int row, int col) {
          *form_.place(p_.y, row, col) = quantised(form_.y_at(normalise(), row, col), factors_[row]);
        });
        return;
      }
    }
    const bool both = p_.gamma.data != nullptr && p_.beta.data != nullptr && !p_.zero_centered;
    if (both && !rare) {
      form_.template transform<By, Team::kLong, true>(Normalise<true>{scalars_, nullptr, false, p_.y.dtype});
    } else {
      form_.template transform<By, Team::kLong, false>(normalise());
    }
  }

  // What y is multiplied by before it is rounded to i8. Stores the row's scale.
  __device__ __forceinline__ float quantisation_factor() {
    if (p_.given_scale != 0) return 1 / p_.given_scale;
    constexpr float kMost = std::numeric_limits<float>::max(), kLargest = static_cast<float>(kLargestInt8);
    float most = 0;  // infinite if a y is not finite
    for_each_step(kReads, [&] {
      for (int c = team_.group.member; c < columns(); c += Group<kV>::kThreads) {
        const float magnitude = std::fabs(form_.y_at(normalise(), row(), team_.col() + c));
        most = magnitude <= kMost ? max(most, magnitude) : std::numeric_limits<float>::infinity();
      }
    });
    const float largest = team_.largest(most);
    if (exists() && team_.is_leader()) {
      store_as(largest <= kMost ? largest / kLargest : kNanOf<float>, p_.scale.at(part_.row + row()), DType::f32);
    }
    return largest <= kMost && largest != 0 ? min(kLargest / largest, kMost) : 0;
  }
  static __device__ __forceinline__ char quantised(float y, float factor) {
    const float limit = static_cast<float>(kLargestInt8), product = factor == 0 ? 0.0F : y * factor;
    const float limited = product != product ? 0.0F : min(max(product, -limit), limit);
    return static_cast<char>(__float2int_rn(limited));
  }

  const ForwardArguments& p_;
  Team team_;
  Form form_;
  Scalars* scalars_;  // of the part's rows
  RareRow* rare_;     // likewise; written where the scalars say so
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
