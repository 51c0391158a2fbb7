// .npz files: arrays by name, and files that are damaged. NumPy writes archives in python/tests/test_check.py.
#include "cli/common/text.hpp"
#include "cli/files/npy.hpp"
#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

std::string little(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? value >> 8 * i & 0xFF : 0);
  return text;
}

// An archive of arrays as zipfile writes it, with sizes and places in zip64 fields if `wide`.
std::string npz_of(const std::vector<std::pair<std::string, std::string>>& arrays, bool wide = false, int method = 0) {
  std::string file, directory;
  for (const auto& [name, npy] : arrays) {
    const std::uint64_t size = npy.size(), at = file.size();
    const std::string member = name + ".npy", full = little(1, 2) + little(24, 2) + little(size, 8) + little(size, 8);
    const auto narrow = [&](std::uint64_t value) { return little(wide ? 0xFFFFFFFF : value, 4); };
    const std::string start = little(20, 2) + little(0, 2) + little(method, 2) + little(0, 8) + narrow(size) +
                              narrow(size) + little(member.size(), 2);
    file += "PK\3\4" + start + little(20, 2) + member + full.substr(0, 20) + npy;
    directory += "PK\1\2" + little(20, 2) + start + little(wide ? 28 : 0, 2) + little(0, 10) + narrow(at) + member +
                 (wide ? full + little(at, 8) : "");
  }
  const std::uint64_t at = file.size(), count = arrays.size(), size = directory.size();
  file += directory;
  const std::uint64_t wide_end = file.size();
  if (wide) {
    file += "PK\6\6" + little(44, 8) + little(0, 12) + little(count, 8) + little(count, 8) + little(size, 8) +
            little(at, 8);
    file += "PK\6\7" + little(0, 4) + little(wide_end, 8) + little(1, 4);
  }
  return file + "PK\5\6" + little(0, 4) + little(count, 2) + little(count, 2) + little(wide ? 0xFFFFFFFF : size, 4) +
         little(wide ? 0xFFFFFFFF : at, 4) + little(0, 2);
}

const std::string kX = npy_bytes_of("<f4", "(3,)", bytes_of<float>({1, 2, 3}));
const std::string kY = npy_bytes_of("<f8", "(2,)", bytes_of<double>({4, 5}));

class Npz : public InFolder {};

TEST_F(Npz, FindsAnArrayByItsName) {
  for (const bool wide : {false, true}) {
    write("run.npz", npz_of({{"x", kX}, {"y", kY}}, wide));
    EXPECT_EQ(cli::read_npy(folder / "run.npz:x").as<float>()[2], 3);
    EXPECT_EQ(cli::read_npy(folder / "run.npz:y").as<double>()[1], 5);
  }
  write("one.npz", npz_of({{"x", kX}}));
  EXPECT_EQ(cli::read_npy(folder / "one.npz").shape(), (std::vector<std::int64_t>{3}));
  refused("apply run.npz -o y.npy", "run.npz has no array ''; run.npz:NAME names one of: x, y");
  refused("apply run.npz:z -o y.npy", "run.npz has no array 'z'; run.npz:NAME names one of: x, y");
  refused("apply run.npz:x -o run.npz", "-o is run.npz, but outputs are .npy files");
  write("packed.npz", npz_of({{"x", kX}}, false, 8));
  refused("apply packed.npz:x -o y.npy", "packed.npz has a compressed x, but it should be as numpy.savez writes it");
}

// A damaged archive is refused, or has an array; it is never read beyond its end.
TEST_F(Npz, SurvivesAnyDamage) {
  for (const bool wide : {false, true}) {
    const std::string whole = npz_of({{"x", kX}, {"y", kY}}, wide);
    const auto attempt = [&](const std::string& bytes) {
      write("damaged.npz", bytes);
      try {
        (void)cli::read_npy(folder / "damaged.npz:y");
      } catch (const cli::Failure& failure) {
        EXPECT_THAT(failure.what(), HasSubstr("damaged.npz"));
      }
    };
    for (std::size_t length = 0; length < whole.size(); length += 7) attempt(whole.substr(0, length));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (i >= 128 && whole.find("PK\1\2") > i) continue;  // most of the arrays themselves
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (i % 3 == 0 ? 1 : i % 3 == 1 ? 0x80 : 0xFF));
      attempt(bytes);
    }
  }
}

}  // namespace
}  // namespace evenorm::testing
