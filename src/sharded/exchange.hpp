// The all-gather of messages between the processes of a norm, and how all of them fail if one does.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "problem/printable.hpp"
#include "sharded/steps.hpp"

namespace evenorm::internal {

constexpr std::size_t kTextBytes = 192;

// The start of every message: whether its process has failed, and why. It is sent as it lies in memory.
struct Word {
  std::uint32_t failed = 0;
  std::uint32_t pass = 0;
  char text[kTextBytes] = {};

  void fail(std::string_view what) {
    constexpr std::string_view kCut = "...";
    failed = 1;
    const std::size_t n = std::min(what.size(), kTextBytes);
    std::copy_n(what.begin(), n, text);
    if (n < what.size()) std::copy(kCut.begin(), kCut.end(), text + kTextBytes - kCut.size());
  }
};
constexpr std::size_t kWordNumbers = sizeof(Word) / sizeof(double);
static_assert(sizeof(Word) % sizeof(double) == 0);

constexpr std::size_t kMostBytes = std::size_t{1} << 47U;  // of all messages: the address space of a process
constexpr std::size_t kMostProcesses = kMostBytes / (2 * sizeof(Word));

inline const Communicator& checked(const Communicator& c) {
  if (c.size > kMostProcesses) {
    throw Error("the communicator has size " + std::to_string(c.size) + ", but it should be at most " +
                std::to_string(kMostProcesses));
  }
  if (c.rank >= c.size) {
    throw Error("rank is " + std::to_string(c.rank) + ", but the communicator has size " + std::to_string(c.size));
  }
  if (c.all_gather == nullptr) throw Error("all_gather is null");
  return c;
}

// Refuses an integer of another process's message that is not in [least, most].
inline void check_integer(std::size_t process, const char* field, std::int64_t value, std::int64_t least,
                          std::int64_t most) {
  if (value >= least && value <= most) return;
  const std::string from = std::to_string(least);
  refuse_message(process, field, std::to_string(value),
                 least == most ? from : "from " + from + " to " + std::to_string(most));
}

// Throws Error if another process has failed, or if its word is invalid. last_pass: the largest valid `pass`.
inline void check_word(const Word& word, std::size_t process, Pass last_pass) {
  check_integer(process, "failed", word.failed, 0, 1);
  if (word.failed != 0) {
    const std::string_view text(word.text, strnlen(word.text, kTextBytes));
    throw Error("process " + std::to_string(process) + " has failed: " + printable(text));
  }
  check_integer(process, "pass", word.pass, 0, static_cast<std::int64_t>(last_pass));
  for (const char c : word.text) check_integer(process, "text", c, 0, 0);
}

// The all-gathers of some processes. All messages have one size, and begin with a Word.
class Exchange {
 public:
  // numbers: the size of a message, without its word. Throws Error if the communicator is invalid.
  Exchange(const Communicator& communicator, std::size_t numbers)
      : communicator_(checked(communicator)), mine_(kWordNumbers + numbers), all_(mine_.size() * communicator.size) {}

  std::size_t bytes() const { return mine_.size() * sizeof(double); }
  Messages received() const { return {all_.data() + kWordNumbers, mine_.size()}; }

  // Tells the other processes that this one has failed.
  void refuse(std::string_view why) {
    Word word;
    word.fail(why);
    gather(word);
  }

  // Calls work(numbers of this process's message), then gathers the messages. If a process fails, or runs another pass,
  // all throw. last_pass: the largest valid `pass`.
  template <class Work>
  void run(Pass pass, Pass last_pass, const Work& work) {
    try {
      work(std::span(mine_).subspan(kWordNumbers));
    } catch (const std::exception& error) {
      refuse(error.what());
      throw;
    }
    Word word;
    word.pass = static_cast<std::uint32_t>(pass);
    gather(word);
    if (std::memcmp(&all_[communicator_.rank * mine_.size()], mine_.data(), bytes()) != 0) {
      throw Error("all_gather has not returned this process's message in the place of process " +
                  std::to_string(communicator_.rank) + ", but messages should be in the order of the ranks");
    }
    for (std::size_t i = 0; i < communicator_.size; ++i) check_word(word_of(i), i, last_pass);
    const auto pass_of = [&](std::size_t process) {
      return word_of(process).pass == 0 ? " forward pass" : " backward pass";
    };
    for (std::size_t i = 1; i < communicator_.size; ++i) {
      if (word_of(i).pass == word_of(0).pass) continue;
      throw Error(std::string("process 0 runs its") + pass_of(0) + ", but process " + std::to_string(i) + " its" +
                  pass_of(i));
    }
  }

 private:
  void gather(const Word& word) {
    std::memcpy(mine_.data(), &word, sizeof word);
    const auto mine = std::as_bytes(std::span(mine_));
    communicator_.all_gather(communicator_.context, mine.data(), mine.size(),
                             std::as_writable_bytes(std::span(all_)).data());
  }
  Word word_of(std::size_t process) const {
    Word word;
    std::memcpy(static_cast<void*>(&word), &all_[process * mine_.size()], sizeof word);
    return word;
  }

  Communicator communicator_;
  std::vector<double> mine_, all_;
};

}  // namespace evenorm::internal
