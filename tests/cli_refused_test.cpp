// Malformed files and wrong arguments, one by one. Each gives one clear line and status 2, at once and in little
// memory, and leaves existing outputs unchanged. There is one file of each kind: npy_test.cpp and safetensors_test.cpp
// cover malformed headers.
#include <functional>

#include "support/cli.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

struct Wrong {
  std::string name;
  std::string line;  // runs in a folder with the files that CliRefused writes
  std::string error;
  std::function<std::string()> bytes = [] { return std::string(); };  // of the file `bad`
};

std::ostream& operator<<(std::ostream& stream, const Wrong& wrong) { return stream << wrong.name; }

class CliRefused : public ::testing::TestWithParam<Wrong> {
 protected:
  CliRefused() {
    for (const char* name : {"x.npy", "dy.npy"}) write_f32(folder / name, "(2, 3)", {4, 2, 8, 1, 2, 4});
    write_f32(folder / "other.npy", "(3, 2)", {4, 2, 8, 1, 2, 4});
    write_f32(folder / "scalar.npy", "()", {1});
    write_f32(folder / "w2.npy", "(2,)", {1, 2});
    write_f32(folder / "w3.npy", "(3,)", {1, 2, 3});
    write_f32(folder / "w21.npy", "(2, 1)", {1, 2});
    write_file(folder / "model", safetensors_bytes("{" + safetensors_entry("a.norm.weight", "F32", "3", 0, 12) + "," +
                                                       safetensors_entry("b.norm.weight", "F32", "3", 12, 24) + "," +
                                                       safetensors_entry("ids.weight", "I64", "3", 24, 48) + "}",
                                                   std::string(48, '\0')));
    for (const char* name : {"y.npy", "dw.npy", "db.npy"}) write_file(folder / name, "old");
    write_file(folder / "bad", GetParam().bytes());
  }

  TemporaryFolder folder;
};

TEST_P(CliRefused, InOneLineAtOnceAndInLittleMemory) {
  const ProgramRun run =
      expect_refused(folder, words_of(GetParam().line), GetParam().error,
                     {.memory = std::size_t{256} << 20, .in_path = folder / "bad", .folder = folder / ""});
  // The slowest case has a header of 16 MiB and takes 0.6 s (Zen 3). Quadratic work would take minutes.
  EXPECT_LT(run.cpu_seconds, 3 * kSanitizersCost);
}

const std::string kApply = "apply x.npy -o y.npy ", kParams = kApply + "--params bad";

std::vector<Wrong> wrong_npy_files() {
  const std::string bits(24, 'x');
  const std::string good = npy_bytes_of("<f4", "(2, 3)", bits);
  const std::vector<std::tuple<std::string, std::string, const char*>> files = {
      {"Empty", "", "is empty"},
      {"WrongMagic", "\x93NUMPZ" + good.substr(6), "is not a .npy file"},
      {"DataCut", good.substr(0, good.size() - 1), "has 23 bytes of data, but should have 24"},
      {"LengthOf4GiB", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14),
       "says that its header has 4,294,967,295"},
      {"LongHeader", npy_bytes(std::string(80000, '{'), bits, 2), "has a header of 80,000 bytes"},
      {"DeepHeader", npy_bytes(std::string(60000, '{'), bits), "should have a string in quotes"},
      {"Terabytes", npy_bytes_of("<f4", "(1099511627776,)", bits), "should have 4,398,046,511,104"},
      {"NoAxis", npy_bytes_of("<f4", "()", "abcd"), "has shape (), but should have an axis to normalise"},
      {"NoColumns", npy_bytes_of("<f4", "(2, 0)", ""), "normalized_shape is (0)"},
  };
  std::vector<Wrong> wrong;
  for (const auto& [name, bytes, error] : files) {
    const auto make = [bytes = bytes] { return bytes; };
    wrong.push_back({name, "apply bad -o y.npy", error, make});
    wrong.push_back({name + "AsStandardInput", "apply - -o y.npy", error, make});
    if (!name.starts_with("No")) wrong.push_back({name + "AsWeight", kApply + "--weight bad", error, make});
  }
  return wrong;
}

