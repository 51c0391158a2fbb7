// How a forward kernel reaches its tensors: TypedForm for dense rows of one type, AnyForm for all types and layouts.
#pragma once

#include "cuda/forward_kernels.hpp"
#include "cuda/staged.cuh"
#include "plan/spec.hpp"

namespace evenorm::internal::cuda {

// What a warp or, of long rows, a thread block has of x at a time: `rows` rows from `row` on, of which it has `cols`
// columns from `col` on.
struct Part {
  std::size_t row, col;
  int rows, cols;
};

// x, residual, sum and y are dense rows of X along one axis; gamma and beta, if present, are dense and of type P. The
// part of x is in shared memory. kVectors: all rows begin at multiples of 16 bytes, and have a multiple of kWidth
// columns.
template <class X, class P, bool kVectors>
class TypedForm {
 public:
  static constexpr bool kHolds = true;  // x is read once
  static constexpr bool kQuantises = false;
  static constexpr int kUnroll = 4;
  static constexpr int kWidth = kVectors ? static_cast<int>(kChunk / sizeof(X)) : 1;  // columns of a vector
  // The shared memory of so many elements.
  static constexpr std::size_t shared_bytes(std::size_t elements) { return elements * sizeof(X) + kChunk; }

  __device__ TypedForm(const ForwardArguments& p, char* shared) : p_(p), shared_(shared) {}

  // Reads a part, or the sums of x and the residual, which are stored if there is a place for them.
  template <class By>
  __device__ void load(const Part& part, bool stores_sum) {
    part_ = part;
    By::sync();
    const X* x = place<const X>(p_.x, 0);
    image_ = reinterpret_cast<X*>(shared_ + (kVectors ? 0 : reinterpret_cast<std::uintptr_t>(x) % kChunk));
    for_each_run(p_.x, [&](int row, int count) {
      copy_to_shared<By>(image_ + row * part_.cols, place<const X>(p_.x, row), count);
    });
    __pipeline_commit();
    __pipeline_wait_prior(0);
    By::sync();
    if (p_.residual.data != nullptr) add_residual<By>(stores_sum);
  }
  // Element `col` of row `row` of the part.
  __device__ float at(int row, int col) const { return widened(image_[row * part_.cols + col]); }
  template <int kN>
  __device__ void get(int row, int col, float (&x)[kN]) const {
    if constexpr (kVectors && kN * sizeof(X) >= 4) {
      Packed<X, kN> packed;
      packed.load(image_ + row * part_.cols + col);
#pragma unroll
      for (int i = 0; i < kN; ++i) x[i] = packed.at(i);
    } else {
#pragma unroll
      for (int i = 0; i < kN; ++i) x[i] = at(row, col + i);
    }
  }

  // y = make(row, x, gamma, beta) for all elements of the part; gamma is 1 and beta 0 where they are absent. kLong: the
  // part has some columns of few rows. kBoth: gamma and beta are present.
  template <class By, bool kLong, bool kBoth, class Make>
  __device__ __forceinline__ void transform(const Make& make) {
    const int elements = part_.rows * part_.cols, own = By::own() * kWidth, step = By::count() * kWidth;
    const bool in_place = !kVectors && have_same_phase(place<X>(p_.y, 0), image_);
    if constexpr (kLong) {
#pragma unroll 2
      for (int col = own; col < part_.cols; col += step) {
        float gamma[kWidth], beta[kWidth];
        load_parameters<kBoth>(col, gamma, beta);
        for (int row = 0; row < part_.rows; ++row) {
          transform_vector(make, row, col, gamma, beta, place<X>(p_.y, row) + col, in_place);
        }
      }
    } else {
      const std::uint64_t inverse = inverse_of(part_.cols);
      const bool contiguous = are_contiguous(p_.y);
      X* const y_of_part = place<X>(p_.y, 0);
#pragma unroll 2
      for (int i = own; i < elements; i += step) {
        const int row = static_cast<int>(static_cast<std::uint64_t>(i) * inverse >> 32U), col = i - row * part_.cols;
        float gamma[kWidth], beta[kWidth];
        load_parameters<kBoth>(col, gamma, beta);
        X* const to = contiguous ? y_of_part + i : place<X>(p_.y, row) + col;
        transform_vector(make, row, col, gamma, beta, to, in_place);
      }
    }
    if (!in_place) return;
    By::sync();
    for_each_run(
        p_.y, [&](int row, int count) { copy_from_shared<By>(place<X>(p_.y, row), image_ + row * part_.cols, count); });
  }

 private:
  // ceil(2^32 / n): its product with i < 2^16 is 2^32 (i / n) and less than 2^32 more, for n of at most 2^15.
  static __device__ std::uint64_t inverse_of(int n) {
    return (0xFFFFFFFFU / static_cast<unsigned>(n)) + std::uint64_t{1};
  }

