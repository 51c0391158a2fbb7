// `evenorm bench`: its output, its refusals, and that it notices wrong results.
#include <cmath>
#include <cstring>

#include "cli/bench_check.hpp"
#include "cli/bench_pass.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

// --- checking results ----------------------------------------------------------------------------------------------

constexpr cli::BenchForm kForms[] = {cli::BenchForm::forward, cli::BenchForm::backward, cli::BenchForm::residual,
                                     cli::BenchForm::int8};

struct Done {
  explicit Done(const cli::BenchProblem& of) : problem(of), tensors(make_tensors(of, {})) {
    cli::BenchPass(problem, tensors, pool_executor(1)).run();
  }
  cli::BenchVerdict check() const { return check_pass(problem, tensors); }
  std::array<cli::Array*, 6> outputs() {
    return {&tensors.y, &tensors.sum, &tensors.scale, &tensors.dx, &tensors.dweight, &tensors.dbias};
  }

  cli::BenchProblem problem;
  cli::BenchTensors tensors;
};

TEST(CliBenchCheck, AcceptsCorrectResults) {
  for (const cli::BenchForm form : kForms) {
    for (const Kind kind : {Kind::layer, Kind::rms}) {
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        const cli::BenchVerdict verdict = Done({form, kind, dtype, {6, 33}, {1}}).check();
        EXPECT_TRUE(verdict.right()) << name(form) << ' ' << name(dtype) << ": " << verdict.of << ' ' << verdict.worst;
        EXPECT_EQ(verdict.rows, 3U);
      }
    }
  }
  for (const auto& axes : {std::vector<std::size_t>{1}, {0, 2}, {2, 3}}) {
    EXPECT_TRUE(Done({cli::BenchForm::forward, Kind::layer, DType::f32, {2, 5, 3, 4}, axes}).check().right());
    EXPECT_TRUE(Done({cli::BenchForm::backward, Kind::layer, DType::bf16, {2, 5, 3, 4}, axes}).check().right());
  }
}

TEST(CliBenchCheck, NoticesAWrongElementOfAnyOutput) {
  for (const cli::BenchForm form : kForms) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (std::size_t i = 0; i < 12; ++i) {  // the first and the last element of each output
        Done done({form, Kind::layer, dtype, {6, 33}, {1}});
        cli::Array& output = *done.outputs()[i / 2];
        if (!output.present()) continue;
        const std::size_t element = i % 2 == 1 ? output.elements() - 1 : 0;
        // changes the exponent, or an i8 by half its range
        output.bytes()[(element + 1) * size_of(output.dtype()) - 1] ^= std::byte{0x40};
        EXPECT_FALSE(done.check().right()) << name(form) << ' ' << name(dtype) << ' ' << i;
      }
    }
  }
}

TEST(CliBenchCheck, NoticesAnIntegerThatIsNotTheNearest) {
  Done done({cli::BenchForm::int8, Kind::layer, DType::f32, {1, 64}, {1}});
  auto* integers = reinterpret_cast<std::int8_t*>(done.tensors.y.bytes().data());
  std::size_t noticed = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::int8_t right = integers[i];
    integers[i] = static_cast<std::int8_t>(right > 0 ? right - 1 : right + 1);
    noticed += done.check().right() ? 0 : 1;
    integers[i] = right;
  }
  EXPECT_EQ(noticed, 64U);
}

TEST(CliBenchCheck, IgnoresRowsThatAreNotFinite) {
  cli::Array x(DType::f32, {3, 4});
  const float values[] = {1, 2, 3, 4, 1, INFINITY, 3, 4, 5, 6, 8, NAN};
  std::memcpy(x.bytes().data(), values, sizeof values);
  const cli::BenchProblem problem{cli::BenchForm::forward, Kind::layer, DType::f32, {3, 4}, {1}};
  cli::BenchTensors given;
  given.x = std::move(x);
  cli::BenchTensors tensors = make_tensors(problem, std::move(given));
  cli::BenchPass(problem, tensors, {}).run();
  EXPECT_TRUE(check_pass(problem, tensors).right());
  EXPECT_EQ(check_pass(problem, tensors).rows, 1U);
}

// --- the command ---------------------------------------------------------------------------------------------------

json bench_json(const Words& words, const ProgramSetting& setting = {}) {
  return report_of(Words{"bench", "--seconds", "1e-3"} + words, setting);
}