std::vector<Wrong> wrong_safetensors_files() {
  const std::string eight(8, 'x');
  const auto one = [](const std::string& entry) { return "{" + entry + "}"; };
  const std::string good = safetensors_bytes(one(safetensors_entry("n.weight", "F32", "2", 0, 8)), eight);
  const std::vector<std::tuple<std::string, std::string, const char*>> files = {
      {"Empty", "", "is empty"},
      {"DataCut", good.substr(0, good.size() - 1), "data_offsets [0, 8]"},
      {"DataLonger", good + "x", "has 9 bytes of data"},
      {"ANpyFile", npy_bytes_of("<f4", "(2,)", eight), "is not a .safetensors file"},
      {"HeaderOfAllOnes", safetensors_bytes("{}", eight, ~std::uint64_t{0}), "says that its header has 18,446,744"},
      {"Index", R"({"metadata":{"a":"b"},"weight_map":{"n.weight":"2\n","n.bias":"1"},"x":["y"]})",
       "its tensors are in '1', '2?'"},
      {"LongIndex", R"({"weight_map":{"a":"4","b":"2","c":"3","d":"1","e":"2"}})",
       "its tensors are in '1', '2', '3' and others"},
      {"ControlCharacters", safetensors_bytes("{\"a\\n\\u001b[31m\":1}", eight), "'a??[31m'"},
      {"NoNorms", safetensors_bytes(one(safetensors_entry("a", "F32", "2", 0, 8)), eight), "has no norms"},
  };
  std::vector<Wrong> wrong;
  for (const auto& [name, bytes, error] : files) {
    wrong.push_back({name, kParams, error, [bytes = bytes] { return bytes; }});
  }
  return wrong;
}

std::string many_tensors() {
  std::string header = "{";
  for (int i = 0; header.size() < (std::size_t{1} << 24) - 100; ++i) {
    header += (i == 0 ? "" : ",") + safetensors_entry(std::to_string(i), "F32", "", 0, 4);
  }
  return safetensors_bytes(header + "}", "abcd");
}

// A header of 15 MiB, of the beginning and then `text` again and again.
std::function<std::string()> long_header(const std::string& begin, const std::string& text, const std::string& end) {
  return [=] {
    std::string header = begin;
    while (header.size() < std::size_t{15} << 20) header += text;
    return safetensors_bytes(header + end, "");
  };
}

// The largest headers that are read, and one that is larger.
std::vector<Wrong> large_safetensors_files() {
  return {{"HeaderOf32MiB", kParams, "has a header of 33,554,432 bytes",
           [] { return safetensors_bytes(std::string(std::size_t{32} << 20, '{'), ""); }},
          {"DeepJson", kParams, "has an array", long_header("{\"a\":", "[", "")},
          {"ManyTensors", kParams, "at offset 0, but should have it at 4", many_tensors},
          {"ManyAxes", kParams, "lacks 'dtype'", long_header("{\"a\":{\"shape\":[", "1,", "1]}}")},
          {"ManyDigits", kParams, "is not JSON", long_header("{\"a\":{\"shape\":[", "1", "]}}")}};
}

