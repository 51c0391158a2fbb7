// The command line's standard streams: data in pipes gives the bytes that files give; closed, full or unread streams;
// and the names and contents that it prints.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "cli/common/text.hpp"
#include "support/cli.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

class CliPipes : public InFolder {
 protected:
  CliPipes() : x(64 * 1024 * 6) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 2654435761U >> 11) % 1024) - 400;
    c_order = npy_bytes_of("<f4", "(64, 1024, 6)", bytes_of(x));
    write("x.npy", c_order);
    write("y.npy", "old");
  }

  std::string through_pipes(const std::string& input, const std::string& options, bool blocking = true) const {
    ProgramSetting setting{.input = input, .out_piped = true};
    setting.before_exec = [blocking] {
      if (blocking) return;
      fcntl(STDIN_FILENO, F_SETFL, O_RDONLY | O_NONBLOCK);
      fcntl(STDOUT_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK);
    };
    return output("apply - -o - " + options, setting);
  }
  std::string through_files(const std::string& input, const std::string& options) const {
    write("file.npy", input);
    done("apply file.npy -o result.npy " + options);
    return read("result.npy");
  }

  Floats x;
  std::string c_order;
};

TEST_F(CliPipes, GiveTheSameBytesAsFiles) {
  const std::string fortran_order = npy_bytes_of("<f4", "(64, 1024, 6)", bytes_of(x), true);
  for (const char* options : {"", "--axes 1", "--axes 0,2 --dtype f64", "--dtype bf16"}) {
    for (const std::string& file : {c_order, fortran_order}) {
      EXPECT_TRUE(through_pipes(file, options) == through_files(file, options));
    }
  }
  EXPECT_TRUE(through_pipes(c_order, "", false) == through_files(c_order, "")) << "non-blocking";
  // A tensor larger than what is read at once (cli/normalize.hpp), whose rows are strided.
  std::string data;
  for (int i = 0; i < 16; ++i) data += bytes_of(x);
  const std::string large = npy_bytes_of("<f4", "(65536, 96)", data, true);
  EXPECT_TRUE(through_pipes(large, "") == through_files(large, ""));
}

TEST_F(CliPipes, FilesOnStandardInputAndOutputStartAtTheirOffsets) {
  const std::string y = through_files(c_order, "");
  EXPECT_EQ(output("apply - -o -", {.in_path = folder / "x.npy"}), y);
  write("later", "before" + c_order);
  ProgramSetting setting{.in_path = folder / "later"};
  setting.before_exec = [] { lseek(STDIN_FILENO, 6, SEEK_SET); };
  EXPECT_EQ(output("apply - -o -", setting), y);
}

TEST_F(CliPipes, StatisticsMayBeTheOutput) {
  (void)through_files(c_order, "--mean mean.npy");
  EXPECT_EQ(output("apply x.npy -o /dev/null --mean -", {.in_path = "/dev/null"}), read("mean.npy"));
}

TEST_F(CliPipes, InputThatEndsEarlyOrIsTooLargeIsAnError) {
  const std::string apply = "apply - -o y.npy", cut = c_order.substr(0, c_order.size() - 5);
  const std::tuple<std::string, std::string, const char*> cases[] = {
      {cut, apply, "standard input ends at byte 1,572,987, but should have 1,572,992 bytes"},
      {cut, "grad x.npy - -o y.npy --dweight dw.npy --dbias db.npy", "standard input ends at byte 1,572,987, but"},
      {npy_bytes_of("<f4", "(64, 1000000000, 2)", ""), apply, "standard input ends at byte 128"},
      {npy_bytes_of("<f4", "(1000, 1000000)", ""), apply + " --axes 0",
       "standard input is a pipe whose rows are not contiguous: 1,000,000,000 elements would"},
      {npy_bytes_of("<f4", "(576460752303423488,)", ""), apply, "bytes of memory cannot be allocated"}};
  for (const auto& [bytes, line, error] : cases) {
    // Sanitizers report a lack of memory themselves.
    if (kSanitizersCost != 1 && std::string_view(error).starts_with("bytes of memory")) continue;
    refused(line, error, {.input = bytes});
  }
}

