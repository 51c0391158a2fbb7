// `evenorm grad`: it gives the library's bits for any types and orders of the files, and from pipes.
#include "evenorm/evenorm.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

// Reorders so that element [i, j] of (rows, cols) is at [i + j rows].
Floats in_fortran_order(const Floats& values, std::size_t rows) {
  const std::size_t cols = values.size() / rows;
  Floats result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i / cols + i % cols * rows] = values[i];
  return result;
}

std::string header_of(const std::string& npy) { return npy.substr(0, npy.find('\n')); }

struct Gradients {
  Floats dx, dweight, dbias;
  bool operator==(const Gradients&) const = default;
};

class CliGrad : public InFolder {
 protected:
  static constexpr std::size_t kRows = 300, kCols = 129;  // several row blocks

  CliGrad() : x(some(kRows * kCols, 1)), dy(some(kRows * kCols, 2)), weight(some(kCols, 3)) {
    write("x.npy", "(300, 129)", x);
    write("dy.npy", "(300, 129)", dy);
    write("w.npy", "(129,)", weight);
  }

  Gradients written() const { return {floats("dx.npy"), floats("dw.npy"), floats("db.npy")}; }

  Gradients program(const std::string& options, const ProgramSetting& setting = {}) const {
    done("grad x.npy dy.npy -o dx.npy --dweight dw.npy --dbias db.npy " + options, setting);
    return written();
  }

  Gradients library(GradientOptions<float> options = {}, Kind kind = Kind::layer) const {
    Gradients all{Floats(x.size()), Floats(kCols), Floats(kCols)};
    options.dweight = all.dweight;
    options.dbias = all.dbias;
    (kind == Kind::layer ? layer_norm_backward<float> : rms_norm_backward<float>)(dy, x, all.dx, kCols, options);
    return all;
  }

  Floats x, dy, weight;
};

TEST_F(CliGrad, GivesTheLibrarysBits) {
  EXPECT_TRUE(program("") == library());
  EXPECT_TRUE(program("--weight w.npy --eps 1e-12") == library({.weight = weight, .eps = 1e-12}));
  EXPECT_EQ(header_of(read("dx.npy")), header_of(read("x.npy")));
  EXPECT_THAT(read("dw.npy"), HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (129,), }"));
  EXPECT_TRUE(program("--rms --zero-centered --weight w.npy") ==
              library({.weight = weight, .zero_centered = true}, Kind::rms));
}

TEST_F(CliGrad, ThreadsAndTargetsDoNotChangeBits) {
  const Gradients expected = library({.weight = weight});
  for (const char* threads : {"0", "2", "7"}) {
    EXPECT_TRUE(program("--weight w.npy --threads " + std::string(threads)) == expected) << threads;
  }
  for (const std::string& target : supported_targets()) {
    EXPECT_TRUE(program("--weight w.npy", {.environment = {"EVENORM_TARGET=" + target}}) == expected) << target;
  }
}

TEST_F(CliGrad, WritesAnySubsetOfTheOutputs) {
  const Gradients expected = library();
  done("grad x.npy dy.npy -o dx.npy");
  EXPECT_TRUE(floats("dx.npy") == expected.dx);
  EXPECT_EQ(folder.names(), (Words{"dx.npy", "dy.npy", "w.npy", "x.npy"}));
  done("grad x.npy dy.npy --dbias db.npy");
  EXPECT_EQ(floats("db.npy"), expected.dbias);
  done("grad x.npy dy.npy --dweight dw.npy");
  EXPECT_EQ(floats("dw.npy"), expected.dweight);
}

TEST_F(CliGrad, TheResultCanReplaceEitherInput) {
  const Gradients expected = library();
  for (const char* replaced : {"x.npy", "dy.npy"}) {
    write("x.npy", "(300, 129)", x);
    done("grad x.npy dy.npy -o " + std::string(replaced));
    EXPECT_TRUE(floats(replaced) == expected.dx) << replaced;
  }
  EXPECT_TRUE(floats("x.npy") == x);
}