std::vector<Wrong> wrong_calls() {
  const std::string kGrad = "grad x.npy dy.npy ", kThree = "-o y.npy --dweight dw.npy --dbias db.npy";
  const auto six = [](std::size_t bytes, const char* descr = "<f4") {
    return npy_bytes_of(descr, "(2, 3)", std::string(bytes, 'x'));
  };
  return {
      {"NanEps", kApply + "--eps nan", "eps is nan"},
      {"InfiniteEps", kApply + "--eps inf", "eps is inf"},
      {"NegativeEps", kApply + "--eps=-1", "eps is -1"},
      {"EpsOfLetters", kApply + "--eps 1e", "--eps is '1e', but should be a finite number >= 0"},
      {"EpsBelowTheRange", kApply + "--eps 1e-400", "--eps is '1e-400', which is out of the range of f64"},
      {"EpsOfTwoSigns", kApply + "--eps +-1", "--eps is '+-1', but should be a finite number >= 0"},
      {"NegativeThreads", kApply + "--threads -1", "--threads is '-1', but should be 1 to 1024, or 0 for one per"},
      {"ManyThreads", kApply + "--threads 2000", "--threads is '2000'"},
      {"StatisticOverX", kApply + "--mean x.npy", "x.npy, but should be another file than X"},
      {"StatisticOverTheModel", kApply + "--params model --name a.norm --rstd model",
       "another file than that of --params"},
      {"MeanOfRmsNorm", kApply + "--rms --mean none.npy", "mean is given, but RMS norm has none"},
      {"AxisPastTheLast", kApply + "--axes 2", "--axes names axis 2, but"},
      {"AxisBeforeTheFirst", kApply + "--axes -3", "--axes names axis -3, but"},
      {"AxisTwice", kApply + "--axes 1,-1", "--axes is '1,-1', but should name axis 1 once"},
      {"AxesOfLetters", kApply + "--axes last", "--axes is 'last', but should be axes"},
      {"AxesEmpty", kApply + "--axes ''", "--axes"},
      {"AxesAndShape", kApply + "--axes 1 --normalized-shape 3", "only one of them can be"},
      {"ShapeOfLetters", kApply + "--normalized-shape 3,x", "--normalized-shape is '3,x', but should be sizes"},
      {"ShapeEmpty", kApply + "--normalized-shape ''", "--normalized-shape"},
      {"ShapeTooLong", kApply + "--normalized-shape 1,2,3", "--normalized-shape is (1, 2, 3), but"},
      {"ShapeOfAnotherSize", kApply + "--normalized-shape 8", "has shape (2, 3), which should end in it"},
      {"WeightOfOtherAxes", kApply + "--axes 0 --weight w3.npy", "weight has shape (3), but"},
      {"WeightOfAnotherShape", kApply + "--weight w2.npy --normalized-shape 2,3",
       "weight has shape (2), but normalized_shape is (2, 3)"},
      {"BiasOfAnotherShape", kApply + "--bias w2.npy --normalized-shape 3",
       "bias has shape (2), but normalized_shape is (3)"},
      {"WeightOfAllAxes", kApply + "--weight w21.npy", "so --axes or --normalized-shape should give the axes"},
      {"WeightThatDoesNotBroadcast", kApply + "--weight other.npy --axes 1",
       "x.npy has shape (2, 3): each axis should be as long, or 1"},
      {"GroupsZero", kApply + "--groups 0", "--groups is '0', but should be a number of at least 1"},
      {"GroupsOfLetters", kApply + "--groups two", "--groups is 'two', but"},
      {"GroupsThatDoNotDivide", kApply + "--groups 2", "--groups is 2, but should divide 3, the channels of "},
      {"GroupsAndAxes", kApply + "--groups 3 --axes 1", "--axes and --groups are both given, but only one"},
      {"GroupsOfAnotherWeight", kApply + "--groups 3 --weight w2.npy", "one element for each channel, (3)"},
      {"WeightMissing", kApply + "--weight none.npy", "none.npy: cannot be read"},
      {"WeightEmpty", kApply + "--weight ''", "--weight"},
      {"WeightFromStandardInput", kApply + "--weight -", "standard input is not taken here"},
      {"ZeroCenteredAlone", kApply + "--zero-centered", "weight is absent"},
      {"UnknownDtype", kApply + "--dtype f8", "--dtype is 'f8', but should be f64, f32, bf16 or f16"},
      {"UnknownOption", kApply + "--colour", "--colour"},
      {"ParamsAndWeight", kApply + "--params model --weight w3.npy", "--params is given with --weight or --bias"},
      {"ParamsAndBias", kApply + "--params model --bias w3.npy", "--params is given with --weight or --bias"},
      {"ParamsMissing", kApply + "--params none.npy", "cannot be read: No such file"},
      {"NameAlone", kApply + "--name a", "--name is given, but --params is not"},
      {"NameMissing", kApply + "--params model", "has 2 norms, so --name should say which: a.norm, b.norm"},
      {"NameUnknown", kApply + "--params model --name b.nrom",
       "has no weight or bias of 'b.nrom'; the nearest of 2 norms: b.norm, a.norm"},
      {"NameOfIntegers", kApply + "--params model --name ids", "has tensor 'ids.weight' of type I64"},
      {"JsonAndStatistics", kApply + "--json --rstd -", "--json goes to standard output"},
      {"NoCommand", "", "no subcommand is given"},
      {"UnknownCommand", "appply", "appply"},
      {"NoInput", "apply", "X is required"},
      {"NoOutput", "apply x.npy", "--output is required"},
      {"ResultOverTheWeight", "apply x.npy -o w3.npy --weight w3.npy", "another file than the weight"},
      {"ResultOverTheBias", "apply x.npy -o w3.npy --bias w3.npy", "another file than the bias"},
      {"TwoStandardOutputs", "apply x.npy -o - --mean -", "--mean is -, but should be another"},
      {"JsonAndStandardOutput", "apply x.npy -o - --json", "--json goes to standard output"},
      {"GradientsOfOneFile", "grad x.npy", "DY is required"},
      {"GradientsWithoutOutput", "grad x.npy dy.npy", "no output is given, but at least one of -o"},
      {"GradOtherShape", "grad x.npy other.npy " + kThree, "other.npy has shape (3, 2), but should have that of "},
      {"GradScalarDy", "grad x.npy scalar.npy " + kThree, "scalar.npy has shape (), but should have that of "},
      {"GradScalars", "grad scalar.npy scalar.npy " + kThree, "has shape (), but should have an axis to normalise"},
      {"GradXMissing", "grad none.npy dy.npy " + kThree, "none.npy: cannot be read: No such file"},
      {"GradDyMissing", "grad x.npy none.npy " + kThree, "none.npy: cannot be read: No such file"},
      {"GradTwoStandardInputs", "grad - - " + kThree, "X and DY are both standard input, but only one can be"},
      {"GradWeight", kGrad + kThree + " --weight w2.npy", "weight has shape (2), but "},
      {"GradGroups", kGrad + kThree + " --groups 2", "--groups is 2, but should divide 3"},
      {"GradWeightOfAllAxes", kGrad + kThree + " --axes 1 --weight other.npy", "each axis should be as long, or 1"},
      {"GradWeightOfAxes", kGrad + kThree + " --weight w2.npy --axes 1",
       "weight has shape (2), but the axes normalised have shape (3)"},
      {"GradZeroCentered", kGrad + kThree + " --zero-centered", "weight is absent"},
      {"GradEps", kGrad + kThree + " --eps -1", "eps is -1, but it should be finite"},
      {"GradDtype", kGrad + kThree + " --dtype f8", "--dtype is 'f8', but should be f64, f32, bf16 or f16"},
      {"GradParamDtype", kGrad + kThree + " --param-dtype int", "--param-dtype is 'int', but should be f64"},
      {"GradBias", kGrad + kThree + " --bias w2.npy", "--bias"},
      {"GradXEmpty", "grad bad dy.npy -o y.npy", "is empty, but should be a .npy file"},
      {"GradDyEmpty", "grad x.npy bad -o y.npy", "is empty, but should be a .npy file"},
      {"GradDyCut", "grad x.npy bad -o y.npy", "has 22 bytes of data, but should have 24", [=] { return six(22); }},
      {"GradDyOfIntegers", "grad x.npy bad -o y.npy", "has type '<i4'", [=] { return six(24, "<i4"); }},
      {"GradNoColumns", "grad bad bad -o y.npy --dweight dw.npy", "normalized_shape is (0), but",
       [=] { return npy_bytes_of("<f4", "(2, 0)", ""); }},
      {"GradToEmpty", kGrad + "-o ''", "-o"},
      {"GradToDtypeWithoutDx", kGrad + "--dweight dw.npy --dtype f32", "--dtype is given, but -o is not"},
      {"GradToParamDtypeWithoutSums", kGrad + "-o y.npy --param-dtype f32",
       "--param-dtype is given, but neither --dweight nor --dbias is"},
      {"GradToSameFile", kGrad + "-o y.npy --dweight y.npy", "y.npy, but should be another file than that of -o"},
      {"GradToSumsInOneFile", kGrad + "--dweight dw.npy --dbias dw.npy", "than that of --dweight"},
      {"GradToTwoStandardOutputs", kGrad + "-o - --dbias -", "--dbias is -, but should be another file than that of"},
      {"GradToJsonAndStandardOutput", kGrad + "-o - --json", "--json goes to standard output, but so does an output"},
      {"GradToOverX", kGrad + "--dweight x.npy", "x.npy, but should be another file than X"},
      {"GradToOverDy", kGrad + "-o y.npy --dbias dy.npy", "dy.npy, but should be another file than DY"},
      {"GradToOverTheWeight", kGrad + "--weight w3.npy --dweight w3.npy",
       "w3.npy, but should be another file than the weight"},
      // The last of three outputs fails, and the others are not replaced.
      {"GradToFullDisk", kGrad + "-o y.npy --dweight dw.npy --dbias /dev/full",
       "/dev/full: cannot be written: No space left on device"},
      {"GradToNoFolder", kGrad + "-o y.npy --dweight dw.npy --dbias no/folder.npy",
       "folder.npy: cannot be written: No such"},
      {"GradToAFolder", kGrad + "-o y.npy --dweight dw.npy --dbias /tmp", "/tmp is a directory, but should be a file"},
  };
}

std::string name_of(const ::testing::TestParamInfo<Wrong>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(Npy, CliRefused, ::testing::ValuesIn(wrong_npy_files()), name_of);
INSTANTIATE_TEST_SUITE_P(Safetensors, CliRefused, ::testing::ValuesIn(wrong_safetensors_files()), name_of);
INSTANTIATE_TEST_SUITE_P(LargeSafetensors, CliRefused, ::testing::ValuesIn(large_safetensors_files()), name_of);
INSTANTIATE_TEST_SUITE_P(Calls, CliRefused, ::testing::ValuesIn(wrong_calls()), name_of);

}  // namespace
}  // namespace evenorm::testing
