// The kernels' type conversions on every target: every 16-bit input, and every kind of rounding to a narrower type.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "contracts/fp_mode.hpp"
#include "contracts/harness.hpp"
#include "reference/reference.hpp"
#include "support/names.hpp"

namespace evenorm {
namespace {

using contracts::kAllTypes;
using contracts::Random;
using contracts::runnable_targets;
using internal::index_of;
using internal::Target;

using Bytes = std::vector<std::byte>;

internal::Convert* converter(Target target, DType from, DType to) {
  return internal::kernels_of(target).convert[index_of(from)][index_of(to)];
}

template <class Word>
Bytes bytes_of(const std::vector<Word>& words) {
  Bytes bytes(words.size() * sizeof(Word));
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

Bytes converted(Target target, DType from, const Bytes& values, DType to) {
  const std::size_t n = values.size() / size_of(from);
  Bytes result(n * size_of(to));
  converter(target, from, to)(values.data(), result.data(), n);
  return result;
}

// A NaN only has to stay a NaN. The drivers make NaNs canonical before they are converted.
bool is_same(DType dtype, const std::byte* value, std::uint64_t expected) {
  const std::size_t size = size_of(dtype);
  if (std::memcmp(value, &expected, size) == 0) return true;
  const auto is_nan = [&](const void* v) {
    const auto wide = reference::widen(dtype, v, 1)[0];
    return wide != wide;
  };
  return is_nan(value) && is_nan(&expected);
}

void expect_rounded(DType from, const Bytes& values, DType to, const Bytes& result, std::string_view of,
                    Target target) {
  const auto wide = reference::widen(from, values.data(), values.size() / size_of(from));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < wide.size() && wrong < 5; ++i) {
    const std::uint64_t expected = reference::round_to(to, wide[i]);
    if (is_same(to, result.data() + i * size_of(to), expected)) continue;
    ++wrong;
    ADD_FAILURE() << of << ", " << name(from) << " to " << name(to) << " on " << internal::name(target) << ": "
                  << static_cast<double>(wide[i]) << " should be " << std::hex << expected;
  }
}

void expect_as_reference(DType from, const Bytes& values, DType to) {
  for (const Target target : runnable_targets()) {
    expect_rounded(from, values, to, converted(target, from, values, to), "converted", target);
  }
}

std::vector<std::uint16_t> all_words() {
  std::vector<std::uint16_t> words(65536);
  std::iota(words.begin(), words.end(), std::uint16_t{0});
  return words;
}

TEST(Convert_Widening, IsExactForAll16BitNumbers) {
  const Bytes values = bytes_of(all_words());
  for (const DType from : {DType::bf16, DType::f16}) {
    expect_as_reference(from, values, DType::f32);
    expect_as_reference(from, values, DType::f64);
  }
}

// Fractions on both sides of every boundary of rounding to fewer bits.
template <class Word>
std::vector<Word> boundary_fractions(int fraction_bits, int kept_bits) {
  const Word half = Word{1} << (fraction_bits - kept_bits - 1);
  const Word mask = (Word{1} << fraction_bits) - 1;
  std::vector<Word> fractions;
  for (const Word kept : {Word{0}, Word{1}, Word{2}, Word{3}, (Word{1} << kept_bits) - 2, (Word{1} << kept_bits) - 1}) {
    const Word base = kept * 2 * half;
    for (const Word rest : {Word{0}, Word{1}, half - 1, half, half + 1, 2 * half - 1}) {
      fractions.push_back((base + rest) & mask);
    }
  }
  // Subnormal results have fewer bits: a single bit at each place, and its neighbours.
  for (int place = 0; place < fraction_bits; ++place) {
    const Word bit = Word{1} << place;
    for (const Word f : {bit, bit - 1, bit + 1, mask - bit, mask - bit + 1, mask & ~(bit - 1)}) {
      fractions.push_back(f & mask);
    }
  }
  return fractions;
}

template <class Word>
std::vector<Word> boundary_words(int exponent_bits, int kept_bits) {
  const int fraction_bits = 8 * static_cast<int>(sizeof(Word)) - 1 - exponent_bits;
  const std::vector<Word> fractions = boundary_fractions<Word>(fraction_bits, kept_bits);
  std::vector<Word> words;
  for (Word exponent = 0; exponent >> exponent_bits == 0; ++exponent) {
    for (const Word fraction : fractions) {
      const Word word = (exponent << fraction_bits) | fraction;
      // Only canonical NaNs reach a conversion to a narrower type.
      const bool special = exponent == (Word{1} << exponent_bits) - 1;
      const Word bits = special && fraction != 0 ? (exponent << fraction_bits) | Word{1} << (fraction_bits - 1) : word;
      words.push_back(bits);
      if (bits == word) words.push_back(word | Word{1} << (8 * sizeof(Word) - 1));
    }
  }
  return words;
}

TEST(Convert_Widening, IsExactFromF32ToF64) {
  std::vector<std::uint32_t> words = boundary_words<std::uint32_t>(8, 7);
  Random random(1);
  for (int i = 0; i < 10000; ++i) words.push_back(static_cast<std::uint32_t>(random.next()));
  expect_as_reference(DType::f32, bytes_of(words), DType::f64);
}

TEST(Convert_Narrowing, RoundsF32AtEveryExponentAndBoundary) {
  expect_as_reference(DType::f32, bytes_of(boundary_words<std::uint32_t>(8, 7)), DType::bf16);
  expect_as_reference(DType::f32, bytes_of(boundary_words<std::uint32_t>(8, 10)), DType::f16);
}

TEST(Convert_Narrowing, RoundsF64AtEveryExponentAndBoundary) {
  expect_as_reference(DType::f64, bytes_of(boundary_words<std::uint64_t>(11, 23)), DType::f32);
  expect_as_reference(DType::f64, bytes_of(boundary_words<std::uint64_t>(11, 7)), DType::bf16);
  expect_as_reference(DType::f64, bytes_of(boundary_words<std::uint64_t>(11, 10)), DType::f16);
}

// f64 that differ from the midpoint of two 16-bit numbers by less than f32 can represent. Rounding twice is wrong here.
TEST(Convert_Narrowing, RoundsF64OnlyOnce) {
  for (const DType to : {DType::bf16, DType::f16}) {
    std::vector<double> values;
    for (std::uint16_t a = 0; a < (to == DType::bf16 ? 0x7F7F : 0x7BFF); ++a) {
      const auto b = static_cast<std::uint16_t>(a + 1);
      const auto low = static_cast<double>(reference::widen(to, &a, 1)[0]);
      const auto high = static_cast<double>(reference::widen(to, &b, 1)[0]);
      const double middle = (low + high) / 2;
      for (const double off : {-0x1p-40, 0.0, 0x1p-40}) values.push_back(middle + off * (high - low));
    }
    expect_as_reference(DType::f64, bytes_of(values), to);
  }
}

// What the kernel that writes y makes of x * 1 * 1 + beta with this offset, beta in f32.
template <class T>
Bytes stored_by_map(Target target, const std::vector<T>& x, const Bytes& beta, float rstd) {
  const std::size_t n = x.size();
  const std::vector<float> gamma(n, 1.0f);
  internal::NormScalarsOfRows<float> scalars{};
  scalars.offset[0] = -0.0f;
  scalars.rstd[0] = rstd;
  std::vector<T> y(n);
  internal::kernels_of(target).of<T>().normalise_rows({{x.data(), 0},
                                                       {y.data(), 0},
                                                       1,
                                                       n,
                                                       {gamma.data(), reinterpret_cast<const float*>(beta.data())},
                                                       &scalars,
                                                       0,
                                                       false});
  return bytes_of(y);
}

// Each xhat is -0, so y is beta rounded to bf16: with the CPU's own rounding to bf16, if it has one, and without it. It
// is not used for a pair of vectors with a zero.
TEST(Convert_Narrowing, OfYRoundsAtEveryExponentAndBoundary) {
  const std::vector<std::uint32_t> boundaries = boundary_words<std::uint32_t>(8, 7);
  for (const bool has_zeros : {false, true}) {
    std::vector<std::uint32_t> words;
    for (const std::uint32_t word : boundaries) {
      if (has_zeros || word << 1U != 0) words.push_back(word);
      if (has_zeros) words.push_back(0);
    }
    const Bytes beta = bytes_of(words);
    for (const Target target : runnable_targets()) {
      const Bytes y = stored_by_map(target, std::vector<bfloat16>(words.size()), beta, -0.0f);
      expect_rounded(DType::f32, beta, DType::bf16, y, has_zeros ? "y with zeros" : "y", target);
    }
  }
}

// With mean 0, rstd 1, gamma 1 and beta -0, y equals x.
TEST(Convert_Widening, OfXIsExactForAll16BitNumbers) {
  std::vector<std::uint16_t> finite;
  for (const std::uint16_t word : all_words()) {
    if ((word & 0x7F80) != 0x7F80) finite.push_back(word);
  }
  std::vector<bfloat16> x(finite.size());
  std::memcpy(x.data(), finite.data(), x.size() * sizeof(bfloat16));
  const Bytes beta = bytes_of(std::vector<float>(x.size(), -0.0f));
  for (const Target target : runnable_targets()) {
    EXPECT_TRUE(stored_by_map(target, x, beta, 1) == bytes_of(finite)) << internal::name(target);
  }
}

// Counts with every length of the tail, in memory that ends after it.
TEST(Convert_Blocks, EveryCountWritesExactlyThatMany) {
  for (const Target target : runnable_targets()) {
    for (const DType from : kAllTypes) {
      for (const DType to : kAllTypes) {
        if (converter(target, from, to) == nullptr) continue;
        for (std::size_t n = 0; n < 70; ++n) {
          const contracts::Array x = contracts::make_input("normal", from, 70);
          contracts::Array y(to, 71);
          std::memset(y.data(), 0x5A, y.bytes().size());
          converter(target, from, to)(x.data(), y.data(), n);
          const auto wide = reference::widen(from, x.data(), 70);
          for (std::size_t i = 0; i < 71; ++i) {
            const std::uint64_t expected = i < n ? reference::round_to(to, wide[i]) : 0x5A5A5A5A5A5A5A5A;
            ASSERT_EQ(std::memcmp(y.data() + i * size_of(to), &expected, size_of(to)), 0)
                << name(from) << " to " << name(to) << ", " << n << " elements, at " << i << " on "
                << internal::name(target);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace evenorm
