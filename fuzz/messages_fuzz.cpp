// Fuzzes the messages of other processes. The communicator sends this process's own message for each of them, with some
// bytes changed. A pass then either succeeds or refuses with one line and writes nothing. A process always refuses if
// its own message was changed.
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "evenorm/sharded.hpp"
#include "fuzz/norms.hpp"

namespace evenorm::fuzz {
namespace {

constexpr std::size_t kCols = 232, kAgreement = 240;  // the offset of the columns in the agreement, and its size
constexpr double kUnwritten = 0.1;                    // no 32-bit half is 0

// A communicator that changes some bytes or numbers of some messages.
struct Engine {
  Choices& choices;
  std::size_t rank, size;
  std::int64_t cols_of_others;
  bool own_changed = false;

  void spoil(std::byte* all, std::size_t bytes) {
    constexpr double kNumbers[] = {-1, 2, 0.5, -1e5, 1e5, 1e300, -0x1p-1074, HUGE_VAL, -HUGE_VAL, NAN};
    for (std::size_t i = choices.below(4); i > 0; --i) {
      std::byte* const message = all + choices.below(size) * bytes;
      if (choices.one_in(2)) {
        const double number = kNumbers[choices.below(std::size(kNumbers))];
        std::memcpy(message + choices.below(bytes / sizeof number) * sizeof number, &number, sizeof number);
      } else {
        message[choices.below(bytes)] = std::byte(choices.below(256));
      }
    }
  }

  static void all_gather(void* context, const std::byte* mine, std::size_t bytes, std::byte* all) {
    auto& self = *static_cast<Engine*>(context);
    for (std::size_t i = 0; i < self.size; ++i) {
      std::memcpy(all + i * bytes, mine, bytes);
      if (bytes == kAgreement && i != self.rank) {
        std::memcpy(all + i * bytes + kCols, &self.cols_of_others, sizeof self.cols_of_others);
      }
    }
    self.spoil(all, bytes);
    self.own_changed = std::memcmp(all + self.rank * bytes, mine, bytes) != 0;
  }
};

// Returns true if work() succeeded. Otherwise it refused, and `output` is unchanged.
template <class Work>
bool is_done(const Engine& engine, const std::vector<double>& output, const Work& work) {
  const std::vector<double> before = output;
  try {
    work();
  } catch (const Error& error) {
    expect_one_line(error.what());
    expect(std::memcmp(output.data(), before.data(), output.size() * sizeof(double)) == 0, "a refusal writes nothing");
    return false;
  }
  expect(!engine.own_changed, "a process notices that its own message was changed");
  return true;
}

}  // namespace

void messages(Input input) {
  Choices choices(input);
  const std::size_t rows = 1 + choices.below(3), size = 1 + choices.below(4);
  const auto cols = static_cast<std::int64_t>(choices.one_in(4) ? 1024 * choices.below(4) : choices.below(9));
  Engine engine{choices, choices.below(size), size, static_cast<std::int64_t>(1024 * choices.below(3))};
  const std::int64_t shape[] = {static_cast<std::int64_t>(rows), cols};
  const std::span<const std::int64_t> outer(shape, 1), normalized(&shape[1], 1);
  std::vector<double> x(rows * static_cast<std::size_t>(cols) + 1), y(x.size(), kUnwritten), dx(y),
      rstd(rows, kUnwritten);
  contracts::Random random(choices.word());
  for (double& value : x) value = random.uniform() - 0.3;
  const DType dtype = choices.one_in(2) ? DType::f32 : DType::f64;
  Forward forward{.kind = choices.one_in(2) ? Kind::rms : Kind::layer,
                  .x = {x.data(), dtype, shape},
                  .y = {y.data(), dtype, shape},
                  .normalized_shape = normalized,
                  .rstd = {rstd.data(), DType::f64, outer}};
  const Backward backward{.kind = forward.kind,
                          .x = forward.x,
                          .dy = forward.x,
                          .normalized_shape = normalized,
                          .dx = {dx.data(), dtype, shape}};
  std::vector<Moments> moments(rows);
  std::optional<ShardedNorm> norm;
  const Communicator communicator{engine.rank, size, &engine, Engine::all_gather};
  if (!is_done(engine, y, [&] { norm.emplace(forward, communicator); })) return;
  if (is_done(engine, y, [&] { norm->run(forward, moments); }))
    expect(cols == 0 || y[0] != kUnwritten, "a pass writes y");
  is_done(engine, dx, [&] { norm->run(backward, moments); });
}

}  // namespace evenorm::fuzz
