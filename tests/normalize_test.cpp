// How the command line divides tensors into pieces, and that its results do not depend on it: every choice of axes,
// both orders of elements, and every pair of types.
#include "cli/normalize.hpp"

#include <gtest/gtest.h>

#include "cli/files/pieces.hpp"
#include "contracts/inputs.hpp"
#include "support/program.hpp"

namespace evenorm::cli {
namespace {

using testing::data_of;
using testing::npy_bytes_of;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

using Axes = std::vector<std::size_t>;

constexpr std::array kTypes{DType::f64, DType::f32, DType::bf16, DType::f16};

struct Case {
  Shape shape;
  Axes axes;
  bool fortran_order;
  DType x, y;
  Shape weight{};           // as many axes as shape; empty: the normalised axes' shape
  std::int64_t groups = 0;  // if not 0, the second and third axis are one in the file

  Shape shape_in_file() const {
    Shape sizes = shape;
    if (groups == 0) return sizes;
    sizes[1] *= sizes[2];
    sizes.erase(sizes.begin() + 2);
    return sizes;
  }
};

std::size_t elements_of(const Shape& shape) {
  std::size_t elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
  return elements;
}

std::string python_shape(const Shape& shape) {
  std::string text = "(";
  for (const std::int64_t size : shape) text += std::to_string(size) + ", ";
  return text + ")";
}

// n elements in C order. The numbers are exact in every type.
std::string elements_in(DType dtype, std::size_t n) {
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<double>((i * 2654435761U >> 7) % 61) - 25;
  const contracts::Array array(dtype, values);
  return {reinterpret_cast<const char*>(array.data()), array.bytes().size()};
}

// Moves elements of this many bytes from C order to the order of a file.
std::string in_file(const std::string& elements, std::size_t bytes, const Shape& shape, bool fortran_order) {
  std::string moved = elements;
  for (std::size_t i = 0; i < elements.size() / bytes; ++i) {
    std::size_t rest = i, place = 0;
    for (std::size_t axis = shape.size(); axis-- > 0; rest /= static_cast<std::size_t>(shape[axis])) {
      place = place * static_cast<std::size_t>(shape[axis]) + rest % static_cast<std::size_t>(shape[axis]);
    }
    if (fortran_order) moved.replace(place * bytes, bytes, elements, i * bytes, bytes);
  }
  return moved;
}

std::string file_of(const Shape& shape, DType dtype, bool fortran_order, bool big_endian = false) {
  const std::size_t bytes = size_of(dtype);
  const std::string descr = dtype == DType::bf16 ? "<V2" : (big_endian ? ">f" : "<f") + std::to_string(bytes);
  std::string data = in_file(elements_in(dtype, elements_of(shape)), bytes, shape, fortran_order);
  for (std::size_t i = 0; big_endian && i < data.size(); i += bytes) std::reverse(&data[i], &data[i] + bytes);
  return npy_bytes_of(descr, python_shape(shape), data, fortran_order);
}

struct Results {
  std::string y, mean, rstd;
  std::int64_t pieces = 0;
  bool operator==(const Results& other) const { return y == other.y && mean == other.mean && rstd == other.rstd; }
};

Results normalize(const TemporaryFolder& folder, const Case& c, const MemoryLimits& limits, std::size_t threads = 1,
                  const std::string& y = "y.npy") {
  NpyFile x(folder / "x.npy");
  Outputs outputs;
  Normalization what{.norm = {.groups = c.groups, .shape = c.shape, .axes = c.axes, .threads = threads},
                     .y_dtype = c.y,
                     .limits = limits};
  const Array weight = read_npy(folder / "w.npy"), bias;
  what.norm.weight = {&weight, weight.shape()};
  what.norm.bias = {&bias, {}};
  what.y = outputs.add("-o", folder / y);
  what.mean = outputs.add("--mean", folder / "mean.npy");
  what.rstd = outputs.add("--rstd", folder / "rstd.npy");
  Normalizer normalizer(x, outputs, what);
  outputs.open();
  std::uint64_t done = 0;
  normalizer.run([&](std::uint64_t bytes) { done += bytes; });
  outputs.commit();
  EXPECT_EQ(done, normalizer.total_bytes());
  return {read_file(folder / y), read_file(folder / "mean.npy"), read_file(folder / "rstd.npy"),
          normalizer.pieces().count()};
}

// The library's results for the whole tensor in C order, moved to the file's order.
Results expected_of(const Case& c) {
  const Shape rows_shape = sizes_elsewhere(c.shape, c.axes);
  const Shape axes(c.axes.begin(), c.axes.end());
  Shape weight_shape = c.weight.empty() ? Shape(c.shape.size(), 1) : c.weight;
  for (const std::size_t axis : c.axes) weight_shape[axis] = c.weight.empty() ? c.shape[axis] : c.weight[axis];
  const std::string x = elements_in(c.x, elements_of(c.shape)),
                    weight = elements_in(DType::f32, elements_of(weight_shape));
  std::string y(elements_of(c.shape) * size_of(c.y), '\0'), mean(elements_of(rows_shape) * 8, '\0'), rstd = mean;
  run({.x = {x.data(), c.x, c.shape, {}},
       .y = {y.data(), c.y, c.shape, {}},
       .axes = axes,
       .weight = {weight.data(), DType::f32, weight_shape, {}},
       .mean = {mean.data(), DType::f64, rows_shape, {}},
       .rstd = {rstd.data(), DType::f64, rows_shape, {}}});
  return {in_file(y, size_of(c.y), c.shape_in_file(), c.fortran_order), in_file(mean, 8, rows_shape, c.fortran_order),
          in_file(rstd, 8, rows_shape, c.fortran_order)};
}

void expect_same_bytes(const Case& c) {
  SCOPED_TRACE(python_shape(c.shape) + " over " + ::testing::PrintToString(c.axes) +
               (c.fortran_order ? " Fortran " : " C ") + std::string(name(c.x)) + " to " + std::string(name(c.y)));
  const TemporaryFolder folder;
  write_file(folder / "x.npy", file_of(c.shape_in_file(), c.x, c.fortran_order));
  write_file(folder / "w.npy", file_of(c.weight.empty() ? sizes_at(c.shape, c.axes) : c.weight, DType::f32, false));
  const Results whole = normalize(folder, c, {});
  EXPECT_EQ(whole.pieces, 1);
  const Results expected = expected_of(c);
  EXPECT_TRUE(expected == (Results{data_of(whole.y), data_of(whole.mean), data_of(whole.rstd)}));
  const std::string order = std::string("'fortran_order': ") + (c.fortran_order ? "True" : "False");
  EXPECT_NE(whole.y.find(order), std::string::npos);
  const auto rows = static_cast<std::int64_t>(elements_of(sizes_elsewhere(c.shape, c.axes)));
  for (const MemoryLimits& limits : {MemoryLimits{1, 1, 1}, {64, 16, 256}, {200, 1, 1000}}) {
    const Results pieces = normalize(folder, c, limits);
    EXPECT_TRUE(pieces == whole) << limits.wanted;
    EXPECT_TRUE(limits.wanted > 1 || pieces.pieces == rows) << pieces.pieces;
  }
  EXPECT_TRUE(normalize(folder, c, {200, 1, 1000}, 2) == whole);
}

std::vector<Axes> all_choices(std::size_t axes) {
  std::vector<Axes> choices;
  for (unsigned bits = 1; bits < 1U << axes; ++bits) {
    Axes& choice = choices.emplace_back();
    for (std::size_t axis = 0; axis < axes; ++axis) {
      if ((bits >> axis & 1) != 0) choice.push_back(axis);
    }
  }
  return choices;
}

// Each row has its part of a weight of all axes. Groups of channels are rows.
TEST(Normalize_Pieces, GiveTheSameBytesForAnyAxesWeightAndOrder) {
  for (const bool fortran_order : {false, true}) {
    const auto expect = [&](const Shape& shape, const Axes& axes, const Shape& weight, std::int64_t groups = 0) {
      expect_same_bytes({shape, axes, fortran_order, DType::f32, DType::f32, weight, groups});
    };
    for (const Axes& axes : all_choices(3)) {
      for (const Shape& weight : {Shape{}, {3, 1, 5}, {1, 4, 1}, {3, 4, 5}, {1, 1, 1}}) {
        if (axes.size() < 3 || weight.empty()) expect({3, 4, 5}, axes, weight);
      }
    }
    expect({2, 3, 4, 5}, {1, 3}, {});
    expect({2, 3, 4, 5}, {0, 2}, {});
    for (const Shape& weight : {Shape{1, 2, 3, 1}, {5, 2, 3, 1}}) expect({5, 2, 3, 4}, {2, 3}, weight, 2);
  }
}

TEST(Normalize_Pieces, GiveTheSameBytesForAnyTypes) {
  for (const DType x : kTypes) {
    for (const DType y : kTypes) {
      expect_same_bytes({{5, 33}, {1}, false, x, y});
      expect_same_bytes({{3, 7, 6}, {1}, true, x, y});
    }
  }
}

TEST(Normalize_Pieces, TheResultCanReplaceTheInput) {
  for (const bool fortran_order : {false, true}) {
    const TemporaryFolder folder;
    const Case c{{6, 5, 4}, {1}, fortran_order, DType::f32, DType::f64};
    write_file(folder / "x.npy", file_of(c.shape, c.x, fortran_order));
    write_file(folder / "w.npy", file_of({5}, DType::f32, false));
    const Results apart = normalize(folder, c, {1, 1, 1});
    EXPECT_TRUE(normalize(folder, c, {1, 1, 1}, 1, "x.npy") == apart);
  }
}

TEST(Normalize_Pieces, BigEndianGivesTheBytesOfLittleEndian) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16}) {
    const TemporaryFolder folder;
    const Case c{{3, 7, 6}, {1}, true, dtype, dtype};
    write_file(folder / "w.npy", file_of({7}, DType::f64, false));
    write_file(folder / "x.npy", file_of(c.shape, dtype, true));
    const Results little = normalize(folder, c, {});
    write_file(folder / "x.npy", file_of(c.shape, dtype, true, true));
    write_file(folder / "w.npy", file_of({7}, DType::f64, false, true));
    EXPECT_TRUE(normalize(folder, c, {}) == little);
    EXPECT_TRUE(normalize(folder, c, {1, 1, 1}) == little);
    EXPECT_NE(little.y.find("'descr': '<f"), std::string::npos);
  }
}