TEST(CliBench, JsonHoldsTimesOfThePassAndOfTheBestCopy) {
  const json told = bench_json({"24x65", "--threads", "2"});
  EXPECT_EQ(told["version"], version());
  EXPECT_EQ(told["target"], target());
  expect_fields(told, R"({"threads": 2, "form": "forward", "kind": "layer", "dtype": "f32", "shape": [24, 65],
                          "axes": [1], "rows": 24, "cols": 65, "checked_rows": 3, "pass": true})");
  EXPECT_GT(told["largest_error"], 0.0);
  EXPECT_LE(told["largest_error"], 1.0);
  EXPECT_GE(told["rounds"], 7);
  for (const char* times : {"wall_us", "cpu_us", "ratio"}) {
    const auto quartiles = told[times].get<std::array<double, 3>>();
    EXPECT_GT(quartiles[0], 0.0) << times;
    EXPECT_TRUE(std::is_sorted(quartiles.begin(), quartiles.end())) << times;
  }
  const double wall = told["wall_us"][1], bytes = 2 * 24 * 65 * 4;
  EXPECT_NEAR(told["ns_per_row"], wall * 1e3 / 24, 1e-9 * wall);
  EXPECT_NEAR(told["gb_per_s"], bytes * 1e-3 / wall, 1e-9 * bytes);
  std::vector<std::string> kinds;
  for (const auto& [kind, times] : told["copies"].items()) {
    kinds.push_back(kind);
    EXPECT_GE(times[1], told["copy"]["wall_us"][1]) << kind;
  }
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre("memcpy", "streaming", "plain"));
  EXPECT_THAT(kinds, ::testing::Contains(told["copy"]["which"].get<std::string>()));
}

TEST(CliBench, EveryFormHasItsTraffic) {
  const std::size_t n = 8 * 40;
  EXPECT_EQ(bench_json({"8x40", "--dtype", "bf16", "--rms"})["bytes"], 2 * n * 2);
  EXPECT_EQ(bench_json({"8x40", "--dtype", "f64", "--grad"})["bytes"], 3 * n * 8);
  EXPECT_EQ(bench_json({"8x40", "--residual"})["bytes"], 4 * n * 4);
  EXPECT_EQ(bench_json({"8x40", "--dtype", "f16", "--int8"})["bytes"], n * 2 + n);
}

TEST(CliBench, MeasuresAnyAxesAndTheNumbersOfAFile) {
  expect_fields(bench_json({"2x5x3x4", "--axes", "1"}), R"({"rows": 24, "cols": 5})");
  const TemporaryFolder folder;
  write_file(folder / "x.npy", npy_bytes_of("<f8", "(2, 3)", bytes_of<double>({4, 2, 8, 1, 1, 1})));
  const json own = bench_json({folder / "x.npy"}, {.environment = {"EVENORM_TARGET=portable"}});
  expect_fields(own, R"({"dtype": "f64", "shape": [2, 3], "checked_rows": 2, "target": "portable"})");
}

TEST(CliBench, TextReportsWhatWasMeasured) {
  const std::string text = output_of({"bench", "1000x8", "--grad", "--seconds", "1e-3"});
  EXPECT_THAT(text, HasSubstr("gradients of layer norm of (1000, 8) f32 over axis 1: 1,000 rows of 8\n"));
  EXPECT_THAT(text, HasSubstr("on " + target() + ", 1 thread"));
  for (const char* part :
       {"median", "quartiles", "GB/s", "\n  evenorm ", " per row\n", "the best of streaming, plain\n", "\n  ratio ",
        "96,000 bytes read and written", "3 rows checked"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(CliBench, RejectsWrongUse) {
  const TemporaryFolder folder;
  write_f32(folder / "x.npy", "(2, 3)", Floats(6));
  write_f32(folder / "none.npy", "(0, 3)", {});
  const std::pair<Words, std::string> cases[] = {
      {{"12by3"}, "X is '12by3', but should be sizes"},
      {{"0x3"}, "X is '0x3', but should be sizes"},
      {{"4x"}, "X is '4x', but should be sizes"},
      {{"4x-1"}, "X is '4x-1', but should be sizes"},
      {{"9999999999x9999999999"}, "X is '9999999999x9999999999', which has more than 2^56 elements"},
      {{"4000000x1000000", "--grad"}, "X is '4000000x1000000', which takes 48,000,000,000,000 bytes of memory, but "},
      {{folder / "no.npy"}, "no.npy"},
      {{folder / "none.npy"}, "none.npy has shape (0, 3), but should have elements"},
      {{folder / "x.npy", "--dtype", "f32"}, "--dtype is given, but"},
      {{"--axes", "2"}, "--axes names axis 2, but 4096x768 has shape (4096, 768)"},
      {{"--dtype", "f7"}, "--dtype: f7 not in {"},
      {{"--seconds", "0"}, "--seconds is '0', but should be a number above 0, at most 3600"},
      {{"--seconds", "nan"}, "--seconds is 'nan', but"},
      {{"--seconds", "1s"}, "--seconds is '1s', but"},
      {{"--threads", "-1"}, "--threads is '-1', but"},
      {{"--grad", "--int8"}, "--grad and --int8 are both given, but only one of them can be"},
      {{"8x4", "--int8", "--axes", "0"}, "the elements of a row should lie side by side"},
  };
  for (const auto& [words, why] : cases) expect_refused(Words{"bench"} + words, why);
}

}  // namespace
}  // namespace evenorm::testing
