// `evenorm apply --params`: weight and bias by name from .safetensors files, in every naming scheme and type.
#include "evenorm/evenorm.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

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

TEST_F(CliParams, RejectsTwoNamingSchemesOfOneNorm) {
  write("p", file_of({{"n.gamma", "F32", bytes_of(kWeight)}, {"n.weight", "F32", bytes_of(kWeight)}}));
  expect_refused("--name n", "has both n.weight and n.gamma, but a norm should have one of them");
}

TEST_F(CliParams, ChecksShapes) {
  write("p", file_of({{"n.weight", "F32", bytes_of<float>({1, 2}), "2"}}));
  expect_refused("", "has shape (2, 3), which should end in it");
  expect_refused("--normalized-shape 3", "weight has shape (2), but");
}

}  // namespace
}  // namespace evenorm::testing
