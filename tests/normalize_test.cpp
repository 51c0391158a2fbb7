// The command line's results do not depend on how a file is divided: every choice of axes, both orders of elements, and
// every pair of types.
#include "cli/normalize.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

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

// Element i in C order. The numbers are exact in every type.
std::string element_bytes(DType dtype, std::size_t i) {
  const float value = static_cast<float>((i * 2654435761U >> 7) % 61) - 25;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::f64) return testing::bytes_of<double>({value});
  if (dtype == DType::f32) return testing::bytes_of<float>({value});
  if (dtype == DType::bf16) return testing::bytes_of<std::uint16_t>({static_cast<std::uint16_t>(bits >> 16)});
  const std::uint32_t magnitude = value == 0 ? 0 : (bits >> 13 & 0x3ffff) - (112U << 10);
  return testing::bytes_of<std::uint16_t>({static_cast<std::uint16_t>((bits >> 16 & 0x8000) | magnitude)});
}

// The place of element i in C order, in a tensor that stores only the axes where `stored`, the last or the first one
// side by side.
std::size_t place_of(const Shape& shape, std::size_t i, const std::vector<bool>& stored, bool fortran_order = false) {
  std::size_t place = 0, all = 1, stride = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    all *= stored[axis] ? static_cast<std::size_t>(shape[axis]) : 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    if (stored[axis]) {
      if (fortran_order) stride = (all /= size);
      place += i % size * stride;
      if (!fortran_order) stride *= size;
    }
    i /= size;
  }
  return place;
}

// The elements in C order for each place in the file.
std::vector<std::size_t> in_file(const Shape& shape, bool fortran_order) {
  std::vector<std::size_t> elements(elements_of(shape));
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[place_of(shape, i, std::vector<bool>(shape.size(), true), fortran_order)] = i;
  }
  return elements;
}

std::string file_of(const Shape& shape, DType dtype, bool fortran_order, bool big_endian = false) {
  const std::string descr = dtype == DType::bf16 ? "<V2" : (big_endian ? ">f" : "<f") + std::to_string(size_of(dtype));
  std::string data;
  for (const std::size_t i : in_file(shape, fortran_order)) {
    std::string element = element_bytes(dtype, i);
    if (big_endian) std::reverse(element.begin(), element.end());
    data += element;
  }
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

// The library's result for each row, gathered here. y, mean and rstd are in the file's order.
Results expected_of(const Case& c) {
  const Shape row_shape = sizes_at(c.shape, c.axes), rows_shape = sizes_elsewhere(c.shape, c.axes);
  const std::size_t cols = elements_of(row_shape), rows = elements_of(rows_shape);
  std::vector<bool> of_rows(c.shape.size(), true), of_weight(c.shape.size(), false);
  for (std::size_t axis = 0; axis < c.shape.size(); ++axis) {
    of_rows[axis] = std::find(c.axes.begin(), c.axes.end(), axis) == c.axes.end();
    of_weight[axis] = c.weight.empty() ? !of_rows[axis] : c.weight[axis] != 1;
  }
  std::vector<std::vector<std::size_t>> elements(rows);  // of each row, in C order
  for (std::size_t i = 0; i < elements_of(c.shape); ++i) elements[place_of(c.shape, i, of_rows)].push_back(i);
  const std::size_t y_bytes = size_of(c.y);
  std::string y(elements_of(c.shape) * y_bytes, '\0');
  std::vector<double> mean(rows), rstd(rows);
  const Shape one_row{static_cast<std::int64_t>(cols)};
  for (std::size_t r = 0; r < rows; ++r) {
    std::string in, weight, out(cols * y_bytes, '\0');
    for (const std::size_t i : elements[r]) {
      in += element_bytes(c.x, i);
      weight += element_bytes(DType::f32, place_of(c.shape, i, of_weight));
    }
    run({.x = {in.data(), c.x, one_row, {}},
         .y = {out.data(), c.y, one_row, {}},
         .normalized_shape = one_row,
         .weight = {weight.data(), DType::f32, one_row, {}},
         .mean = {&mean[r], DType::f64, {}, {}},
         .rstd = {&rstd[r], DType::f64, {}, {}}});
    for (std::size_t i = 0; i < cols; ++i) y.replace(elements[r][i] * y_bytes, y_bytes, out, i * y_bytes, y_bytes);
  }
  Results results;
  for (const std::size_t i : in_file(c.shape_in_file(), c.fortran_order)) results.y.append(y, i * y_bytes, y_bytes);
  for (const std::size_t r : in_file(rows_shape, c.fortran_order)) {
    results.mean += testing::bytes_of<double>({mean[r]});
    results.rstd += testing::bytes_of<double>({rstd[r]});
  }
  return results;
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

}  // namespace
}  // namespace evenorm::cli
