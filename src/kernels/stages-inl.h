// The ends of a row function: where a row's blocks come from, the parameters' blocks, and where results go.
// Blocks that already lie in memory as the row function's type are used in place; others pass through scratch in L1.
// Included once per target.
#if defined(EVENORM_KERNELS_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_STAGES_INL_H_
#undef EVENORM_KERNELS_STAGES_INL_H_
#else
#define EVENORM_KERNELS_STAGES_INL_H_
#endif

#include <array>

#include "kernels/convert-inl.h"
#include "kernels/row_functions.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class T>
ConvertFunction* ConverterTo(DType from) {
  switch (from) {
    case DType::f64:
      return std::is_same_v<T, double> ? &Convert<double, double> : nullptr;
    case DType::f32:
      return &Convert<float, T>;
    case DType::bf16:
      return &Convert<bfloat16, T>;
    default:
      return &Convert<float16, T>;
  }
}
template <class T>
ConvertFunction* ConverterFrom(DType to) {
  switch (to) {
    case DType::f64:
      return std::is_same_v<T, double> ? &Convert<double, double> : nullptr;
    case DType::f32:
      return &Convert<T, float>;
    case DType::bf16:
      return &Convert<T, bfloat16>;
    default:
      return &Convert<T, float16>;
  }
}

template <class Pointer>
HWY_INLINE const char* At(const Rows<Pointer>& rows, size_t row, size_t col) {
  return static_cast<const char*>(rows.data) + static_cast<std::ptrdiff_t>(row) * rows.row_stride +
         static_cast<std::ptrdiff_t>(col * bytes_of(rows.dtype));
}

// x by blocks, as T; once SetScale() was called (T is then the arithmetic's type), each element multiplied by it.
template <class T>
class Source {
 public:
  // scratch: kBlock elements, used only where blocks are converted or scaled.
  Source(const Problem& p, Arithmetic<T>* scratch) : x_(p.x), scratch_(scratch) {
    if constexpr (kCanStage) convert_ = p.x.dtype == dtype_of<T> ? nullptr : ConverterTo<T>(p.x.dtype);
    staged_ = convert_ != nullptr;
  }

  bool IsStaged() const { return staged_; }
  void SetScale(Arithmetic<T> scale) {
    scale_ = scale;
    staged_ = true;
  }

  HWY_INLINE const T* Block(size_t row, size_t first, size_t n) {
    const char* from = At(x_, row, first);
    if constexpr (kCanStage) {
      if (HWY_UNLIKELY(staged_)) return Staged(from, n);
    }
    return reinterpret_cast<const T*>(from);
  }

 private:
  HWY_NOINLINE const T* Staged(const char* from, size_t n) {
    if (convert_ != nullptr) {
      convert_(from, scratch_, n);
    } else {
      std::memcpy(scratch_, from, n * sizeof(T));
    }
    for (size_t i = 0; i < n; ++i) scratch_[i] *= scale_;
    return scratch_;
  }

  static constexpr bool kCanStage = std::is_same_v<T, Arithmetic<T>>;

  Rows<const void*> x_;
  ConvertFunction* convert_ = nullptr;
  bool staged_;
  Arithmetic<T> scale_ = 1;
  Arithmetic<T>* scratch_;
};

// y by blocks: Block() tells where to write n elements, Done() sees to it that they get to y.
template <class T>
class Sink {
 public:
  // scratch: kBlock elements, used only where blocks are converted.
  Sink(const Problem& p, Arithmetic<T>* scratch) : y_(p.y), scratch_(scratch) {
    if constexpr (std::is_same_v<T, Arithmetic<T>>)
      convert_ = p.y.dtype == dtype_of<T> ? nullptr : ConverterFrom<T>(p.y.dtype);
  }

  bool IsStaged() const { return convert_ != nullptr; }
  HWY_INLINE T* Block(size_t row, size_t first) {
    if constexpr (std::is_same_v<T, Arithmetic<T>>) {
      if (HWY_UNLIKELY(IsStaged())) return scratch_;
    }
    return To(row, first);
  }
  HWY_INLINE void Done(size_t row, size_t first, size_t n) {
    if (HWY_UNLIKELY(IsStaged())) convert_(scratch_, To(row, first), n);
  }

 private:
  HWY_INLINE T* To(size_t row, size_t first) { return reinterpret_cast<T*>(const_cast<char*>(At(y_, row, first))); }

  Rows<void*> y_;
  ConvertFunction* convert_ = nullptr;
  Arithmetic<T>* scratch_;
};

template <class A, int kValue>
inline constexpr auto kConstantBlock = [] {
  std::array<A, kBlock> block{};
  block.fill(A{kValue});
  return block;
}();

// gamma or beta by blocks, in the arithmetic's type. Converted once where all of it fits, else at each use.
template <class A, int kNeutral>
class Parameter {
 public:
  static constexpr size_t kCapacity = std::is_same_v<A, double> ? kBlock : 4 * kBlock;

  Parameter(const Vector<const void*>& v, bool plus_one, size_t cols)
      : data_(static_cast<const char*>(v.data)), dtype_(v.dtype), plus_one_(plus_one) {
    convert_ = v.data == nullptr || (v.dtype == dtype_of<A> && !plus_one) ? nullptr : ConverterTo<A>(v.dtype);
    fits_ = convert_ != nullptr && cols <= kCapacity;
    if (fits_) Fill(0, cols);
    finite_ = CheckFinite(cols);
  }

  bool IsFinite() const { return finite_; }

  HWY_INLINE const A* Block(size_t first, size_t n) {
    if (data_ == nullptr) return kConstantBlock<A, kNeutral>.data();
    if (convert_ == nullptr) return reinterpret_cast<const A*>(data_) + first;
    if (fits_) return values_ + first;
    Fill(first, n);
    return values_;
  }

 private:
  HWY_NOINLINE void Fill(size_t first, size_t n) {
    convert_(data_ + first * bytes_of(dtype_), values_, n);
    if (!plus_one_) return;
    for (size_t i = 0; i < n; ++i) values_[i] += A{1};
  }

  // 0 * v sums to 0 where every v is finite, to NaN otherwise.
  HWY_NOINLINE bool CheckFinite(size_t cols) {
    if (data_ == nullptr) return true;
    const hn::ScalableTag<A> d;
    constexpr size_t kN = hn::MaxLanes(d);
    for (size_t first = 0; first < cols; first += kBlock) {
      const size_t n = HWY_MIN(kBlock, cols - first);
      const A* values = Block(first, n);
      auto sum = hn::Zero(d);
      size_t i = 0;
      for (; i + kN <= n; i += kN) sum = hn::Add(sum, hn::Mul(hn::LoadU(d, values + i), hn::Zero(d)));
      A rest = hn::GetLane(hn::SumOfLanes(d, sum));
      for (; i < n; ++i) rest += values[i] * A{0};
      if (rest != A{0}) return false;
    }
    return true;
  }

  const char* data_;
  DType dtype_;
  bool plus_one_;
  bool fits_;
  bool finite_;
  ConvertFunction* convert_;
  HWY_ALIGN A values_[kCapacity];
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
