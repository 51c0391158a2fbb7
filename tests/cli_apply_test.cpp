// `evenorm apply`: the options, and parameters from .safetensors files. cli_explain_test.cpp has the worked examples,
// and cli_contract_test.cpp checks equal bits for every type and target.
#include <numeric>

#include "evenorm/evenorm.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

using namespace std::string_literals;
using Shape = std::vector<std::int64_t>;

class CliApply : public InFolder {
 protected:
  // Returns y.npy for x.npy.
  std::string apply(const std::string& options = "") const {
    done("apply x.npy -o y.npy " + options);
    return read("y.npy");
  }
  Floats floats_of(const std::string& options = "") const { return elements_of<float>(apply(options)); }
};

TEST_F(CliApply, ZerosOfAnImageGiveZeros) {
  write("x.npy", "(2, 3, 2, 4)", Floats(48));
  EXPECT_EQ(apply("--normalized-shape 2,4"), npy_bytes_of("<f4", "(2, 3, 2, 4)", std::string(192, '\0')));
}

TEST_F(CliApply, ParametersMayHaveOtherTypes) {
  const Floats x = some(12, 1), weight = {1, 2, 3};
  write("x.npy", "(2, 2, 3)", x);
  write("w.npy", npy_bytes_of("<f8", "(3,)", bytes_of<double>({1, 2, 3})));
  write("b.npy", npy_bytes_of("<f2", "(3,)", bytes_of<std::uint16_t>({0x3c00, 0x4000, 0x4200})));
  Floats y(12);
  layer_norm<float>(x, y, 3, {.weight = weight});
  expect_near(floats_of("--weight w.npy"), y, 1e-6);
  layer_norm<float>(x, y, 3, {.bias = weight});
  EXPECT_EQ(floats_of("--bias b.npy"), y);
}

TEST_F(CliApply, TheOutputMayHaveAnotherType) {
  const Floats x = {4, 2, 8};
  write("x.npy", "(3,)", x);
  std::vector<double> y64(3);
  run({.x = {x.data(), DType::f32, {3}}, .y = {y64.data(), DType::f64, {3}}, .normalized_shape = {3}});
  EXPECT_EQ(apply("--dtype f64"), npy_bytes_of("<f8", "(3,)", bytes_of(y64)));
  EXPECT_EQ(apply("--dtype f32 --rstd r.npy"), apply());
  EXPECT_EQ(apply("--dtype bf16"), npy_bytes_of("<V2", "(3,)", bytes_of<std::uint16_t>({0xbe89, 0xbf89, 0x3fab})));
  EXPECT_EQ(apply("--dtype f16"), npy_bytes_of("<f2", "(3,)", bytes_of<std::uint16_t>({0xb447, 0xbc47, 0x3d58})));
  EXPECT_EQ(read("r.npy").substr(0, 128), npy_bytes_of("<f8", "()", ""));
}

struct Axes {
  const char* shape;  // of x in the file
  std::string options;
  Shape library_shape;
  std::vector<std::int64_t> axes;
  const char* weight_shape;  // in the file
  Shape weight;
  const char* rows;
};

TEST_F(CliApply, NormalisesAnyAxes) {
  const Shape x{2, 3, 2}, grouped{2, 2, 2, 2};
  for (const Axes& c : {Axes{"(2, 3, 2)", "--axes 1", x, {1}, "(3,)", {1, 3, 1}, "(2, 2)"},
                        {"(2, 3, 2)", "--axes -2", x, {1}, "(3,)", {1, 3, 1}, "(2, 2)"},
                        {"(2, 3, 2)", "--axes=-2", x, {1}, "(3,)", {1, 3, 1}, "(2, 2)"},
                        {"(2, 3, 2)", "--axes=1", x, {1}, "(3,)", {1, 3, 1}, "(2, 2)"},
                        {"(2, 3, 2)", "--axes 1,2", x, {1, 2}, "(3, 2)", {1, 3, 2}, "(2,)"},
                        {"(2, 3, 2)", "--axes -2,-1", x, {1, 2}, "(3, 2)", {1, 3, 2}, "(2,)"},
                        {"(2, 3, 2)", "--axes -1,1", x, {1, 2}, "(3, 2)", {1, 3, 2}, "(2,)"},
                        {"(2, 3, 2)", "--normalized-shape 3,2", x, {1, 2}, "(3, 2)", {1, 3, 2}, "(2,)"},
                        {"(2, 3, 2)", "", x, {1, 2}, "(3, 2)", {1, 3, 2}, "(2,)"},  // as the weight has them
                        // One scale for each channel of each sample of (batch, points, channels).
                        {"(2, 2, 3)", "--axes -1", {2, 2, 3}, {2}, "(2, 1, 3)", {2, 1, 3}, "(2, 2)"},
                        // The channels of (batch, channels, points) in pairs.
                        {"(2, 4, 2)", "--groups 2", grouped, {2, 3}, "(4,)", {1, 2, 2, 1}, "(2, 2)"},
                        {"(2, 4, 2)", "--groups 2", grouped, {2, 3}, "(1, 4, 1)", {1, 2, 2, 1}, "(2, 2)"}}) {
    SCOPED_TRACE(c.options + c.weight_shape);
    const auto elements = [](const Shape& shape) {
      return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies()));
    };
    const Floats in = some(elements(c.library_shape), 1), weight = some(elements(c.weight), 2);
    Floats expected(in.size());
    run({.x = {in.data(), DType::f32, c.library_shape, {}},
         .y = {expected.data(), DType::f32, c.library_shape, {}},
         .axes = c.axes,
         .weight = {weight.data(), DType::f32, c.weight, {}},
         .bias = {weight.data(), DType::f32, c.weight, {}}});
    write("x.npy", c.shape, in);
    write("w.npy", c.weight_shape, weight);
    EXPECT_EQ(floats_of(c.options + " --weight w.npy --bias w.npy --mean mean.npy"), expected);
    EXPECT_THAT(read("mean.npy"), HasSubstr("'shape': "s + c.rows + ", }"));
  }
}

