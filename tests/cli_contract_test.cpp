// `evenorm apply` gives the library's bits for every type, on every target, and for every way of writing a file.
#include <gtest/gtest.h>

#include <algorithm>

#include "contracts/digests.hpp"
#include "support/names.hpp"
#include "support/program.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::operator+;
using evenorm::testing::elements_of;
using evenorm::testing::read_file;
using evenorm::testing::TemporaryFolder;
using evenorm::testing::word;
using evenorm::testing::Words;

std::string elements_as(const Array& values, std::size_t rows, std::size_t cols, bool columns_first, bool big_endian) {
  const std::size_t bytes = size_of(values.dtype());
  std::string text(values.bytes().size(), '\0');
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const auto* from = reinterpret_cast<const char*>(values.data()) + (r * cols + c) * bytes;
      char* to = text.data() + (columns_first ? c * rows + r : r * cols + c) * bytes;
      big_endian ? std::reverse_copy(from, from + bytes, to) : std::copy_n(from, bytes, to);
    }
  }
  return text;
}

Array rows_of(const Array& values, std::size_t rows, std::size_t cols, bool columns_first) {
  if (!columns_first) return values;
  Array result(values.dtype(), values.size());
  const std::string text = elements_as(values, cols, rows, true, false);
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), result.data());
  return result;
}

std::string descr_of(DType dtype, bool big_endian = false) {
  return dtype == DType::bf16 ? "<V2" : (big_endian ? ">f" : "<f") + std::to_string(size_of(dtype));
}

Array read_npy(const std::string& path, DType dtype) {
  const std::string npy = read_file(path), data = evenorm::testing::data_of(npy);
  EXPECT_NE(npy.find("'" + descr_of(dtype) + "'"), std::string::npos);
  Array values(dtype, data.size() / size_of(dtype));
  std::copy_n(reinterpret_cast<const std::byte*>(data.data()), data.size(), values.data());
  return values;
}

enum class Order { rows_first, columns_first, fortran };

// How x is written, and how the command line is called.
struct FileWay {
  Words more{}, environment{};
  Order order = Order::rows_first;
  bool big_endian = false, piped = false, in_place = false;
};

Outcome apply(const Operation& op, const CaseData& data, const FileWay& way) {
  const TemporaryFolder folder;
  const bool columns_first = way.order != Order::rows_first;
  const std::string rows = std::to_string(data.rows), cols = std::to_string(op.cols);
  const std::string x = folder / "x.npy", y = way.in_place ? x : folder / "y.npy";
  const auto write = [&](const std::string& path, const Array& values, const std::string& shape, std::size_t n) {
    const bool of_x = path == x;
    evenorm::testing::write_file(
        path,
        evenorm::testing::npy_bytes_of(descr_of(values.dtype(), of_x && way.big_endian), shape,
                                       elements_as(values, n, op.cols, of_x && columns_first, of_x && way.big_endian),
                                       of_x && way.order == Order::fortran));
  };
  const bool transposed = way.order == Order::columns_first;
  write(x, data.x, "(" + (transposed ? cols : rows) + ", " + (transposed ? rows : cols) + ")", data.rows);
  Words words{"apply", way.piped ? "-" : x, "-o", way.piped ? "-" : y, "--rstd", folder / "rstd.npy"};
  if (transposed) words = words + Words{"--axes", "0"};
  words = words + (op.kind == Kind::rms ? Words{"--rms"} : Words{"--mean", folder / "mean.npy"});
  if (op.zero_centered) words.emplace_back("--zero-centered");
  for (const auto& [name, present, values] :
       {std::tuple{"weight", op.weight.has_value(), &data.weight}, {"bias", op.bias.has_value(), &data.bias}}) {
    if (!present) continue;
    write(folder / name, *values, "(" + cols + ",)", 1);
    words = words + Words{std::string("--") + name, folder / name};
  }
  evenorm::testing::ProgramSetting setting{.environment = way.environment};
  if (way.piped) setting.in_path = x;
  if (way.piped) setting.out_path = y;
  expect_done(words + way.more, setting);
  // The elements of a Fortran file are read in file order, columns first.
  Outcome outcome{rows_of(read_npy(y, op.y), data.rows, op.cols, columns_first),
                  {},
                  elements_of<double>(read_file(folder / "rstd.npy")),
                  true};
  if (op.kind == Kind::layer) outcome.mean = elements_of<double>(read_file(folder / "mean.npy"));
  return outcome;
}

class Contract_CommandLine : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_CommandLine, GivesTheSameBits) {
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {1, 33, 768, 5000, 65541}) {
      Operation op = same_type(kind, GetParam(), cols);
      op.zero_centered = cols == 33;
      if (cols == 768) op.weight = op.bias = DType::f32;
      const CaseData data = make_case_data(op);
      const auto expected =
          row_digests(op, run_operation(on_target(runnable_targets()[0]), op, data.x, data.weight, data.bias));
      std::vector<FileWay> ways{{.more = {"--threads", "2"}, .in_place = true},
                                {.order = Order::columns_first},
                                {.order = Order::fortran},
                                {.big_endian = op.x != DType::bf16},
                                {.piped = true}};
      for (const internal::Target target : runnable_targets()) {
        ways.push_back({.environment = {"EVENORM_TARGET=" + std::string(internal::name(target))}});
      }
      for (const FileWay& way : ways) {
        EXPECT_EQ(row_digests(op, apply(op, data, way)), expected)
            << op.name() << ::testing::PrintToString(way.more + way.environment) << static_cast<int>(way.order)
            << way.big_endian << way.piped;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_CommandLine,
                         ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return word(test.param); });

}  // namespace
}  // namespace evenorm::contracts
