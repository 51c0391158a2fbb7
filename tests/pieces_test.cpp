// How tensors are divided into pieces: as few elements, and as long runs, as possible. normalize_test.cpp checks that
// pieces take each element once, in its row.
#include "cli/files/pieces.hpp"

#include <gtest/gtest.h>

namespace evenorm::cli {
namespace {

using Shape = std::vector<std::int64_t>;
using Axes = std::vector<std::size_t>;

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
