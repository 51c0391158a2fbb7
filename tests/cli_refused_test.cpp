// What is malformed or wrong, one by one: one clear line, status 2, at once and in little memory, and the output that
// was there is untouched. What each header's error says in full: npy_test.cpp and safetensors_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <functional>

#include "support/program.hpp"
#include "support/safetensors.hpp"
#include "support/sanitized.hpp"

namespace evenorm {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::kSanitizersCost;
using testing::npy_bytes;
using testing::npy_bytes_of;
using testing::ProgramRun;
using testing::read_file;
using testing::run_evenorm;
using testing::safetensors_bytes;
using testing::safetensors_entry;
using testing::TemporaryFolder;
using testing::Words;
using testing::write_file;

struct Wrong {
  const char* name;
  std::function<std::string()> bytes;  // of the file `bad`; made when it is wanted, so that the test itself stays small
  Words arguments;                     // with every word that is X, Y, BAD, W3 or MODEL for the path of that file
  std::string error;
};

std::ostream& operator<<(std::ostream& stream, const Wrong& wrong) { return stream << wrong.name; }

class CliRefused : public ::testing::TestWithParam<Wrong> {
 protected:
  CliRefused() {
    const std::string two = bytes_of<float>({4, 2, 8, 1, 2, 4});
    write_file(folder / "x.npy", npy_bytes_of("<f4", "(2, 3)", two));
    write_file(folder / "w3.npy", npy_bytes_of("<f4", "(3,)", bytes_of<float>({1, 2, 3})));
    write_file(folder / "model", safetensors_bytes("{" + safetensors_entry("a.norm.weight", "F32", "3", 0, 12) + "," +
                                                       safetensors_entry("b.norm.weight", "F32", "3", 12, 24) + "," +
                                                       safetensors_entry("ids.weight", "I64", "3", 24, 48) + "}",
                                                   std::string(48, '\0')));
    write_file(folder / "y.npy", "old");
    write_file(folder / "bad", GetParam().bytes());
  }

  std::string path_of(const std::string& word) const {
    for (const auto& [name, file] : {std::pair{"X", "x.npy"},
                                     {"Y", "y.npy"},
                                     {"W3", "w3.npy"},
                                     {"MODEL", "model"},
                                     {"BAD", "bad"},
                                     {"NONE", "none.npy"}}) {
      if (word == name) return folder / file;
    }
    return word;
  }