// x and dy each have their own order and byte order. dx has those of x.
TEST_F(CliGrad, OrdersOfTheFilesDoNotChangeBits) {
  Gradients expected = library({.weight = weight});
  write("dy.npy", "(300, 129)", in_fortran_order(dy, kRows), true);
  EXPECT_TRUE(program("--weight w.npy") == expected);
  write("x.npy", "(300, 129)", in_fortran_order(x, kRows), true);
  expected.dx = in_fortran_order(expected.dx, kRows);
  EXPECT_TRUE(program("--weight w.npy") == expected);
  EXPECT_THAT(read("dx.npy"), HasSubstr("'fortran_order': True, 'shape': (300, 129), }"));
  std::string swapped = bytes_of(dy);
  for (std::size_t i = 0; i < swapped.size(); i += 4) std::reverse(&swapped[i], &swapped[i] + 4);
  write("dy.npy", npy_bytes_of(">f4", "(300, 129)", swapped));
  EXPECT_TRUE(program("--weight w.npy") == expected);
}

TEST_F(CliGrad, TheWeightSelectsTheNormalisedAxes) {
  for (const char* name : {"x.npy", "dy.npy"}) write(name, "(300, 3, 43)", *name == 'x' ? x : dy);
  write("w.npy", "(3, 43)", weight);
  EXPECT_TRUE(program("--weight w.npy") == library({.weight = weight}));
  EXPECT_THAT(read("dw.npy"), HasSubstr("'shape': (3, 43), }"));
  EXPECT_TRUE(program("--normalized-shape 3,43") == library());
}

TEST_F(CliGrad, TheWeightCanComeFromAModel) {
  const std::string header = "{" + safetensors_entry("a.norm.weight", "F32", "129", 0, 516) + "," +
                             safetensors_entry("a.norm.bias", "F32", "129", 516, 1032) + "}";
  write("m", safetensors_bytes(header, bytes_of(weight) + bytes_of(weight)));
  EXPECT_TRUE(program("--params m --name a.norm") == library({.weight = weight}));
}

TEST_F(CliGrad, OutputTypesDefaultToThoseOfTheInputs) {
  const auto descrs = [&](const std::string& options) {
    (void)program(options);
    std::string all;
    for (const char* name : {"dx.npy", "dw.npy", "db.npy"}) {
      const std::string npy = read(name);
      all += npy.substr(npy.find("'<") + 2, 2) + " ";
    }
    return all;
  };
  EXPECT_EQ(descrs(""), "f4 f4 f4 ");
  EXPECT_EQ(descrs("--dtype bf16"), "V2 f4 f4 ");
  EXPECT_EQ(descrs("--dtype f64"), "f8 f8 f8 ");
  EXPECT_EQ(descrs("--param-dtype f16"), "f4 f2 f2 ");
  EXPECT_EQ(descrs("--dtype f16 --param-dtype f64"), "f2 f8 f8 ");
  write("w.npy", npy_bytes_of("<f8", "(129,)", bytes_of(std::vector<double>(kCols, 0.5))));
  EXPECT_EQ(descrs("--weight w.npy"), "f4 f8 f8 ");
  write("dy.npy", npy_bytes_of("<f8", "(300, 129)", bytes_of(std::vector<double>(dy.begin(), dy.end()))));
  EXPECT_EQ(descrs(""), "f4 f8 f8 ");
  const std::string zeros(2 * kRows * kCols, '\0');
  for (const char* name : {"x.npy", "dy.npy"}) write(name, npy_bytes_of("<V2", "(300, 129)", zeros));
  EXPECT_EQ(descrs(""), "V2 f4 f4 ");
}

TEST_F(CliGrad, RoundsEveryGradientTypeOnce) {
  const std::int64_t shape[] = {300, 129}, cols[] = {129};
  std::vector<double> dx(x.size()), dweight(kCols);
  run(Backward{.x = {x.data(), DType::f32, shape, {}},
               .dy = {dy.data(), DType::f32, shape, {}},
               .normalized_shape = cols,
               .dx = {dx.data(), DType::f64, shape, {}},
               .dweight = {dweight.data(), DType::f64, cols, {}}});
  (void)program("--dtype f64");
  EXPECT_TRUE(doubles("dx.npy") == dx);
  EXPECT_EQ(doubles("dw.npy"), dweight);
}

