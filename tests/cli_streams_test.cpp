// The command line with closed, full or unread standard streams, and the names and contents that it prints to them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/common/text.hpp"
#include "support/program.hpp"

namespace evenorm::testing {
namespace {

using ::testing::HasSubstr;

enum class Stream { closed, full, unread };
constexpr Stream kBadStreams[] = {Stream::closed, Stream::full, Stream::unread};

// Makes `descriptor` unwritable. Runs in the child before exec.
void spoil(Stream how, int descriptor) {
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
}

ProgramSetting with_spoilt(Stream how, int descriptor) {
  return {.before_exec = [how, descriptor] { spoil(how, descriptor); }};
}

class CliStreams : public ::testing::Test {
 protected:
  CliStreams() {
    npy = npy_bytes_of("<f4", "(2, 3)", bytes_of<float>({4, 2, 8, 1, 2, 4}));
    write_file(folder / "x.npy", npy);
    write_file(folder / "y.npy", "old");
    write_file(folder / "dw.npy", "old");
  }

  Words apply() const { return {"apply", folder / "x.npy", "-o", folder / "y.npy"}; }
  Words grad() const {
    return {"grad", folder / "x.npy", folder / "x.npy", "-o", folder / "y.npy", "--dweight", folder / "dw.npy"};
  }
  void expect_untouched() const {
    EXPECT_EQ(read_file(folder / "x.npy"), npy);
    EXPECT_EQ(read_file(folder / "y.npy"), "old");
    EXPECT_EQ(read_file(folder / "dw.npy"), "old");
    EXPECT_THAT(folder.names(), ::testing::ElementsAre("dw.npy", "x.npy", "y.npy"));
  }

  TemporaryFolder folder;
  std::string npy;
};

TEST_F(CliStreams, AnErrorThatCannotBeWrittenStillSetsTheStatus) {
  const Words cases[] = {{"appply"},
                         {"info", "--colour"},
                         {"explain", "4 2 x"},
                         {"apply", folder / "none.npy", "-o", folder / "y.npy"},
                         apply() + Words{"--mean", "/dev/full"},
                         grad() + Words{"--dbias", "/dev/full"}};
  for (const Stream how : kBadStreams) {
    for (const Words& words : cases) {
      const ProgramRun run = run_evenorm(words, with_spoilt(how, STDERR_FILENO));
      EXPECT_EQ(run.status, 2) << words[0] << " signal " << run.signal;
      EXPECT_EQ(run.out, "");
    }
    expect_untouched();
  }
}

// Files that the program opens must not get the number of a closed stream.
TEST_F(CliStreams, MessagesDoNotGoIntoOutputs) {
  ASSERT_EQ(mkfifo((folder / "in").c_str(), 0600) + mkfifo((folder / "out").c_str(), 0600), 0);
  const auto received = [&](const std::string& input, const Words& options, int closed, int status) {
    std::string bytes;
    std::thread reader([&] { bytes = read_file(folder / "out"); });
    std::thread writer([&] { write_file(folder / "in", input); });
    ProgramSetting setting = with_spoilt(Stream::closed, closed);
    setting.in_path = folder / "in";
    EXPECT_EQ(run_evenorm(Words{"apply", "-", "-o", folder / "out"} + options, setting).status, status);
    writer.join();
    reader.join();
    return bytes;
  };
  const std::string y = received(npy, {}, STDIN_FILENO + 10, 0);
  EXPECT_EQ(received(npy + "x", {}, STDERR_FILENO, 0), y);  // bytes after the array are not read
  EXPECT_EQ(received(npy, {"--json"}, STDOUT_FILENO, 2), y);
}

TEST_F(CliStreams, NoFileIsUsedAsStandardInput) {
  const ProgramRun run =
      run_evenorm({"grad", folder / "x.npy", "-", "-o", folder / "y.npy"}, with_spoilt(Stream::closed, STDIN_FILENO));
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, "evenorm: standard input: cannot be read: Bad file descriptor\n");
  expect_untouched();
}

TEST_F(CliStreams, JsonThatCannotBeWrittenKeepsTheOutputs) {
  for (const Stream how : kBadStreams) {
    for (const Words& words : {apply() + Words{"--json"}, grad() + Words{"--json"}}) {
      const ProgramRun run = run_evenorm(words, with_spoilt(how, STDOUT_FILENO));
      EXPECT_EQ(run.status, 2) << run.signal;
      EXPECT_TRUE(run.one_line()) << run.err;
      EXPECT_THAT(run.err, HasSubstr("standard output: "));
      expect_untouched();
    }
  }
}

TEST_F(CliStreams, AClosedPipeEndsItSilently) {
  const Words cases[] = {{"explain", "4 2 8"},
                         {"explain", "4 2 8", "--json"},
                         {"explain", "--slips"},
                         {"explain", "4 2 8", "--grad", "1 0 -1"},
                         {"info"},
                         {"info", "--json"},
                         {"--help"},
                         {"apply", "--help"},
                         {"--version"},
                         {"completion", "bash"},
                         {"manual"}};
  for (const Words& words : cases) {
    const ProgramRun run = run_evenorm(words, with_spoilt(Stream::unread, STDOUT_FILENO));
    EXPECT_EQ(run.signal, SIGPIPE) << words[0] << " status " << run.status;
    EXPECT_EQ(run.err, "");
  }
}

// The output is larger than the pipe, which is non-blocking and read late.
TEST_F(CliStreams, ANonBlockingPipeReceivesEverything) {
  ASSERT_EQ(mkfifo((folder / "out").c_str(), 0600), 0);
  std::string numbers = "[";
  for (int i = 0; i < 4000; ++i) numbers += std::to_string(i % 7) + " ";
  const Words words{"explain", numbers + "]", "--json"};
  const std::string expected = run_evenorm(words).out;
  EXPECT_GT(expected.size(), std::size_t{1} << 17);
  std::string received;
  std::thread reader([&] {
    const int fd = open((folder / "out").c_str(), O_RDONLY | O_CLOEXEC);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    char bytes[4096];
    for (ssize_t got = read(fd, bytes, sizeof bytes); got > 0; got = read(fd, bytes, sizeof bytes)) {
      received.append(bytes, static_cast<std::size_t>(got));
    }
    close(fd);
  });
  ProgramSetting setting{.out_path = folder / "out"};
  setting.before_exec = [] { fcntl(STDOUT_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK); };
  const ProgramRun run = run_evenorm(words, setting);
  reader.join();
  EXPECT_EQ(run.status, 0) << run.err;
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
  write_file(folder / "wild.npy", npy_bytes_of("<f\xc2\x9b\xff", "(2, 3)", ""));
  expect_tame(run_evenorm({"apply", folder / "wild.npy", "-o", folder / "y.npy"}).err);
  const ProgramRun as_json = run_evenorm({"apply", folder / "x.npy", "-o", folder / wild, "--json"});
  EXPECT_EQ(as_json.status, 0) << as_json.err;
  expect_tame(as_json.out);
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