  TemporaryFolder folder;
};

TEST_P(CliRefused, InOneLineAtOnceAndInLittleMemory) {
  Words arguments;
  for (const std::string& word : GetParam().arguments) arguments.push_back(path_of(word));
  struct stat before {
  }, after{};
  ASSERT_EQ(stat((folder / "y.npy").c_str(), &before), 0);
  const auto names = folder.names();
  const ProgramRun run = run_evenorm(arguments, {.memory = std::size_t{256} << 20, .in_path = folder / "bad"});
  EXPECT_EQ(run.status, 2) << "signal " << run.signal;
  EXPECT_TRUE(run.one_line()) << run.err;
  EXPECT_THAT(run.err, HasSubstr(GetParam().error));
  EXPECT_EQ(run.out, "");
  // The slowest has a header of 16 MiB and takes 0.6 s (Zen 3); work that grows with its square would take minutes.
  EXPECT_LT(run.cpu_seconds, 3 * kSanitizersCost);
  ASSERT_EQ(stat((folder / "y.npy").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_TRUE(before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
  EXPECT_EQ(read_file(folder / "y.npy"), "old");
  EXPECT_EQ(folder.names(), names);
}

std::string header(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + "}\n";
}

std::vector<Wrong> wrong_npy_files() {
  const std::string bits(24, 'x');
  const std::string good = npy_bytes_of("<f4", "(2, 3)", bits);
  const std::vector<std::tuple<const char*, std::string, const char*>> files = {
      {"Empty", "", "is empty"},
      {"Text", "not an array", "is not a .npy file"},
      {"WrongMagic", "\x93NUMPZ" + good.substr(6), "is not a .npy file"},
      {"ManyZeros", std::string(1 << 12, '\0'), "is not a .npy file"},
      {"Version9", npy_bytes("{}", bits, 9), "has .npy version 9.0"},
      {"StartCut", good.substr(0, 9), "has 9 bytes, too few"},
      {"HeaderCut", good.substr(0, 60), "has 50 bytes after byte 10"},
      {"DataCut", good.substr(0, good.size() - 1), "has 23 bytes of data, but should have 24"},
      {"LengthOf4GiB", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14),
       "says that its header has 4,294,967,295"},
      {"LongHeader", npy_bytes(std::string(80000, '{'), bits, 2), "has a header of 80,000 bytes"},
      {"DeepHeader", npy_bytes(std::string(60000, '{'), bits), "should have a string in quotes"},
      {"Integers", npy_bytes_of("<i4", "(2, 3)", bits), "has type '<i4'"},
      {"Objects", npy_bytes_of("|O", "(2, 3)", bits), "has type '|O'"},
      {"Booleans", npy_bytes_of("|b1", "(24,)", bits), "has type '|b1'"},
      {"Strings", npy_bytes_of("<U3", "(2,)", bits), "has type '<U3'"},
      {"Complex", npy_bytes_of("<c8", "(3,)", bits), "has type '<c8'"},
      {"Structured", npy_bytes(header("[('a', '<f4')]", "False", "(6,)"), bits), "has a structured type"},
      {"BadUtf8", npy_bytes(header("'\xff\xfe'", "False", "(6,)"), bits), "has type"},
      {"NegativeShape", npy_bytes_of("<f4", "(-2, -3)", bits), "should have a size (digits)"},
      {"TwoPower62Elements", npy_bytes_of("<f4", "(4611686018427387904,)", bits), "takes 2^63 bytes or more"},
      {"SizeAboveTwoPower63", npy_bytes_of("<f4", "(99999999999999999999,)", bits), "above 2^63 - 1"},
      {"ProductWrapsToTheSize", npy_bytes_of("<f4", "(4294967296, 4294967296, 6)", bits), "takes 2^63 bytes or more"},
      {"Terabytes", npy_bytes_of("<f4", "(1099511627776,)", bits), "should have 4,398,046,511,104"},
      {"TooManyAxes", npy_bytes(header("'<f4'", "True", "(" + std::string(130, '1') + ")"), bits), "has"},
      {"FortranCut", npy_bytes(header("'>f4'", "True", "(2, 4)"), bits), "has 24 bytes of data, but should have 32"},
      {"NoAxis", npy_bytes_of("<f4", "()", "abcd"), "has shape (), but should have an axis to normalise"},
      {"NoColumns", npy_bytes_of("<f4", "(2, 0)", ""), "normalized_shape is (0)"},
  };
  std::vector<Wrong> wrong;
  for (const auto& [name, bytes, error] : files) {
    const auto make = [bytes = bytes] { return bytes; };
    wrong.push_back({name, make, {"apply", "BAD", "-o", "Y"}, error});
    wrong.push_back({name, make, {"apply", "-", "-o", "Y"}, error});
    if (std::string_view(name).starts_with("No")) continue;
    wrong.push_back({name, make, {"apply", "X", "-o", "Y", "--weight", "BAD"}, error});
  }
  return wrong;
}

std::vector<Wrong> wrong_safetensors_files() {
  const std::string eight(8, 'x');
  const auto one = [](const std::string& entry) { return "{" + entry + "}"; };
  const std::string good = safetensors_bytes(one(safetensors_entry("n.weight", "F32", "2", 0, 8)), eight);
  const std::vector<std::tuple<const char*, std::string, const char*>> files = {
      {"Empty", "", "is empty"},
      {"StartCut", good.substr(0, 7), "has 7 bytes, too few"},
      {"HeaderCut", good.substr(0, 40), "says that its header has"},
      {"DataCut", good.substr(0, good.size() - 1), "data_offsets [0, 8]"},
      {"DataLonger", good + "x", "has 9 bytes of data"},
      {"ANpyFile", npy_bytes_of("<f4", "(2,)", eight), "is not a .safetensors file"},
      {"HeaderOfTwoPower60", safetensors_bytes("{}", eight, std::uint64_t{1} << 60),
       "says that its header has 1,152,921"},
      {"HeaderOfAllOnes", safetensors_bytes("{}", eight, ~std::uint64_t{0}), "says that its header has 18,446,744"},
      {"DeepObjects", safetensors_bytes("{\"a\":{\"dtype\":{\"a\":{\"a\":{}}}}}", eight), "has an object for 'dtype'"},
      {"BadUtf8", safetensors_bytes(one("\"\xff\":1"), eight), "is not JSON in UTF-8"},
      {"ControlCharacters", safetensors_bytes("{\"a\\n\\u001b[31m\":1}", eight), "'a??[31m'"},
      {"Overlap",
       safetensors_bytes(
           "{" + safetensors_entry("a", "F32", "2", 0, 8) + "," + safetensors_entry("b", "F32", "1", 4, 8) + "}",
           eight),
       "has tensor 'b' at offset 4"},
      {"WrongSize", safetensors_bytes(one(safetensors_entry("a", "F64", "2", 0, 8)), eight), "should have 16"},
      {"Negative", safetensors_bytes(one(safetensors_entry("a", "F32", "-2", 0, 8)), eight), "has -2 for 'shape'"},
      {"NoNorms", safetensors_bytes(one(safetensors_entry("a", "F32", "2", 0, 8)), eight), "has no norms"},
  };
  std::vector<Wrong> wrong;
  for (const auto& [name, bytes, error] : files) {
    wrong.push_back({name, [bytes = bytes] { return bytes; }, {"apply", "X", "-o", "Y", "--params", "BAD"}, error});
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

// As large as is read at all.
std::vector<Wrong> large_safetensors_files() {
  const auto of = [](const char* name, std::function<std::string()> bytes, const char* error) {
    return Wrong{name, std::move(bytes), {"apply", "X", "-o", "Y", "--params", "BAD"}, error};
  };
  constexpr std::size_t kMebi = std::size_t{1} << 20;
  return {
      of(
          "HeaderOf32MiB", [] { return safetensors_bytes(repeated("{", 32 * kMebi), ""); },
          "has a header of 33,554,432 bytes"),
      of(
          "DeepJson", [] { return safetensors_bytes("{\"a\":" + repeated("[", 15 * kMebi), ""); }, "has an array"),
      of("ManyTensors", many_tensors, "at offset 0, but should have it at 4"),
      of(
          "ManyAxes", [] { return safetensors_bytes("{\"a\":{\"shape\":[" + repeated("1,", 7 * kMebi) + "1]}}", ""); },
          "has not all of 'dtype'"),
      of(
          "ManyDigits", [] { return safetensors_bytes("{\"a\":{\"shape\":[" + repeated("1", 15 * kMebi) + "]}}", ""); },
          "is not JSON")};
}

std::vector<Wrong> wrong_options() {
  const auto with = [](Words options) {
    Words words{"apply", "X", "-o", "Y"};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  };
  const auto none = [] { return std::string(); };
  return {
      {"NanEps", none, with({"--eps", "nan"}), "eps is nan"},
      {"InfiniteEps", none, with({"--eps", "inf"}), "eps is inf"},
      {"NegativeEps", none, with({"--eps=-1"}), "eps is -1"},
      {"EpsOfLetters", none, with({"--eps", "1e"}), "--eps is '1e'"},
      {"EpsBelowTheRange", none, with({"--eps", "1e-400"}), "--eps is '1e-400', which is out of the range of f64"},
      {"EpsOfTwoSigns", none, with({"--eps", "+-1"}), "--eps is '+-1', but should be a finite number >= 0"},
      {"StatisticOverX", none, with({"--mean", "X"}), "x.npy, but should be another file than X"},
      {"ResultOverTheWeight", none, {"apply", "X", "-o", "W3", "--weight", "W3"}, "another file than the weight"},
      {"ResultOverTheBias", none, {"apply", "X", "-o", "W3", "--bias", "W3"}, "another file than the bias"},
      {"StatisticOverTheModel", none, with({"--params", "MODEL", "--name", "a.norm", "--rstd", "MODEL"}),
       "another file than that of --params"},
      {"AxisPastTheLast", none, with({"--axes", "2"}), "--axes names axis 2, but"},
      {"AxisBeforeTheFirst", none, with({"--axes", "-3"}), "--axes names axis -3, but"},
      {"AxisTwice", none, with({"--axes", "1,-1"}), "--axes is '1,-1', but should name axis 1 once"},
      {"AxesOfLetters", none, with({"--axes", "last"}), "--axes is 'last', but should be axes"},
      {"AxesEmpty", none, with({"--axes", ""}), "--axes"},
      {"AxesAndShape", none, with({"--axes", "1", "--normalized-shape", "3"}), "only one of them can be"},
      {"WeightOfOtherAxes", none, with({"--axes", "0", "--weight", "W3"}), "weight has shape (3), but"},
      {"ShapeTooLong", none, with({"--normalized-shape", "1,2,3"}), "--normalized-shape is (1, 2, 3), but"},
      {"UnknownDtype", none, with({"--dtype", "f8"}), "--dtype is 'f8', but should be f64, f32, bf16 or f16"},
      {"ParamsAndWeight", none, with({"--params", "MODEL", "--weight", "W3"}),
       "--params is given with --weight or --bias"},
      {"ParamsAndBias", none, with({"--params", "MODEL", "--bias", "W3"}), "--params is given with --weight or --bias"},
      {"NameAlone", none, with({"--name", "a"}), "--name is given, but --params is not"},
      {"NameMissing", none, with({"--params", "MODEL"}), "has 2 norms, so --name should say which: a.norm, b.norm"},
      {"NameUnknown", none, with({"--params", "MODEL", "--name", "b.nrom"}),
       "has no weight or bias of 'b.nrom'; near it, "
       "of 2 norms: b.norm, a.norm"},
      {"NameOfIntegers", none, with({"--params", "MODEL", "--name", "ids"}), "has tensor 'ids.weight' of type I64"},
      {"ParamsMissing", none, with({"--params", "NONE"}), "cannot be read: No such file"},
      {"WeightFromStandardInput", none, with({"--weight", "-"}), "only input tensors can be standard input"},
      {"TwoStandardOutputs", none, {"apply", "X", "-o", "-", "--mean", "-"}, "--mean is -, but should be another file"},
      {"JsonAndStandardOutput", none, {"apply", "X", "-o", "-", "--json"}, "--json goes to standard output"},
      {"JsonAndStatistics", none, with({"--json", "--rstd", "-"}), "--json goes to standard output"},
  };
}

std::string name_of(const ::testing::TestParamInfo<Wrong>& test) {
  const Words& words = test.param.arguments;
  return std::string(test.param.name) + (words.back() == "BAD" ? "AsWeight" : words[1] == "-" ? "AsStandardInput" : "");
}

INSTANTIATE_TEST_SUITE_P(Npy, CliRefused, ::testing::ValuesIn(wrong_npy_files()), name_of);
INSTANTIATE_TEST_SUITE_P(Safetensors, CliRefused, ::testing::ValuesIn(wrong_safetensors_files()),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(LargeSafetensors, CliRefused, ::testing::ValuesIn(large_safetensors_files()),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(Options, CliRefused, ::testing::ValuesIn(wrong_options()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace evenorm