// --- pieces of as few elements, and with as long runs, as possible -------------------------------------------------

Pieces pieces_of(const Shape& shape, const Axes& axes, const PieceLimits& limits, bool fortran_order = false) {
  return {extents_of(shape, axes, axes_in_file(shape.size(), fortran_order)).in_file, limits};
}

TEST(Pieces, TrailingAxesAreRunsOfRows) {
  const Pieces pieces = pieces_of({10, 100, 64}, {2}, {6400, 1, 6400});
  EXPECT_EQ(pieces.count(), 10);
  EXPECT_EQ(pieces[3].run, 6400);
  EXPECT_EQ(pieces[3].first, 19200);
  EXPECT_EQ(pieces_of({1000, 64}, {1}, {6500, 1, 6500}).largest().rows, 101);
}

TEST(Pieces, ChannelsFirstTakesWholeImagesOrPartsOfOne) {
  EXPECT_EQ(pieces_of({8, 16, 10, 10}, {1}, {3200, 1, 3200}).largest().run, 3200);  // two images
  const Pieces parts = pieces_of({8, 16, 10, 10}, {1}, {800, 1, 800});              // half an image
  EXPECT_EQ(parts.count(), 16);
  EXPECT_EQ(parts[1].run, 50);
  EXPECT_EQ(parts[1].first, 50);
  EXPECT_EQ(parts[1].first_row, 50);
  EXPECT_EQ(parts[2].first, 1600);
}

