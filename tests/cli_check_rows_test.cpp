// `evenorm check --x`: errors of a given result. python/tests/test_check.py compares the numbers with NumPy's.
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

class CliCheckRows : public InFolder {
 protected:
  // Writes x.npy, and y.npy with one element moved by 3/8. All norms are of 6 columns.
  void write_moved(const std::string& shape, const std::string& options, std::size_t at, bool fortran_order = false) {
    write("x.npy", shape, some(48, 1), fortran_order);
    done("apply x.npy -o y.npy --weight w.npy" + options);
    std::string y = read("y.npy");
    float moved = floats("y.npy")[at];
    moved += 0.375F;
    std::memcpy(y.data() + y.size() - (48 - at) * sizeof moved, &moved, sizeof moved);
    write("y.npy", y);
  }
  json checked(const std::string& options = "") const { return report("check --x x.npy --weight w.npy" + options); }
};

TEST_F(CliCheckRows, FindsTheRowAndTheColumnInAnyLayout) {
  write("w.npy", "(6,)", {1, 2, 3, 1, 2, 3});
  struct Case {
    const char *shape, *options;
    std::size_t at, row, column;
    bool fortran_order = false;
  };
  for (const Case& c : {Case{"(8, 6)", "", 10, 1, 4}, Case{"(8, 6)", " --threads 1", 42, 2, 5, true},
                        Case{"(2, 6, 4)", " --axes 1 --zero-centered", 29, 5, 1}}) {
    write_moved(c.shape, c.options, c.at, c.fortran_order);
    const json found = checked(std::string(c.options) + " --y y.npy")["error"], own = checked(c.options);
    EXPECT_EQ(found["row"], c.row) << c.shape;
    EXPECT_EQ(found["column"], c.column) << c.shape;
    EXPECT_GT(found["largest"], 1e5);
    EXPECT_LT(own["error"]["largest"], own["bound"]);
  }
  write("w.npy", "(4,)", {1, 2, 3, 4});
  write_moved("(2, 4, 6)", " --groups 4 --rms", 26, false);
  EXPECT_EQ(checked(" --y y.npy --groups 4 --rms")["error"]["row"], 4);
}

TEST_F(CliCheckRows, SaysWhatIsBeyondAndExitsWithOne) {
  write("w.npy", "(6,)", Floats(6, 1));
  write_moved("(8, 6)", "", 0);
  EXPECT_EQ(run_line("check --x x.npy --y y.npy --within 1e9").status, 0);
  const ProgramRun beyond = run_line("check --x x.npy --y y.npy --within 4");
  EXPECT_EQ(beyond.status, 1);
  EXPECT_THAT(beyond.out, HasSubstr("\n  largest                 "));
  EXPECT_THAT(beyond.out, HasSubstr(" in row 0, column 0\n"));
  EXPECT_THAT(beyond.out, HasSubstr("\nFAILED: "));
}

// An error without a bound: a NaN, or anything but the bias in a constant row.
TEST_F(CliCheckRows, MeasuresNanAsInfinite) {
  write("x.npy", "(1, 3)", {1, 1, 1});
  for (const float wrong : {NAN, 1e-6F}) {
    write("y.npy", "(1, 3)", {0, wrong, 0});
    const json found = report_of({"check", "--x", folder / "x.npy", "--y", folder / "y.npy"});
    EXPECT_TRUE(found["error"]["largest"].is_null());
    EXPECT_EQ(found["error"]["column"], 1);
    EXPECT_THAT(found["text"].get<std::string>(), HasSubstr("infinite in row 0, column 1"));
  }
}

// What is not finite has to be exactly that, in the columns of such a weight or bias only.
TEST_F(CliCheckRows, ExpectsInfinitiesAndNanWhereTheParametersHaveThem) {
  write("x.npy", "(2, 3)", {1, 2, 4, 5, 1, 1});
  write("w.npy", "(3,)", {1, NAN, 1});
  write("b.npy", "(3,)", {INFINITY, 0, 0});
  done("apply x.npy -o y.npy --weight w.npy --bias b.npy");
  const std::string line = "check --x x.npy --y y.npy --weight w.npy --bias b.npy --within 4";
  EXPECT_EQ(run_line(line).status, 0);
  const Floats right = floats("y.npy");
  for (const std::size_t column : {0, 1}) {
    Floats y = right;
    y[3 + column] = column == 0 ? -INFINITY : 0;
    write("y.npy", "(2, 3)", y);
    EXPECT_EQ(run_line(line).status, 1);
  }
  EXPECT_EQ(report("bench x.npy --weight w.npy --grad --seconds 1e-3")["checked_rows"], 0);
}

TEST_F(CliCheckRows, MeasuresF64RowsOfAnyMagnitude) {
  write("x.npy", npy_bytes_of("<f8", "(3, 2)", bytes_of<double>({1e300, -1e300, 1e-310, 3e-310, 9007199254740992, 0})));
  write("y.npy", npy_bytes_of("<f8", "(3, 2)", bytes_of<double>({1, -1, 0, 0, 2, -1})));
  const json told = report("check --x x.npy --y y.npy");
  EXPECT_EQ(told["constant_rows"], 0);
  EXPECT_EQ(told["rows_changed_by_eps"], 1);
  EXPECT_EQ(told["std"]["largest"], 1e300);
  EXPECT_EQ(told["error"]["largest"], 0x1p53);  // 1 apart
}

TEST_F(CliCheckRows, PassesNothingThatItDidNotMeasure) {
  write("x.npy", "(1, 2)", {NAN, 1});
  write("y.npy", "(1, 2)", {1, 1});
  EXPECT_EQ(run_line("check --x x.npy --y y.npy --within 4").status, 1);
  EXPECT_TRUE(report("check --x x.npy --y y.npy")["error"]["largest"].is_null());
}

TEST_F(CliCheckRows, RefusesWrongUse) {
  write("w.npy", "(6,)", Floats(6, 1));
  write("x.npy", "(8, 6)", Floats(48));
  write("y.npy", "(8, 6)", Floats(48), true);
  write("z.npy", "(0, 6)", {});
  refused("check --x x.npy --y w.npy", "w.npy has shape (6), but should have that of x.npy, (8, 6)");
  refused("check --x x.npy --y y.npy", "y.npy is in Fortran order, but should be in that of x.npy");
  refused("check --x z.npy", "z.npy has shape (0, 6), but should have elements");
  refused("check --x x.npy --within four", "--within is 'four', but should be");
  refused("check --x x.npy --within nan", "--within is 'nan', but should be 0 or more");
  refused("check --x x.npy --quick", "--quick excludes --x");
  refused("check --x x.npy --axes 2", "--axes names axis 2");
  refused("check --y x.npy", "--y requires --x");
  refused("check --weight w.npy", "--weight requires --x");
}

TEST_F(CliCheckRows, BenchTakesTheSameParameters) {
  write("x.npy", "(8, 6)", some(48, 1));
  write("w.npy", "(6,)", Floats(6, 2));
  for (const char* form : {"", " --grad", " --residual", " --int8", " --rms"}) {
    const json told = report("bench x.npy --weight w.npy --bias w.npy --eps 1e-12 --seconds 1e-3" + std::string(form));
    EXPECT_EQ(told["checked_rows"], 3) << form;
  }
  refused("bench x.npy --weight x.npy",
          "--weight is x.npy of shape (8, 6), but should have that of the normalised axes, (6)");
  refused("bench x.npy --eps many", "--eps is 'many', but should be");
}

}  // namespace
}  // namespace evenorm::testing
