// The ends of a row function: where a row's blocks come from, the parameters' blocks, and where results go.
// Blocks that already lie in memory as the row function's type are used in place; others pass through scratch in L1:
// gathered where their elements lie apart, converted where they have another type, sums and what is quantised.
// Included once per target.
#if defined(EVENORM_KERNELS_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_STAGES_INL_H_
#undef EVENORM_KERNELS_STAGES_INL_H_
#else
#define EVENORM_KERNELS_STAGES_INL_H_
#endif

#include <array>

#include "kernels/quantize-inl.h"
#include "kernels/residual-inl.h"
#include "kernels/row_functions.hpp"
#include "kernels/scratch.hpp"
#include "kernels/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// x by blocks, as T; once SetScale() was called (T is then the arithmetic's type), each element multiplied by it.
template <class T>
class Source {
 public:
  // tile: where x is gathered; null where its rows are dense. scratch: kBlock elements, used only where blocks are
  // converted, scaled or sums.
  template <class Pointer>
  Source(const Matrix<Pointer>& x, Tile<const void*>* tile, Arithmetic<T>* scratch)
      : data_(static_cast<const char*>(x.data)),
        rows_(&x.rows),
        bytes_(bytes_of(x.dtype)),
        tile_(tile),
        scratch_(scratch) {
    if constexpr (kCanConvert) convert_ = x.dtype == dtype_of<T> ? nullptr : ConverterTo<T>(x.dtype);
    staged_ = convert_ != nullptr || tile_ != nullptr;
    in_tile_ = convert_ == nullptr && tile_ != nullptr;
  }

  bool IsStaged() const { return staged_; }
  void SetScale(Arithmetic<T> scale) {
    scale_ = scale;
    staged_ = true;
    in_tile_ = false;
  }

  // Blocks are those of the sum from now on; x has dense rows. ahead: how many bytes further its terms are fetched, or
  // 0. held: where they are to stay; null: in scratch.
  void AddResidual(const Residual<T>& residual, size_t ahead, const HeldSums<T>* held = nullptr) {
    residual_ = &residual;
    rows_in_one_ = held != nullptr && residual.HasRowsInOne();
    ahead_ = ahead;
    ReadHeld(held);
  }
  // Blocks are those of a sum that another source made.
  void ReadHeld(const HeldSums<T>* held) {
    held_ = held;
    staged_ = true;
    in_tile_ = false;
  }

  HWY_INLINE const T* Block(size_t row, size_t first, size_t n) {
    if (HWY_LIKELY(!staged_)) return reinterpret_cast<const T*>(data_ + rows_->offset(row)) + first;
    if (in_tile_ && tile_->IsHeld()) return reinterpret_cast<const T*>(tile_->At(row, first));
    return Staged(row, first, n);
  }

  // Block() step by step, where that pays: Begin(), and Make() of all columns from left to right.
  HWY_INLINE const T* Begin(size_t row, size_t first, size_t n) {
    return HWY_LIKELY(residual_ == nullptr) ? Block(row, first, n) : Made(row, first);
  }
  // All of these rows of `cols` columns at once, if they lie so: Begin() tells where each is, then.
  HWY_INLINE bool MakeRows(size_t row, size_t rows, size_t cols) {
    if (HWY_LIKELY(!rows_in_one_)) return false;
    return MakeRun(row, rows, cols);
  }
  HWY_INLINE void Make(size_t row, size_t first, size_t n, const T* to) {
    if (HWY_UNLIKELY(residual_ != nullptr)) AddTo(row, first, n, const_cast<T*>(to));
  }

 private:
  T* Made(size_t row, size_t first) {
    return held_ != nullptr ? held_->Block(row, first) : reinterpret_cast<T*>(scratch_);
  }
  HWY_INLINE void AddTo(size_t row, size_t first, size_t n, T* to) {
    residual_->Add(row, first, n, to);
    if (ahead_ != 0) residual_->Fetch(row, first, n, ahead_);
  }
  HWY_NOINLINE bool MakeRun(size_t row, size_t rows, size_t cols) {
    if (!held_->HasRowsInOne(row, rows, cols)) return false;
    AddTo(row, 0, rows * cols, held_->Block(row, 0));
    return true;
  }
  HWY_NOINLINE const T* Staged(size_t row, size_t first, size_t n) {
    if (residual_ != nullptr || held_ != nullptr) {
      T* sum = Made(row, first);
      if (residual_ == nullptr) return sum;
      AddTo(row, first, n, sum);
      if constexpr (kCanConvert) Multiply(n);
      return sum;
    }
    const char* from = tile_ != nullptr ? tile_->Load(row, first, n) : data_ + rows_->offset(row) + first * bytes_;
    if constexpr (kCanConvert) {
      if (convert_ != nullptr) {
        convert_(from, scratch_, n);
      } else if (scale_ != 1) {
        std::memcpy(scratch_, from, n * sizeof(T));
      } else {
        return reinterpret_cast<const T*>(from);
      }
      Multiply(n);
      return scratch_;
    }
    return reinterpret_cast<const T*>(from);
  }
  void Multiply(size_t n) {
    if (scale_ == 1) return;
    for (size_t i = 0; i < n; ++i) scratch_[i] *= scale_;
  }

