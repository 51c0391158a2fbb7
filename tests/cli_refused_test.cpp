// Malformed files and wrong arguments, one by one. Each gives one clear line and status 2, at once and in little
// memory, and leaves existing outputs unchanged. There is one file of each kind: npy_test.cpp and safetensors_test.cpp
// cover malformed headers.
#include <functional>

#include "support/cli.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

struct Wrong {
  const char* name;
  Words arguments;  // words in capitals are replaced by paths
  std::string error;
  std::function<std::string()> bytes = [] { return std::string(); };  // of the file BAD
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

  std::string path_of(const std::string& word) const {
    for (const auto& [name, file] : {std::pair{"X", "x.npy"},
                                     {"DY", "dy.npy"},
                                     {"OTHER", "other.npy"},
                                     {"SCALAR", "scalar.npy"},
                                     {"Y", "y.npy"},
                                     {"DW", "dw.npy"},
                                     {"DB", "db.npy"},
                                     {"W2", "w2.npy"},
                                     {"W3", "w3.npy"},
                                     {"W21", "w21.npy"},
                                     {"MODEL", "model"},
                                     {"BAD", "bad"},
                                     {"NONE", "none.npy"},
                                     {"NOWHERE", "no/folder.npy"}}) {
      if (word == name) return folder / file;
    }
    return word;
  }

  TemporaryFolder folder;
};

TEST_P(CliRefused, InOneLineAtOnceAndInLittleMemory) {
  Words arguments;
  for (const std::string& word : GetParam().arguments) arguments.push_back(path_of(word));
  const ProgramRun run = expect_refused(folder, arguments, GetParam().error,
                                        {.memory = std::size_t{256} << 20, .in_path = folder / "bad"});
  // The slowest case has a header of 16 MiB and takes 0.6 s (Zen 3). Quadratic work would take minutes.
  EXPECT_LT(run.cpu_seconds, 3 * kSanitizersCost);
}

const Words kApply{"apply", "X", "-o", "Y"};

std::vector<Wrong> wrong_npy_files() {
  const std::string bits(24, 'x');
  const std::string good = npy_bytes_of("<f4", "(2, 3)", bits);
  const std::vector<std::tuple<const char*, std::string, const char*>> files = {
      {"Empty", "", "is empty"},
      {"WrongMagic", "\x93NUMPZ" + good.substr(6), "is not a .npy file"},
      {"DataCut", good.substr(0, good.size() - 1), "has 23 bytes of data, but should have 24"},
      {"LengthOf4GiB", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14),
       "says that its header has 4,294,967,295"},
      {"LongHeader", npy_bytes(std::string(80000, '{'), bits, 2), "has a header of 80,000 bytes"},
      {"DeepHeader", npy_bytes(std::string(60000, '{'), bits), "should have a string in quotes"},
      {"Integers", npy_bytes_of("<i4", "(2, 3)", bits), "has type '<i4'"},
      {"TwoPower62Elements", npy_bytes_of("<f4", "(4611686018427387904,)", bits), "takes 2^63 bytes or more"},
      {"ProductWrapsToTheSize", npy_bytes_of("<f4", "(4294967296, 4294967296, 6)", bits), "takes 2^63 bytes or more"},
      {"Terabytes", npy_bytes_of("<f4", "(1099511627776,)", bits), "should have 4,398,046,511,104"},
      {"TooManyAxes", npy_bytes_of("<f4", "(" + std::string(130, '1') + ")", bits), "has"},
      {"NoAxis", npy_bytes_of("<f4", "()", "abcd"), "has shape (), but should have an axis to normalise"},
      {"NoColumns", npy_bytes_of("<f4", "(2, 0)", ""), "normalized_shape is (0)"},
  };
  std::vector<Wrong> wrong;
  for (const auto& [name, bytes, error] : files) {
    const auto make = [bytes = bytes] { return bytes; };
    wrong.push_back({name, {"apply", "BAD", "-o", "Y"}, error, make});
    wrong.push_back({name, {"apply", "-", "-o", "Y"}, error, make});
    if (std::string_view(name).starts_with("No")) continue;
    wrong.push_back({name, kApply + Words{"--weight", "BAD"}, error, make});
  }
  return wrong;
}

const Words kParams = kApply + Words{"--params", "BAD"};

