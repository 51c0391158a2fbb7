// `evenorm apply`: the worked examples and the options. cli_contract_test.cpp checks equal bits for every type,
// target and number of threads.
#include <numeric>

#include "evenorm/evenorm.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

using Shape = std::vector<std::int64_t>;

// A shape as Python writes it.
std::string python_shape(const json& shape) {
  std::string text = "(";
  for (const json& size : shape) text += size.dump() + ",";
  return text + ")";
}

class CliApply : public InFolder {
 protected:
  // Returns y.npy for x.npy.
  std::string apply(const std::string& options = "") const {
    done("apply x.npy -o y.npy " + options);
    return read("y.npy");
  }
  Floats floats_of(const std::string& options = "") const { return elements_of<float>(apply(options)); }
  std::string header(const char* name) const {
    const std::string text = read(name);
    return text.substr(10, text.find('}') - 9);
  }
};

TEST_F(CliApply, WorkedExamplesAgreeToThePrintedDigits) {
  for (const char* name : {"scale_and_shift_by_hand", "two_words_one_sentence", "sequence_of_batches"}) {
    const json example = worked(name), printed = example["printed"];
    const double tolerance = printed.value("tolerance", 0.5e-4);
    Shape shape;
    for (const json* level = &example["x"]; level->is_array(); level = &level->front()) shape.push_back(level->size());
    const std::vector<double> x = numbers_of(example["x"]);
    write("x.npy", python_shape(shape), Floats(x.begin(), x.end()));
    const std::string sizes = python_shape(example["normalized_shape"]);
    std::string options = "--mean mean.npy --rstd rstd.npy --normalized-shape " + sizes.substr(1, sizes.size() - 3);
    for (const auto& [option, parameter] : {std::pair{" --weight ", "gamma"}, {" --bias ", "beta"}}) {
      if (!example.contains(parameter)) continue;
      write(parameter, "(3,)", example[parameter]);
      options += std::string(option) + parameter;
    }
    expect_near(floats_of(options), printed[printed.contains("y") ? "y" : "normalised"], tolerance);
    auto sigma = doubles("rstd.npy");
    for (double& each : sigma) each = 1 / each;
    expect_near(sigma, numbers_of(printed[printed.contains("y") ? "sigma" : "std_with_eps"]), tolerance);
    if (printed.contains("mean")) expect_near(doubles("mean.npy"), printed["mean"], tolerance);
  }
}

TEST_F(CliApply, OneRowHasStatisticsWithoutAxes) {
  write("x.npy", "(3,)", {4, 2, 8});
  (void)apply("--rstd r.npy");
  EXPECT_EQ(header("y.npy"), "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }");
  EXPECT_EQ(header("r.npy"), "{'descr': '<f8', 'fortran_order': False, 'shape': (), }");
}

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
  const std::int64_t shape[] = {3};
  std::vector<double> y64(3);
  run({.x = {x.data(), DType::f32, shape, {}}, .y = {y64.data(), DType::f64, shape, {}}, .normalized_shape = shape});
  EXPECT_EQ(apply("--dtype f64"), npy_bytes_of("<f8", "(3,)", bytes_of(y64)));
  EXPECT_EQ(apply("--dtype f32"), apply());
  EXPECT_EQ(apply("--dtype bf16"), npy_bytes_of("<V2", "(3,)", bytes_of<std::uint16_t>({0xbe89, 0xbf89, 0x3fab})));
  EXPECT_EQ(apply("--dtype f16"), npy_bytes_of("<f2", "(3,)", bytes_of<std::uint16_t>({0xb447, 0xbc47, 0x3d58})));
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
    EXPECT_THAT(header("mean.npy"), HasSubstr(c.rows));
  }
}

TEST_F(CliApply, JsonReportsWhatWasDone) {
  write("g.npy", "(2, 4, 2)", Floats(16));
  const json grouped = report("apply g.npy -o /dev/null --groups 2");
  const json sizes{{"groups", 2}, {"shape", {2, 4, 2}}, {"axes", {1, 2}}, {"rows", 4}, {"normalized_shape", {2, 2}}};
  for (const auto& [key, value] : sizes.items()) EXPECT_EQ(grouped[key], value) << key;

  write("x.npy", npy_bytes_of(">f4", "(2, 3, 4)", std::string(96, '\0'), true));
  json whole = report("apply x.npy -o y.npy --axes 1,-1 --rms --eps +0.25 --dtype f64 --rstd /dev/null");
  EXPECT_GT(whole["seconds"].get<double>(), 0);
  whole.erase("seconds");
  const json expected = {{"input", "x.npy"},
                         {"shape", {2, 3, 4}},
                         {"dtype", "f32"},
                         {"order", "Fortran"},
                         {"axes", {1, 2}},
                         {"normalized_shape", {3, 4}},
                         {"rows", 2},
                         {"kind", "rms"},
                         {"eps", 0.25},
                         {"zero_centered", false},
                         {"weight", false},
                         {"bias", false},
                         {"output_dtype", "f64"},
                         {"target", target()},
                         {"threads", 1},
                         {"pieces", 1},
                         {"outputs", {{"y", "y.npy"}, {"rstd", "/dev/null"}}}};
  EXPECT_EQ(whole, expected);
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

}  // namespace
}  // namespace evenorm::testing
