// Every cut of small tensors: each element once, rows whole and in order, pieces as small and runs as long as they can
// be.
#include "cli/files/pieces.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace evenorm::cli {
namespace {

using Shape = std::vector<std::int64_t>;
using Axes = std::vector<std::size_t>;

// Of each element in the file's order: the number of its row, in the order of the rows' first elements.
std::vector<std::int64_t> rows_in_file(const Shape& shape, const Axes& axes, bool fortran_order) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t rest = i, row = 0, stride = 1;
    for (std::size_t k = shape.size(); k-- > 0;) {  // from the innermost axis on
      const std::size_t axis = fortran_order ? shape.size() - 1 - k : k;
      const std::int64_t index = rest % shape[axis];
      rest /= shape[axis];
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
      row += index * stride;
      stride *= shape[axis];
    }
    rows.push_back(row);
  }
  return rows;
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

std::vector<std::int64_t> elements_of(const Pieces& pieces, const Piece& piece) {
  std::vector<std::int64_t> elements;
  pieces.for_each_run(piece, [&](std::int64_t first) {
    for (std::int64_t i = 0; i < piece.run; ++i) elements.push_back(first + i);
  });
  return elements;
}

void expect_whole_rows(const Pieces& pieces, const Piece& piece, const std::vector<std::int64_t>& row_of) {
  const std::vector<std::int64_t> elements = elements_of(pieces, piece);
  EXPECT_EQ(static_cast<std::int64_t>(elements.size()), piece.elements);
  EXPECT_LE(piece.elements, pieces.largest().elements);
  EXPECT_EQ(std::accumulate(piece.sizes.begin(), piece.sizes.end(), std::int64_t{1}, std::multiplies<>()),
            piece.elements);
  EXPECT_EQ(elements.front(), piece.first);
  EXPECT_TRUE(std::is_sorted(elements.begin(), elements.end()));
  std::set<std::int64_t> rows;
  for (const std::int64_t element : elements) rows.insert(row_of[static_cast<std::size_t>(element)]);
  EXPECT_EQ(*rows.begin(), piece.first_row);
  EXPECT_EQ(*rows.rbegin(), piece.first_row + piece.rows - 1);
  EXPECT_EQ(static_cast<std::int64_t>(rows.size()), piece.rows);
}

void expect_each_element_once(const Pieces& pieces, const std::vector<std::int64_t>& row_of, bool in_order) {
  std::vector<std::int64_t> seen;
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < pieces.count(); ++i) {
    const Piece piece = pieces[i];
    expect_whole_rows(pieces, piece, row_of);
    EXPECT_EQ(piece.first_row, rows);
    rows += piece.rows;
    const auto elements = elements_of(pieces, piece);
    seen.insert(seen.end(), elements.begin(), elements.end());
  }
  EXPECT_EQ(static_cast<std::uint64_t>(rows), pieces.rows());
  EXPECT_TRUE(!in_order || std::is_sorted(seen.begin(), seen.end()));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen.size(), row_of.size());
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<std::int64_t>(i));
}

TEST(Pieces, EveryCutOfSmallTensorsTakesEachElementOnce) {
  for (const Shape& shape : {Shape{7}, {3, 4}, {1, 5}, {5, 1}, {2, 3, 4}, {3, 1, 2, 4}, {2, 2, 2, 2}}) {
    for (const Axes& axes : all_choices(shape.size())) {
      for (const bool fortran_order : {false, true}) {
        const auto row_of = rows_in_file(shape, axes, fortran_order);
        for (const PieceLimits& limits : {PieceLimits{1, 1, 1},
                                          {6, 1, 6},
                                          {8, 4, 12},
                                          {2, 3, 1000},
                                          {1000, 1, 1000},
                                          {1, 1, 1, true},
                                          {9, 5, 20, true},
                                          {1000, 1, 1000, true}}) {
          SCOPED_TRACE(::testing::PrintToString(shape) + " over " + ::testing::PrintToString(axes) +
                       (fortran_order ? " Fortran " : " C ") + std::to_string(limits.wanted) +
                       (limits.in_order ? " in order" : ""));
          const Pieces pieces(extents_of(shape, axes, fortran_order).in_file, limits);
          expect_each_element_once(pieces, row_of, limits.in_order);
        }
      }
    }
  }
}

Pieces pieces_of(const Shape& shape, const Axes& axes, const PieceLimits& limits, bool fortran_order = false) {
  return {extents_of(shape, axes, fortran_order).in_file, limits};
}

TEST(Pieces, TrailingAxesAreRunsOfRows) {
  const Pieces pieces = pieces_of({10, 100, 64}, {2}, {6400, 1, 6400});
  EXPECT_EQ(pieces.count(), 10);
  EXPECT_EQ(pieces[3].run, 6400);
  EXPECT_EQ(pieces[3].first, 19200);
  EXPECT_EQ(pieces_of({1000, 64}, {1}, {6500, 1, 6500}).largest().rows, 101);
}

TEST(Pieces, ChannelsFirstGoesImageByImageOrThroughPartsOfOne) {
  EXPECT_EQ(pieces_of({8, 16, 10, 10}, {1}, {3200, 1, 3200}).largest().run, 3200);  // two images
  const Pieces parts = pieces_of({8, 16, 10, 10}, {1}, {800, 1, 800});              // half of one
  EXPECT_EQ(parts.count(), 16);
  EXPECT_EQ(parts[1].run, 50);
  EXPECT_EQ(parts[1].first, 50);
  EXPECT_EQ(parts[1].first_row, 50);
  EXPECT_EQ(parts[2].first, 1600);
}

TEST(Pieces, GrowForRunsUpToTheMost) {
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {1000, 1, 100000}).largest().run, 10);
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {1000, 64, 100000}).largest().run, 64);
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {1000, 64, 3200}).largest().run, 32);
  EXPECT_EQ(pieces_of({100, 1000}, {0}, {50, 64, 50}).largest().run, 1);  // one row is larger than all that is allowed
  EXPECT_EQ(pieces_of({1000, 100}, {1}, {1000, 64, 100000}, true).largest().run, 64);
}

TEST(Pieces, InOrderHoldsWhatDoesNotLieTogether) {
  EXPECT_EQ(pieces_of({8, 16, 100}, {2}, {200, 1, 200, true}).largest().elements, 200);
  EXPECT_EQ(pieces_of({8, 16, 100}, {1}, {200, 1, 200, true}).largest().elements, 1600);
  EXPECT_EQ(pieces_of({8, 16, 100}, {0}, {200, 1, 200, true}).largest().elements, 12800);
}

TEST(Pieces, OfNothingThereAreNone) {
  for (const Shape& shape : {Shape{0, 5}, {3, 0, 5}, {std::int64_t{1} << 62, std::int64_t{1} << 62, 0, 5}}) {
    const Pieces pieces = pieces_of(shape, {shape.size() - 1}, {1, 1, 1});
    EXPECT_EQ(pieces.count(), 0);
    EXPECT_EQ(pieces.rows(), 0U);
    EXPECT_EQ(pieces.largest().elements, 0);
    EXPECT_EQ(pieces.largest().sizes, (Shape{0, 5}));
  }
}

}  // namespace
}  // namespace evenorm::cli