std::vector<Wrong> wrong_safetensors_files() {
  const std::string eight(8, 'x');
  const auto one = [](const std::string& entry) { return "{" + entry + "}"; };
  const std::string good = safetensors_bytes(one(safetensors_entry("n.weight", "F32", "2", 0, 8)), eight);
  const std::vector<std::tuple<const char*, std::string, const char*>> files = {
      {"Empty", "", "is empty"},
      {"DataCut", good.substr(0, good.size() - 1), "data_offsets [0, 8]"},
      {"DataLonger", good + "x", "has 9 bytes of data"},
      {"ANpyFile", npy_bytes_of("<f4", "(2,)", eight), "is not a .safetensors file"},
      {"HeaderOfTwoPower60", safetensors_bytes("{}", eight, std::uint64_t{1} << 60),
       "says that its header has 1,152,921"},
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

std::string repeated(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
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
  return [=] { return safetensors_bytes(begin + repeated(text, (std::size_t{15} << 20) / text.size()) + end, ""); };
}

// The largest headers that are read, and one that is larger.
std::vector<Wrong> large_safetensors_files() {
  return {{"HeaderOf32MiB", kParams, "has a header of 33,554,432 bytes",
           [] { return safetensors_bytes(repeated("{", std::size_t{32} << 20), ""); }},
          {"DeepJson", kParams, "has an array", long_header("{\"a\":", "[", "")},
          {"ManyTensors", kParams, "at offset 0, but should have it at 4", many_tensors},
          {"ManyAxes", kParams, "lacks 'dtype'", long_header("{\"a\":{\"shape\":[", "1,", "1]}}")},
          {"ManyDigits", kParams, "is not JSON", long_header("{\"a\":{\"shape\":[", "1", "]}}")}};
}

std::vector<Wrong> wrong_options() {
  const auto wrong = [](const char* name, const Words& options, const char* error) {
    return Wrong{name, kApply + options, error};
  };
  return {
      wrong("NanEps", {"--eps", "nan"}, "eps is nan"),
      wrong("InfiniteEps", {"--eps", "inf"}, "eps is inf"),
      wrong("NegativeEps", {"--eps=-1"}, "eps is -1"),
      wrong("EpsOfLetters", {"--eps", "1e"}, "--eps is '1e', but should be a finite number >= 0"),
      wrong("EpsBelowTheRange", {"--eps", "1e-400"}, "--eps is '1e-400', which is out of the range of f64"),
      wrong("EpsOfTwoSigns", {"--eps", "+-1"}, "--eps is '+-1', but should be a finite number >= 0"),
      wrong("NegativeThreads", {"--threads", "-1"}, "--threads is '-1', but should be 1 to 1024, or 0 for one per"),
      wrong("ManyThreads", {"--threads", "2000"}, "--threads is '2000'"),
      wrong("StatisticOverX", {"--mean", "X"}, "x.npy, but should be another file than X"),
      wrong("StatisticOverTheModel", {"--params", "MODEL", "--name", "a.norm", "--rstd", "MODEL"},
            "another file than that of --params"),
      wrong("MeanOfRmsNorm", {"--rms", "--mean", "NONE"}, "mean is given, but RMS norm has none"),
      wrong("AxisPastTheLast", {"--axes", "2"}, "--axes names axis 2, but"),
      wrong("AxisBeforeTheFirst", {"--axes", "-3"}, "--axes names axis -3, but"),
      wrong("AxisTwice", {"--axes", "1,-1"}, "--axes is '1,-1', but should name axis 1 once"),
      wrong("AxesOfLetters", {"--axes", "last"}, "--axes is 'last', but should be axes"),
      wrong("AxesEmpty", {"--axes", ""}, "--axes"),
      wrong("AxesAndShape", {"--axes", "1", "--normalized-shape", "3"}, "only one of them can be"),
      wrong("ShapeOfLetters", {"--normalized-shape", "3,x"}, "--normalized-shape is '3,x', but should be sizes"),
      wrong("ShapeEmpty", {"--normalized-shape", ""}, "--normalized-shape"),
      wrong("ShapeTooLong", {"--normalized-shape", "1,2,3"}, "--normalized-shape is (1, 2, 3), but"),
      wrong("ShapeOfAnotherSize", {"--normalized-shape", "8"}, "has shape (2, 3), which should end in it"),
      wrong("WeightOfOtherAxes", {"--axes", "0", "--weight", "W3"}, "weight has shape (3), but"),
      wrong("WeightOfAnotherShape", {"--weight", "W2", "--normalized-shape", "2,3"},
            "weight has shape (2), but normalized_shape is (2, 3)"),
      wrong("BiasOfAnotherShape", {"--bias", "W2", "--normalized-shape", "3"},
            "bias has shape (2), but normalized_shape is (3)"),
      wrong("WeightOfAllAxes", {"--weight", "W21"}, "so --axes or --normalized-shape should give the axes"),
      wrong("WeightThatDoesNotBroadcast", {"--weight", "OTHER", "--axes", "1"},
            "x.npy has shape (2, 3): each axis should be as long, or 1"),
      wrong("GroupsZero", {"--groups", "0"}, "--groups is '0', but should be a number of at least 1"),
      wrong("GroupsOfLetters", {"--groups", "two"}, "--groups is 'two', but"),
      wrong("GroupsThatDoNotDivide", {"--groups", "2"}, "--groups is 2, but should divide 3, the channels of "),
      wrong("GroupsAndAxes", {"--groups", "3", "--axes", "1"}, "--axes and --groups are both given, but only one"),
      wrong("GroupsOfAnotherWeight", {"--groups", "3", "--weight", "W2"}, "one element for each channel, (3)"),
      wrong("WeightMissing", {"--weight", "NONE"}, "none.npy: cannot be read"),
      wrong("WeightEmpty", {"--weight", ""}, "--weight"),
      wrong("WeightFromStandardInput", {"--weight", "-"}, "only input tensors can be standard input"),
      wrong("ZeroCenteredAlone", {"--zero-centered"}, "weight is absent"),
      wrong("UnknownDtype", {"--dtype", "f8"}, "--dtype is 'f8', but should be f64, f32, bf16 or f16"),
      wrong("UnknownOption", {"--colour"}, "--colour"),
      wrong("ParamsAndWeight", {"--params", "MODEL", "--weight", "W3"}, "--params is given with --weight or --bias"),
      wrong("ParamsAndBias", {"--params", "MODEL", "--bias", "W3"}, "--params is given with --weight or --bias"),
      wrong("ParamsMissing", {"--params", "NONE"}, "cannot be read: No such file"),
      wrong("NameAlone", {"--name", "a"}, "--name is given, but --params is not"),
      wrong("NameMissing", {"--params", "MODEL"}, "has 2 norms, so --name should say which: a.norm, b.norm"),
      wrong("NameUnknown", {"--params", "MODEL", "--name", "b.nrom"},
            "has no weight or bias of 'b.nrom'; the nearest of 2 norms: b.norm, a.norm"),
      wrong("NameOfIntegers", {"--params", "MODEL", "--name", "ids"}, "has tensor 'ids.weight' of type I64"),
      wrong("JsonAndStatistics", {"--json", "--rstd", "-"}, "--json goes to standard output"),
  };
}

std::vector<Wrong> wrong_uses() {
  return {
      {"NoCommand", {}, "no subcommand is given"},
      {"UnknownCommand", {"appply"}, "appply"},
      {"NoInput", {"apply"}, "X is required"},
      {"NoOutput", {"apply", "X"}, "--output is required"},
      {"ResultOverTheWeight", {"apply", "X", "-o", "W3", "--weight", "W3"}, "another file than the weight"},
      {"ResultOverTheBias", {"apply", "X", "-o", "W3", "--bias", "W3"}, "another file than the bias"},
      {"TwoStandardOutputs", {"apply", "X", "-o", "-", "--mean", "-"}, "--mean is -, but should be another"},
      {"JsonAndStandardOutput", {"apply", "X", "-o", "-", "--json"}, "--json goes to standard output"},
      {"GradientsOfOneFile", {"grad", "X"}, "DY is required"},
      {"GradientsWithoutOutput", {"grad", "X", "DY"}, "no output is given, but at least one of -o"},
  };
}

std::vector<Wrong> wrong_gradients() {
  const auto wrong = [](const char* name, const char* x, const char* dy, const Words& options, const char* error) {
    return Wrong{name, Words{"grad", x, dy, "-o", "Y", "--dweight", "DW", "--dbias", "DB"} + options, error};
  };
  const auto from_bad = [](const char* name, const std::string& bytes, const Words& inputs, const char* error) {
    return Wrong{name, Words{"grad"} + inputs + Words{"-o", "Y", "--dweight", "DW"}, error, [=] { return bytes; }};
  };
  const std::string good = npy_bytes_of("<f4", "(2, 3)", std::string(24, 'x'));
  return {
      wrong("OtherShape", "X", "OTHER", {}, "other.npy has shape (3, 2), but should have that of "),
      wrong("ScalarDy", "X", "SCALAR", {}, "scalar.npy has shape (), but should have that of "),
      wrong("Scalars", "SCALAR", "SCALAR", {}, "has shape (), but should have an axis to normalise"),
      wrong("XMissing", "NONE", "DY", {}, "none.npy: cannot be read: No such file"),
      wrong("DyMissing", "X", "NONE", {}, "none.npy: cannot be read: No such file"),
      wrong("TwoStandardInputs", "-", "-", {}, "X and DY are both standard input, but only one can be"),
      wrong("Weight", "X", "DY", {"--weight", "W2"}, "weight has shape (2), but "),
      wrong("Groups", "X", "DY", {"--groups", "2"}, "--groups is 2, but should divide 3"),
      wrong("WeightOfAllAxes", "X", "DY", {"--axes", "1", "--weight", "OTHER"}, "each axis should be as long, or 1"),
      wrong("WeightOfAxes", "X", "DY", {"--weight", "W2", "--axes", "1"},
            "weight has shape (2), but the axes normalised have shape (3)"),
      wrong("ZeroCentered", "X", "DY", {"--zero-centered"}, "weight is absent"),
      wrong("Eps", "X", "DY", {"--eps", "-1"}, "eps is -1, but it should be finite"),
      wrong("Dtype", "X", "DY", {"--dtype", "f8"}, "--dtype is 'f8', but should be f64, f32, bf16 or f16"),
      wrong("ParamDtype", "X", "DY", {"--param-dtype", "int"}, "--param-dtype is 'int', but should be f64"),
      wrong("Bias", "X", "DY", {"--bias", "W2"}, "--bias"),
      from_bad("XEmpty", "", {"BAD", "DY"}, "is empty, but should be a .npy file"),
      from_bad("DyEmpty", "", {"X", "BAD"}, "is empty, but should be a .npy file"),
      from_bad("DyCut", good.substr(0, 150), {"X", "BAD"}, "has 22 bytes of data, but should have 24"),
      from_bad("DyOfIntegers", npy_bytes_of("<i4", "(2, 3)", std::string(24, 'x')), {"X", "BAD"}, "has type '<i4'"),
      from_bad("NoColumns", npy_bytes_of("<f4", "(2, 0)", ""), {"BAD", "BAD"}, "normalized_shape is (0), but"),
  };
}

std::vector<Wrong> wrong_outputs_of_gradients() {
  const auto wrong = [](const char* name, const Words& outputs, const char* error) {
    return Wrong{name, Words{"grad", "X", "DY"} + outputs, error};
  };
  return {
      wrong("Empty", {"-o", ""}, "-o"),
      wrong("DtypeWithoutDx", {"--dweight", "DW", "--dtype", "f32"}, "--dtype is given, but -o is not"),
      wrong("ParamDtypeWithoutSums", {"-o", "Y", "--param-dtype", "f32"},
            "--param-dtype is given, but neither --dweight nor --dbias is"),
      wrong("SameFile", {"-o", "Y", "--dweight", "Y"}, "y.npy, but should be another file than that of -o"),
      wrong("SumsInOneFile", {"--dweight", "DW", "--dbias", "DW"}, "than that of --dweight"),
      wrong("TwoStandardOutputs", {"-o", "-", "--dbias", "-"}, "--dbias is -, but should be another file than that of"),
      wrong("JsonAndStandardOutput", {"-o", "-", "--json"}, "--json goes to standard output, but so does an output"),
      wrong("OverX", {"--dweight", "X"}, "x.npy, but should be another file than X"),
      wrong("OverDy", {"-o", "Y", "--dbias", "DY"}, "dy.npy, but should be another file than DY"),
      wrong("OverTheWeight", {"--weight", "W3", "--dweight", "W3"},
            "w3.npy, but should be another file than the weight"),
      // The last of three outputs fails, and the others are not replaced.
      wrong("FullDisk", {"-o", "Y", "--dweight", "DW", "--dbias", "/dev/full"},
            "/dev/full: cannot be written: No space left on device"),
      wrong("NoFolder", {"-o", "Y", "--dweight", "DW", "--dbias", "NOWHERE"}, "folder.npy: cannot be written: No such"),
      wrong("AFolder", {"-o", "Y", "--dweight", "DW", "--dbias", "/tmp"}, "/tmp is a directory, but should be a file"),
  };
}

std::string name_of(const ::testing::TestParamInfo<Wrong>& test) { return test.param.name; }

std::string name_of_npy(const ::testing::TestParamInfo<Wrong>& test) {
  const Words& words = test.param.arguments;
  return std::string(test.param.name) + (words.back() == "BAD" ? "AsWeight" : words[1] == "-" ? "AsStandardInput" : "");
}

INSTANTIATE_TEST_SUITE_P(Npy, CliRefused, ::testing::ValuesIn(wrong_npy_files()), name_of_npy);
INSTANTIATE_TEST_SUITE_P(Safetensors, CliRefused, ::testing::ValuesIn(wrong_safetensors_files()), name_of);
INSTANTIATE_TEST_SUITE_P(LargeSafetensors, CliRefused, ::testing::ValuesIn(large_safetensors_files()), name_of);
INSTANTIATE_TEST_SUITE_P(Options, CliRefused, ::testing::ValuesIn(wrong_options()), name_of);
INSTANTIATE_TEST_SUITE_P(Use, CliRefused, ::testing::ValuesIn(wrong_uses()), name_of);
INSTANTIATE_TEST_SUITE_P(Gradients, CliRefused, ::testing::ValuesIn(wrong_gradients()), name_of);
INSTANTIATE_TEST_SUITE_P(OutputsOfGradients, CliRefused, ::testing::ValuesIn(wrong_outputs_of_gradients()), name_of);

}  // namespace
}  // namespace evenorm::testing