TEST(Pieces, GrowForLongerRunsUpToTheLimit) {
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {1000, 1, 100000}).largest().run, 10);
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {1000, 64, 100000}).largest().run, 64);
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {1000, 64, 3200}).largest().run, 32);
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {50, 64, 50}).largest().run, 1);  // one row exceeds the limit
  EXPECT_EQ(pieces_of({1000, 100}, {1}, {1000, 64, 100000}, true).largest().run, 64);
}

TEST(Pieces, InOrderHoldAllStridedElements) {
  EXPECT_EQ(pieces_of({8, 16, 100}, {2}, {200, 1, 200, true}).largest().elements, 200);
  EXPECT_EQ(pieces_of({8, 16, 100}, {1}, {200, 1, 200, true}).largest().elements, 1600);
  EXPECT_EQ(pieces_of({8, 16, 100}, {0}, {200, 1, 200, true}).largest().elements, 12800);
  EXPECT_EQ(pieces_of({2, 8, 4, 100}, {2}, {800, 1, 800, true}).largest().elements, 800);  // two of the second axis
}

TEST(Pieces, AreNoneForEmptyTensors) {
  for (const Shape& shape : {Shape{0, 5}, {3, 0, 5}, {std::int64_t{1} << 62, std::int64_t{1} << 62, 0, 5}}) {
    const Pieces pieces = pieces_of(shape, {shape.size() - 1}, {1, 1, 1});
    EXPECT_EQ(pieces.count(), 0);
    EXPECT_EQ(pieces.rows(), 0U);
    EXPECT_EQ(pieces.largest().elements, 0);
    EXPECT_EQ(pieces.largest().sizes, shape);
  }
}

}  // namespace
}  // namespace evenorm::cli