TEST_F(CliApply, JsonReportsWhatWasDone) {
  write("g.npy", "(2, 4, 2)", Floats(16));
  expect_fields(report("apply g.npy -o /dev/null --groups 2"),
                R"({"groups": 2, "shape": [2, 4, 2], "axes": [1, 2], "rows": 4, "normalized_shape": [2, 2]})");

  write("x.npy", npy_bytes_of(">f4", "(2, 3, 4)", std::string(96, '\0'), true));
  expect_report("apply x.npy -o y.npy --axes 1,-1 --rms --eps +0.25 --dtype f64 --rstd /dev/null",
                R"({"input": "x.npy", "shape": [2, 3, 4], "dtype": "f32", "order": "Fortran", "axes": [1, 2],
                    "normalized_shape": [3, 4], "rows": 2, "kind": "rms", "eps": 0.25, "zero_centered": false,
                    "weight": false, "bias": false, "output_dtype": "f64", "threads": 1, "pieces": 1,
                    "outputs": {"y": "y.npy", "rstd": "/dev/null"}})");
}

TEST_F(CliApply, AcceptsZeroRowsAndOneColumn) {
  write("x.npy", "(0, 5)", {});
  EXPECT_EQ(apply("--mean mean.npy"), npy_bytes_of("<f4", "(0, 5)", ""));
  EXPECT_EQ(read("mean.npy"), npy_bytes_of("<f8", "(0,)", ""));
  write("x.npy", "(0, 4, 3)", {});
  EXPECT_EQ(apply("--groups 2"), npy_bytes_of("<f4", "(0, 4, 3)", ""));
  write("x.npy", "(2, 1)", {7, -3});
  EXPECT_EQ(floats_of(), (Floats{0, 0}));
  EXPECT_EQ(floats_of("--groups 1"), (Floats{0, 0}));
}

// --- weight and bias by name from .safetensors files ---------------------------------------------------------------

const Floats kX = {4, 2, 8, -1, 0.5F, 7}, kWeight = {1.5F, 1, 0.5F}, kBias = {0.5F, 0, -0.5F};

class CliParams : public InFolder {
 protected:
  CliParams() { write("x.npy", "(2, 3)", kX); }

  void expect_result(const Floats& expected, const std::string& options = "") const {
    done("apply x.npy -o y.npy --params p " + options);
    EXPECT_EQ(floats("y.npy"), expected);
  }
  void expect_refused(const std::string& options, const std::string& error) const {
    refused("apply x.npy -o y.npy --params p " + options, error);
  }

  static Floats expected(bool weight, bool bias) {
    Floats y(kX.size());
    RowOptions<float> options;
    if (weight) options.weight = kWeight;
    if (bias) options.bias = kBias;
    layer_norm<float>(kX, y, 3, options);
    return y;
  }
};

struct Entry {
  std::string name, dtype, data, shape = "3";
};

// 1.5, 1, 0.5 and 0.5, 0, -0.5 are exact in every type.
std::string bytes_in(const std::string& dtype, const Floats& values) {
  contracts::Array array(dtype == "F64"    ? DType::f64
                         : dtype == "F32"  ? DType::f32
                         : dtype == "BF16" ? DType::bf16
                                           : DType::f16,
                         std::vector<double>(values.begin(), values.end()));
  return {reinterpret_cast<const char*>(array.data()), array.bytes().size()};
}
std::string file_of(const std::vector<Entry>& entries) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}", data;
  for (const Entry& entry : entries) {
    const std::size_t begin = data.size();
    data += entry.data;
    header += "," + safetensors_entry(entry.name, entry.dtype, entry.shape, begin, data.size());
  }
  return safetensors_bytes(header + "}", data);
}