  template <class T, class Byte>
  __device__ T* place(const DeviceMatrix<Byte>& m, int row) const {
    return reinterpret_cast<T*>(m.template row<true>(part_.row + row)) + part_.col;
  }
  template <bool kBoth>
  __device__ __forceinline__ void load_parameters(int col, float (&gamma)[kWidth], float (&beta)[kWidth]) const {
    parameter<kBoth>(p_.gamma, part_.col + col, 1.0F, gamma);
    parameter<kBoth>(p_.beta, part_.col + col, 0.0F, beta);
  }
  template <class Make>
  __device__ __forceinline__ void transform_vector(const Make& make, int row, int col, const float (&gamma)[kWidth],
                                                   const float (&beta)[kWidth], X* to, bool in_place) {
    float x[kWidth], y[kWidth];
    get(row, col, x);
    make(row, x, gamma, beta, y);
    if constexpr (kVectors) {
      Packed<X, kWidth> packed;
      packed.set(y);
      packed.store(to);
    } else {
      *(in_place ? image_ + row * part_.cols + col : to) = rounded<X>(y[0]);
    }
  }
  template <class Byte>
  __device__ bool are_contiguous(const DeviceMatrix<Byte>& m) const {
    return part_.rows == 1 || (static_cast<std::size_t>(part_.cols) == p_.cols &&
                               m.rows.stride[0] == static_cast<std::ptrdiff_t>(p_.cols * sizeof(X)));
  }
  // Calls work(row, count) for all elements at once if rows follow one another, else row by row.
  template <class Byte, class Work>
  __device__ void for_each_run(const DeviceMatrix<Byte>& m, const Work& work) const {
    if (are_contiguous(m)) return work(0, part_.rows * part_.cols);
    for (int row = 0; row < part_.rows; ++row) work(row, part_.cols);
  }
  template <class By>
  __device__ void add_residual(bool stores_sum) {
    const int elements = part_.rows * part_.cols;
    const auto scale = static_cast<float>(p_.residual_scale);
    for (int i = By::own(); i < elements; i += By::count()) {
      const int row = i / part_.cols, col = i % part_.cols;
      const float residual = widened(place<const X>(p_.residual, row)[col]);
      const X sum = rounded<X>(std::fma(scale, residual, widened(image_[i])));
      image_[i] = sum;
      if (stores_sum && p_.sum.data != nullptr) place<X>(p_.sum, row)[col] = sum;
    }
    By::sync();
  }
  template <bool kPresent>
  static __device__ void parameter(const DeviceVector<const char>& v, std::size_t col, float absent,
                                   float (&values)[kWidth]) {
    if (!kPresent && v.data == nullptr) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] = absent;
    } else if constexpr (kVectors) {
      Packed<P, kWidth> packed;
      packed.load(reinterpret_cast<const P*>(v.data) + col);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] = packed.at(i);
    } else {
      values[0] = widened(reinterpret_cast<const P*>(v.data)[col]);
    }
  }

  const ForwardArguments& p_;
  char* shared_;
  Part part_;
  X* image_;
};

// Every type and layout, element by element, without shared memory.
class AnyForm {
 public:
  static constexpr bool kHolds = false;
  static constexpr bool kQuantises = true;
  static constexpr int kUnroll = 1;
  static constexpr int kWidth = 1;
  static constexpr std::size_t shared_bytes(std::size_t) { return 0; }

  __device__ AnyForm(const ForwardArguments& p, char*) : p_(p) {}

  template <class>
  __device__ void load(const Part& part, bool stores_sum) {
    part_ = part;
    stores_sum_ = stores_sum;
  }
  __device__ float at(int row, int col) const { return load_one(row, col, false); }
  template <int kN>
  __device__ void get(int row, int col, float (&x)[kN]) const {
#pragma unroll
    for (int i = 0; i < kN; ++i) x[i] = col + i < part_.cols ? at(row, col + i) : 0.0F;
  }
  template <class By, bool, bool, class Make>
  __device__ void transform(const Make& make) {
    for_each<By>([&](int row, int col) { store_as(y_at(make, row, col), place(p_.y, row, col), p_.y.dtype); });
  }
  // Calls work(row, column) for the elements of the part.
  template <class By, class Work>
  __device__ void for_each(const Work& work) const {
    const int elements = part_.rows * part_.cols;
    for (int i = By::own(); i < elements; i += By::count()) work(i / part_.cols, i % part_.cols);
  }
  // make(row, x, gamma, beta) of one element.
  template <class Make>
  __device__ float y_at(const Make& make, int row, int col) const {
    const float x[1] = {load_one(row, col, stores_sum_)};
    float gamma[1] = {1}, beta[1] = {0}, y[1];
    if (p_.gamma.data != nullptr) gamma[0] = load_as<float>(p_.gamma.at(part_.col + col), p_.gamma.dtype);
    if (p_.beta.data != nullptr) beta[0] = load_as<float>(p_.beta.at(part_.col + col), p_.beta.dtype);
    make(row, x, gamma, beta, y);
    return y[0];
  }
  template <class Byte>
  __device__ Byte* place(const DeviceMatrix<Byte>& m, int row, int col) const {
    return m.data + m.rows.offset(part_.row + row) + m.cols.offset(part_.col + col);
  }

 private:
  __device__ float load_one(int row, int col, bool stores_sum) const {
    const float x = load_as<float>(place(p_.x, row, col), p_.x.dtype);
    if (p_.residual.data == nullptr) return x;
    const float residual = load_as<float>(place(p_.residual, row, col), p_.residual.dtype);
    alignas(8) char sum[8];  // of x's type
    store_as(std::fma(static_cast<float>(p_.residual_scale), residual, x), sum, p_.x.dtype);
    const float value = load_as<float>(sum, p_.x.dtype);
    if (stores_sum && p_.sum.data != nullptr) store_as(value, place(p_.sum, row, col), p_.x.dtype);
    return value;
  }

  const ForwardArguments& p_;
  Part part_;
  bool stores_sum_ = false;
};

}  // namespace evenorm::internal::cuda