  static constexpr bool kCanConvert = std::is_same_v<T, Arithmetic<T>>;

  const char* data_;
  const Axes* rows_;
  size_t bytes_;
  Tile<const void*>* tile_;
  ConvertFunction* convert_ = nullptr;
  bool staged_;   // are blocks elsewhere than in x?
  bool in_tile_;  // and in the tile just as they should be?
  const Residual<T>* residual_ = nullptr;
  const HeldSums<T>* held_ = nullptr;
  bool rows_in_one_ = false;  // are rows held, and may they be made at once?
  size_t ahead_ = 0;
  Arithmetic<T> scale_ = 1;
  Arithmetic<T>* scratch_;
};

// x by whole blocks, with scratch for one.
template <class T>
class BlockSource {
 public:
  BlockSource(const Problem& p, const Scratch& scratch) : BlockSource(p, block_scratch(p), scratch) {}
  BlockSource(const BlockSource&) = delete;
  BlockSource& operator=(const BlockSource&) = delete;

  Source<T>& Get() { return source_; }

 private:
  BlockSource(const Problem& p, const BlockScratch& plan, const Scratch& scratch)
      : tile_(p.x, false, scratch.at<char>(plan.tile), 0),
        source_(p.x, plan.tile.bytes == 0 ? nullptr : &tile_, scratch.at<Arithmetic<T>>(plan.converted)) {}

  Tile<const void*> tile_;
  Source<T> source_;
};

// y by blocks: Block() tells where to write n elements, Done() sees to it that they get to y.
template <class T>
class Sink {
 public:
  // tile: from where y is scattered; null where its rows are dense. scratch: kBlock elements, used only where blocks
  // are converted.
  Sink(const Matrix<void*>& y, Tile<void*>* tile, Arithmetic<T>* scratch) : y_(y), tile_(tile), scratch_(scratch) {
    if constexpr (kCanConvert) {
      convert_ = y.dtype == dtype_of<T> || y.dtype == DType::i8 ? nullptr : ConverterFrom<T>(y.dtype);
    }
    staged_ = convert_ != nullptr || tile_ != nullptr;
    in_tile_ = convert_ == nullptr && tile_ != nullptr;
  }

  bool IsStaged() const { return staged_; }
  // Blocks go to y by way of `quantizer`, which is on.
  void SetQuantizer(Quantizer<Arithmetic<T>>* quantizer) {
    quantizer_ = quantizer;
    staged_ = true;
  }
  // After the last block of a row: do all of them have to be written again?
  bool WantsAgain() const { return quantizer_ != nullptr && quantizer_->WantsAgain(); }
  bool IsMeasuring() const { return quantizer_ != nullptr && quantizer_->IsMeasuring(); }  // before that

  HWY_INLINE T* Block(size_t row, size_t first, size_t n) {
    if (HWY_LIKELY(!staged_)) return reinterpret_cast<T*>(To(row, first));
    if (in_tile_ && tile_->IsHeld()) return reinterpret_cast<T*>(tile_->At(row, first));
    return Staged(row, first, n);
  }
  HWY_INLINE void Done(size_t row, size_t first, size_t n) {
    if (HWY_UNLIKELY(staged_) && !(in_tile_ && tile_->IsHeld())) Deliver(row, first, n);
  }

 private:
  HWY_NOINLINE T* Staged(size_t row, size_t first, size_t n) {
    if constexpr (kCanConvert) {
      if (quantizer_ != nullptr) return quantizer_->Block(first);
      if (convert_ != nullptr) return scratch_;
    }
    return reinterpret_cast<T*>(tile_->Reserve(row, first, n));
  }
  HWY_NOINLINE void Deliver(size_t row, size_t first, size_t n) {
    if (quantizer_ != nullptr) return quantizer_->Done(row, first, n);
    if (convert_ != nullptr) convert_(scratch_, tile_ != nullptr ? tile_->Reserve(row, first, n) : To(row, first), n);
    if (tile_ != nullptr) tile_->Deliver();
  }
  HWY_INLINE char* To(size_t row, size_t first) { return const_cast<char*>(place_in_row(y_, row, first)); }