TEST_F(CliParams, AcceptsEveryNamingSchemeAndType) {
  for (const auto& [weight, bias] :
       {std::pair{"weight", "bias"}, {"gamma", "beta"}, {"scale", "shift"}, {"gain", "bias"}}) {
    for (const char* dtype : {"F16", "BF16", "F32"}) {
      write("p", file_of({{"other.weight", dtype, bytes_in(dtype, kBias)},
                          {std::string("layer.1.") + bias, dtype, bytes_in(dtype, kBias)},
                          {std::string("layer.1.") + weight, dtype, bytes_in(dtype, kWeight)}}));
      expect_result(expected(true, true), "--name layer.1");
    }
  }
}

TEST_F(CliParams, F64GivesTheBitsOfF64) {
  write_file(folder / "p",
             file_of({{"n.bias", "F64", bytes_in("F64", kBias)}, {"n.weight", "F64", bytes_in("F64", kWeight)}}));
  write("w.npy", npy_bytes_of("<f8", "(3,)", bytes_in("F64", kWeight)));
  write("b.npy", npy_bytes_of("<f8", "(3,)", bytes_in("F64", kBias)));
  done("apply x.npy -o z.npy --weight w.npy --bias b.npy");
  expect_result(floats("z.npy"), "--name n");
}

TEST_F(CliParams, ASingleNormNeedsNoName) {
  const Entry weight{"norm.weight", "F32", bytes_of(kWeight)}, bias{"norm.bias", "F32", bytes_of(kBias)};
  // A linear layer also has a weight and a bias, but of different shapes. Integers cannot be parameters.
  write("p", file_of({{"linear.weight", "F32", std::string(36, 'x'), "3,3"},
                      {"linear.bias", "F32", std::string(12, 'x')},
                      weight,
                      bias,
                      {"steps.weight", "I32", "step", "1"}}));
  expect_result(expected(true, true));
  write("p", file_of({{"bias", "F32", bias.data}, {"weight", "F32", weight.data}}));
  expect_result(expected(true, true));
  write("p", file_of({{"n.gamma", "F32", weight.data}}));
  expect_result(expected(true, false));
  write("p", file_of({{"a.weight", "F32", weight.data}, {"b.bias", "F32", bias.data}}));
  expect_result(expected(true, false), "--name a");
  expect_result(expected(false, true), "--name b");
}

TEST_F(CliParams, TheWeightSelectsSeveralAxes) {
  const Floats weight = {1, 2, 3, 4, 5, 6};
  write_file(folder / "p",
             file_of({{"n.weight", "F32", bytes_of(weight), "2,3"}, {"n.bias", "F32", bytes_of(weight), "2,3"}}));
  Floats y(6);
  layer_norm<float>(kX, y, 6, {.weight = weight, .bias = weight});
  expect_result(y);
}

TEST_F(CliParams, SuggestsSimilarNamesAndCounts) {
  std::vector<Entry> entries;
  for (int i = 0; i < 24; ++i) {
    entries.push_back({"encoder.layer." + std::to_string(i) + ".output.LayerNorm.weight", "F32", bytes_of(kWeight)});
  }
  write("p", file_of(entries));
  expect_refused("", "has 24 norms, so --name should say which: encoder.layer.0.output.LayerNorm, ");
  expect_refused("", " and 18 more");
  expect_refused("--name encoder.layer.17.output.LayerNrom",
                 "the nearest of 24 norms: encoder.layer.17.output.LayerNorm, ");
  expect_refused("--name layer.9.output.LayerNorm", "the nearest of 24 norms: encoder.layer.9.output.LayerNorm, ");
  expect_refused("--name encoder.layer.3.output.LayerNorm.weight", "norms: encoder.layer.3.output.LayerNorm, ");
}

TEST_F(CliParams, RejectsTwoNamingSchemesAndOtherShapes) {
  write("p", file_of({{"n.gamma", "F32", bytes_of(kWeight)}, {"n.weight", "F32", bytes_of(kWeight)}}));
  expect_refused("--name n", "has both n.weight and n.gamma, but a norm should have one of them");
  write("p", file_of({{"n.weight", "F32", bytes_of<float>({1, 2}), "2"}}));
  expect_refused("", "has shape (2, 3), which should end in it");
  expect_refused("--normalized-shape 3", "weight has shape (2), but");
}

}  // namespace
}  // namespace evenorm::testing