TEST_F(CliPipes, ReportAClosedOutputInOneLine) {
  ASSERT_EQ(mkfifo((folder / "out").c_str(), 0600), 0);
  std::thread reader([&] {
    const int fd = open((folder / "out").c_str(), O_RDONLY);
    char byte = 0;
    EXPECT_EQ(::read(fd, &byte, 1), 1);
    close(fd);
  });
  refused("apply x.npy -o -", "standard output: cannot be written: Broken pipe", {.out_path = folder / "out"});
  reader.join();
  ProgramSetting closed;
  closed.before_exec = [] { close(STDOUT_FILENO); };
  refused("apply x.npy -o -", "standard output: cannot be written: Bad file", closed);
  closed.before_exec = [] { close(STDIN_FILENO); };
  for (const char* line : {"apply - -o y.npy", "grad x.npy - -o y.npy"}) {
    refused(line, "standard input: cannot be read: Bad file descriptor", closed);
  }
  refused("apply x.npy -o -", "standard output: cannot be written: No space", {.out_path = "/dev/full"});
}

TEST_F(CliPipes, DoNotOverwriteAnInputThatIsRead) {
  for (const char* output : {"-", "/dev/stdout"}) {
    refused("apply x.npy -o " + std::string(output), "X and standard output are the same file",
            {.out_path = folder / "x.npy"});
  }
}

TEST_F(CliPipes, RejectTerminals) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal) + unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const auto soon = [] { alarm(5); };  // a terminal that nobody reads accepts little output
  refused("apply x.npy -o -", "standard output is a terminal", {.before_exec = soon, .out_path = name});
  refused("apply x.npy -o " + std::string(name), "is a terminal, but should be a file or pipe", {.before_exec = soon});
  refused("apply - -o y.npy", "standard input is a terminal", {.in_path = name});
  close(terminal);
}

// --- streams that cannot be used -----------------------------------------------------------------------------------

enum class Stream { closed, full, unread };
constexpr Stream kBadStreams[] = {Stream::closed, Stream::full, Stream::unread};

// The setting that makes `descriptor` unwritable in the child, before exec.
ProgramSetting with_spoilt(Stream how, int descriptor) {
  return {.before_exec = [how, descriptor] {
    int pipe_ends[2] = {-1, -1};
    if (how == Stream::closed) {
      close(descriptor);
    } else if (how == Stream::full) {
      dup2(open("/dev/full", O_WRONLY), descriptor);
    } else if (pipe2(pipe_ends, O_CLOEXEC) == 0) {
      dup2(pipe_ends[1], descriptor);
      close(pipe_ends[0]);
      close(pipe_ends[1]);
    }
  }};
}

class CliStreams : public InFolder {
 protected:
  CliStreams() {
    npy = npy_bytes_of("<f4", "(2, 3)", bytes_of<float>({4, 2, 8, 1, 2, 4}));
    write("x.npy", npy);
    write("y.npy", "old");
    write("dw.npy", "old");
  }

  const std::string apply = "apply x.npy -o y.npy", grad = "grad x.npy x.npy -o y.npy --dweight dw.npy";
  std::string npy;
};

TEST_F(CliStreams, AnErrorThatCannotBeWrittenStillSetsTheStatus) {
  const std::string cases[] = {"appply",
                               "info --colour",
                               "explain 4,x",
                               "apply none.npy -o y.npy",
                               apply + " --mean /dev/full",
                               grad + " --dbias /dev/full"};
  const auto before = folder.state();
  for (const Stream how : kBadStreams) {
    for (const std::string& line : cases) {
      const ProgramRun run = run_line(line, with_spoilt(how, STDERR_FILENO));
      EXPECT_EQ(run.status, 2) << line << " signal " << run.signal;
      EXPECT_EQ(run.out, "");
    }
  }
  EXPECT_EQ(folder.state(), before);
}

// Files that the program opens must not get the number of a closed stream.
TEST_F(CliStreams, MessagesDoNotGoIntoOutputs) {
  ASSERT_EQ(mkfifo((folder / "out").c_str(), 0600), 0);
  const auto received = [&](const std::string& input, const char* options, int closed, int status) {
    std::string bytes;
    std::thread reader([&] { bytes = read("out"); });
    ProgramSetting setting = with_spoilt(Stream::closed, closed);
    setting.input = input;
    EXPECT_EQ(run_line("apply - -o out" + std::string(options), setting).status, status);
    reader.join();
    return bytes;
  };
  const std::string y = received(npy, "", STDIN_FILENO + 10, 0);
  EXPECT_EQ(received(npy + "x", "", STDERR_FILENO, 0), y);  // bytes after the array are not read
  EXPECT_EQ(received(npy, " --json", STDOUT_FILENO, 2), y);
}

TEST_F(CliStreams, JsonThatCannotBeWrittenKeepsTheOutputs) {
  for (const Stream how : kBadStreams) {
    for (const std::string& line : {apply, grad, std::string("explain 4,2,8 --html y.npy")}) {
      refused(line + " --json", "standard output: ", with_spoilt(how, STDOUT_FILENO));
    }
  }
}