  static constexpr bool kCanConvert = std::is_same_v<T, Arithmetic<T>>;

  const Matrix<void*>& y_;
  Tile<void*>* tile_;
  ConvertFunction* convert_ = nullptr;
  bool staged_;   // are blocks elsewhere than in y?
  bool in_tile_;  // and in the tile just as they should be?
  Quantizer<Arithmetic<T>>* quantizer_ = nullptr;
  Arithmetic<T>* scratch_;
};

// Hidden, or GCC would export it from whatever has a static evenorm inside.
template <class A, int kValue>
[[gnu::visibility("hidden")]] inline constexpr auto kConstantBlock = [] {
  std::array<A, kBlock> block{};
  block.fill(A{kValue});
  return block;
}();

// Columns [first, end) of a row, from the start of a block.
struct ColumnRange {
  size_t first, end;
};

// gamma or beta by blocks, in the arithmetic's type: gathered and converted, once or at each use, as is planned.
template <class A, int kNeutral>
class Parameter {
 public:
  // used: the columns that Block() will be called for. raw: kRawColumns elements of v's type, for what is both gathered
  // and converted.
  Parameter(const Vector<const void*>& v, bool plus_one, size_t cols, ColumnRange used, const ParameterPlan& plan,
            const Scratch& scratch, void* raw)
      : v_(v), plus_one_(plus_one), whole_(plan.whole), values_(scratch.at<A>(plan.values)), raw_(raw) {
    if (values_ != nullptr) {
      const bool dense = v.axes.is_dense(bytes_of(v.dtype));
      convert_ = dense || v.dtype != dtype_of<A> ? ConverterTo<A>(v.dtype) : nullptr;
      gather_ = !dense;
      if (whole_) Fill(0, cols, values_);
    }
    finite_ = CheckFinite(used);
  }

  bool IsFinite() const { return finite_; }  // in the columns used

  HWY_INLINE const A* Block(size_t first, size_t n) {
    if (v_.data == nullptr) return kConstantBlock<A, kNeutral>.data();
    if (values_ == nullptr) return static_cast<const A*>(v_.data) + first;
    if (whole_) return values_ + first;
    Fill(first, n, values_);
    return values_;
  }

 private:
  HWY_NOINLINE void Fill(size_t first, size_t n, A* to) {
    if (!gather_) {
      convert_(static_cast<const char*>(v_.data) + first * bytes_of(v_.dtype), to, n);
    } else if (convert_ == nullptr) {
      GatherVector(v_, first, n, to);
    } else {
      for (size_t i = 0; i < n; i += kRawColumns) {
        const size_t count = HWY_MIN(kRawColumns, n - i);
        GatherVector(v_, first + i, count, raw_);
        convert_(raw_, to + i, count);
      }
    }
    if (!plus_one_) return;
    for (size_t i = 0; i < n; ++i) to[i] += A{1};
  }

  // 0 * v sums to 0 where every v is finite, to NaN otherwise. Four sums, since each is a chain.
  static HWY_INLINE A SumOfZeros(const A* values, size_t n) {
    const hn::ScalableTag<A> d;
    constexpr size_t kN = hn::MaxLanes(d), kSums = 4;
    hn::Vec<decltype(d)> sums[kSums];
    for (auto& sum : sums) sum = hn::Zero(d);
    size_t i = 0;
    for (; i + kSums * kN <= n; i += kSums * kN) {
      for (size_t s = 0; s < kSums; ++s) {
        sums[s] = hn::MulAdd(hn::LoadU(d, values + i + s * kN), hn::Zero(d), sums[s]);
      }
    }
    A rest = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
    for (; i < n; ++i) rest += LoadOne(values + i) * A{0};
    return rest;
  }

  HWY_NOINLINE bool CheckFinite(ColumnRange used) {
    if (v_.data == nullptr) return true;
    for (size_t first = used.first; first < used.end; first += kBlock) {
      const size_t n = HWY_MIN(kBlock, used.end - first);
      if (SumOfZeros(Block(first, n), n) != A{0}) return false;
    }
    return true;
  }

  const Vector<const void*>& v_;
  bool plus_one_;
  bool whole_;
  bool gather_ = false;
  bool finite_;
  ConvertFunction* convert_ = nullptr;
  A* values_;
  void* raw_;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