// Gradients of a weight for each channel, and of one for each channel of each sample.
TEST_F(CliGrad, ParametersOfGroupsAndSamples) {
  const std::int64_t shape[] = {50, 2, 3, 129}, axes[] = {2, 3};
  const auto expect = [&](const std::string& weight_shape, const std::vector<std::int64_t>& grouped) {
    std::size_t elements = 1;
    for (const std::int64_t size : grouped) elements *= static_cast<std::size_t>(size);
    const Floats gamma = some(elements, 5);
    write("w.npy", weight_shape, gamma);
    Gradients expected{Floats(x.size()), Floats(elements), Floats(elements)};
    run(Backward{.x = {x.data(), DType::f32, shape, {}},
                 .dy = {dy.data(), DType::f32, shape, {}},
                 .axes = axes,
                 .weight = {gamma.data(), DType::f32, grouped, {}},
                 .dx = {expected.dx.data(), DType::f32, shape, {}},
                 .dweight = {expected.dweight.data(), DType::f32, grouped, {}},
                 .dbias = {expected.dbias.data(), DType::f32, grouped, {}}});
    EXPECT_TRUE(program("--groups 2 --weight w.npy") == expected);
    for (const char* name : {"dw.npy", "db.npy"}) {
      EXPECT_EQ(header_of(read(name)), header_of(read("w.npy")));
    }
  };
  for (const char* name : {"x.npy", "dy.npy"}) write(name, "(50, 6, 129)", *name == 'x' ? x : dy);
  expect("(50, 6, 1)", {50, 2, 3, 1});
  expect("(6,)", {1, 2, 3, 1});
  const Floats of_weight = written().dbias;
  EXPECT_EQ(program("--groups 2").dbias, of_weight);
  EXPECT_THAT(read("dw.npy"), HasSubstr("'shape': (6,), }"));
}

TEST_F(CliGrad, PipesGiveTheSameBytesAsFiles) {
  (void)program("");
  for (const char* piped : {"x.npy", "dy.npy"}) {
    const std::string inputs = *piped == 'x' ? "- dy.npy" : "x.npy -";
    EXPECT_TRUE(output("grad " + inputs + " -o - --dbias b.npy", {.input = read(piped), .out_piped = true}) ==
                read("dx.npy"));
    EXPECT_EQ(read("b.npy"), read("db.npy"));
  }
}

// A third tensor would not fit into memory, so dx must share that of x. The tensors are larger than one read.
using CliGrad_Memory = InFolder;

TEST_F(CliGrad_Memory, HoldsOnlyTheInputs) {
  constexpr std::size_t kCols = 1024, kTensor = std::size_t{40} << 20;
  const Floats x = some(kTensor / sizeof(float), 4);
  write("x.npy", "(10240, 1024)", x);
  done("grad x.npy x.npy -o dx.npy --dweight dw.npy", {.memory = 2 * kTensor + kTensor / 8 + (std::size_t{16} << 20)});
  Floats dx(x.size()), dweight(kCols);
  layer_norm_backward<float>(x, x, dx, kCols, {.dweight = dweight});
  EXPECT_TRUE(floats("dx.npy") == dx);
  EXPECT_EQ(floats("dw.npy"), dweight);
}

TEST_F(CliGrad, JsonReportsWhatWasDone) {
  expect_report(
      "grad x.npy dy.npy --dweight dw.npy --rms --eps 0.25 --weight w.npy --param-dtype f64 -o /dev/null",
      R"({"input": "x.npy", "shape": [300, 129], "dtype": "f32", "order": "C", "axes": [1], "normalized_shape": [129],
          "rows": 300, "kind": "rms", "eps": 0.25, "zero_centered": false, "weight": true, "dy": "dy.npy",
          "dy_dtype": "f32", "output_dtype": "f32", "param_dtype": "f64", "threads": 1,
          "outputs": {"dx": "/dev/null", "dweight": "dw.npy"}})");
}

TEST_F(CliGrad, AcceptsZeroRowsAndOneColumn) {
  const auto gradients = [&](const char* shape, const Floats& values) {
    for (const char* name : {"x.npy", "dy.npy"}) write(name, shape, values);
    return program("");
  };
  EXPECT_TRUE(gradients("(0, 3)", {}) == (Gradients{{}, Floats(3), Floats(3)}));
  EXPECT_EQ(read("dx.npy"), npy_bytes_of("<f4", "(0, 3)", ""));
  EXPECT_TRUE(gradients("(2, 1)", {7, -3}) == (Gradients{{0, 0}, {0}, {4}}));
}

}  // namespace
}  // namespace evenorm::testing