TEST_F(CliStreams, AClosedPipeEndsItSilently) {
  for (const char* line : {"explain 4,2,8", "explain 4,2,8 --json", "explain --slips", "explain 4,2,8 --grad 1,0,-1",
                           "info", "info --json", "--help", "apply --help", "--version", "completion bash", "manual"}) {
    const ProgramRun run = run_line(line, with_spoilt(Stream::unread, STDOUT_FILENO));
    EXPECT_EQ(run.signal, SIGPIPE) << line << " status " << run.status;
    EXPECT_EQ(run.err, "");
  }
}

// The output is larger than the pipe, which is non-blocking and read late.
TEST_F(CliStreams, ANonBlockingPipeReceivesEverything) {
  ASSERT_EQ(mkfifo((folder / "out").c_str(), 0600), 0);
  std::string numbers = "[";
  for (int i = 0; i < 4000; ++i) numbers += std::to_string(i % 7) + " ";
  const Words words{"explain", numbers + "]", "--json"};
  const std::string expected = output_of(words);
  EXPECT_GT(expected.size(), std::size_t{1} << 17);
  std::string received;
  std::thread reader([&] {
    std::ifstream pipe(folder / "out", std::ios::binary);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    received.assign(std::istreambuf_iterator<char>(pipe), {});
  });
  ProgramSetting setting{.out_path = folder / "out"};
  setting.before_exec = [] { fcntl(STDOUT_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK); };
  (void)output_of(words, setting);
  reader.join();
  EXPECT_EQ(received, expected);
}

// Expects valid UTF-8 and no control characters except the final newline.
void expect_tame(const std::string& line) {
  ASSERT_FALSE(line.empty());
  EXPECT_NO_THROW((void)nlohmann::json(line).dump()) << line;
  for (std::size_t i = 0; i + 1 < line.size(); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]), next = static_cast<unsigned char>(line[i + 1]);
    EXPECT_FALSE(byte < 0x20 || byte == 0x7f || (byte == 0xc2 && next < 0xa0)) << i << " in " << line;
  }
}

TEST_F(CliStreams, EscapesControlCharactersInNamesAndContents) {
  const std::string wild = "a\x1b[31m\xc2\x9b\x33\xff\xc0\x80\xed\xa0\x80\x7f\xf5\xe2\x82.npy";
  const ProgramRun named = run_evenorm({"apply", folder / wild, "-o", folder / "y.npy"});
  EXPECT_THAT(named.err, HasSubstr("a?[31m??3???????"));
  expect_tame(named.err);
  expect_tame(run_evenorm({"explain", "4 2 " + wild}).err);
  expect_tame(run_evenorm({"apply", folder / "x.npy", "--" + wild}).err);
  expect_tame(run_evenorm({"info"}, {.environment = {"EVENORM_TARGET=" + wild}}).err);
  write("wild.npy", npy_bytes_of("<f\xc2\x9b\xff", "(2, 3)", ""));
  expect_tame(run_evenorm({"apply", folder / "wild.npy", "-o", folder / "y.npy"}).err);
  expect_tame(output_of({"apply", folder / "x.npy", "-o", folder / wild, "--json"}));
}

TEST(CliText, PrintableKeepsUtf8AndNoControls) {
  EXPECT_EQ(cli::printable("größe Ω 漢 😀 \xc2\xa0|"), "größe Ω 漢 😀 \xc2\xa0|");
  EXPECT_EQ(cli::printable("\xc2\x80\xc2\x85\xc2\x9b\xc2\x9f|\x7f\t"), "????????|??");
  EXPECT_EQ(cli::printable("\u2027\u2028\u2029\u202a"), "\u2027??????\u202a");  // some terminals end a line there
  // A lone continuation byte, an overlong form, a surrogate, a code point above U+10FFFF, and a truncated sequence.
  EXPECT_EQ(cli::printable("\x80|\xc1\xbf|\xe0\x9f\xbf|\xed\xa0\x80|\xf4\x90\x80\x80|\xf0\x8f\xbf\xbf|\xe2\x82"),
            "?|??|???|???|????|????|??");
  EXPECT_EQ(cli::printable("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"), "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf");
  EXPECT_EQ(cli::printable("abcdef", 4), "abcd...");
  EXPECT_EQ(cli::printable("abcü", 4), "abc...");  // never half a character
  EXPECT_EQ(cli::printable("\xbf\xbf\xbf\xbf\xbf\xbf", 2), "??...");
}

}  // namespace
}  // namespace evenorm::testing
