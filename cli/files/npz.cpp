#include "cli/files/npz.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

// Bytes of the archive. Numbers are little-endian.
class Record {
 public:
  Record(InputFile& file, std::uint64_t offset, std::uint64_t bytes) : file_(file) {
    if (bytes > kMost || offset > *file.size() || bytes > *file.size() - offset) refuse();
    bytes_.resize(bytes);
    file.read(offset, bytes_);
  }

  std::size_t size() const { return bytes_.size(); }
  template <class T>
  T at(std::size_t place) const {
    T value;
    std::memcpy(&value, within(place, sizeof value), sizeof value);
    return value;
  }
  std::string text(std::size_t place, std::size_t length) const {
    return {reinterpret_cast<const char*>(within(place, length)), length};
  }
  void expect(std::size_t place, std::uint32_t signature) const {
    if (at<std::uint32_t>(place) != signature) refuse();
  }
  [[noreturn]] void refuse() const { throw Failure(fmt::format("{} is not a whole .npz file", file_.path())); }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 26U;  // of a directory, which lists some 10^6 arrays there

  const std::byte* within(std::size_t place, std::size_t length) const {
    if (place > bytes_.size() || length > bytes_.size() - place) refuse();
    return bytes_.data() + place;
  }

  InputFile& file_;
  std::vector<std::byte> bytes_;
};

constexpr std::uint32_t kWide = 0xFFFFFFFF;  // the number is in a zip64 record

// The directory of all members, which is at the end. NumPy writes no comment after it.
Record directory_of(InputFile& file) {
  constexpr std::uint64_t kEnd = 22, kLocator = 20, kWideEnd = 56;
  const std::uint64_t size = *file.size();
  const Record end(file, size - std::min(size, kEnd), kEnd);
  end.expect(0, 0x06054b50);
  if (end.at<std::uint32_t>(16) != kWide) return {file, end.at<std::uint32_t>(16), end.at<std::uint32_t>(12)};
  const Record locator(file, size - std::min(size, kEnd + kLocator), kLocator);
  locator.expect(0, 0x07064b50);
  const Record wide(file, locator.at<std::uint64_t>(8), kWideEnd);
  wide.expect(0, 0x06064b50);
  return {file, wide.at<std::uint64_t>(48), wide.at<std::uint64_t>(40)};
}

struct Member {
  std::string name;
  std::uint16_t method;
  std::uint64_t size, header;  // the offset of its own header
};

// The member at a place of the directory, which moves behind it.
Member member_at(const Record& directory, std::size_t& place) {
  directory.expect(place, 0x02014b50);
  const std::size_t name = directory.at<std::uint16_t>(place + 28), extra = directory.at<std::uint16_t>(place + 30);
  Member member{directory.text(place + 46, name), directory.at<std::uint16_t>(place + 10),
                directory.at<std::uint32_t>(place + 24), directory.at<std::uint32_t>(place + 42)};
  const bool wide_packed = directory.at<std::uint32_t>(place + 20) == kWide;
  const std::size_t end = place + 46 + name + extra;
  for (std::size_t at = place + 46 + name; at + 4 <= end; at += 4 + directory.at<std::uint16_t>(at + 2)) {
    if (directory.at<std::uint16_t>(at) != 1) continue;  // the zip64 field has the numbers that are missing
    std::size_t next = at + 4;
    const auto widen = [&](std::uint64_t& number) {
      if (number != kWide) return;
      number = directory.at<std::uint64_t>(next);
      next += sizeof number;
    };
    widen(member.size);
    if (wide_packed) next += sizeof(std::uint64_t);
    widen(member.header);
  }
  place = end + directory.at<std::uint16_t>(place + 32);
  if (member.name.ends_with(".npy")) member.name.resize(member.name.size() - 4);
  return member;
}

}  // namespace

std::optional<NpzPath> npz_path(const std::string& path) {
  const std::size_t end = path.rfind(".npz");
  if (end == std::string::npos) return std::nullopt;
  const std::string rest = path.substr(end + 4);
  if (!rest.empty() && rest[0] != ':') return std::nullopt;
  return NpzPath{path.substr(0, end + 4), rest.empty() ? "" : rest.substr(1)};
}

InputFile open_in_npz(const NpzPath& path) {
  InputFile file(path.file);
  const Record directory = directory_of(file);
  std::vector<Member> members;
  for (std::size_t place = 0; place < directory.size();) members.push_back(member_at(directory, place));
  for (const Member& member : members) {
    if (path.array.empty() ? members.size() > 1 : member.name != path.array) continue;
    if (member.method != 0) {
      throw Failure(fmt::format("{} has a compressed {}, but it should be as numpy.savez writes it", file.path(),
                                printable(member.name)));
    }
    const Record header(file, member.header, 30);
    header.expect(0, 0x04034b50);
    const std::uint64_t offset = member.header + 30 + header.at<std::uint16_t>(26) + header.at<std::uint16_t>(28);
    if (offset > *file.size() || member.size > *file.size() - offset) header.refuse();
    file.narrow(path.file + ":" + member.name, offset, member.size);
    return file;
  }
  std::vector<std::string> names;
  for (const Member& member : members) names.push_back(printable(member.name, 80));
  throw Failure(fmt::format("{} has no array '{}'; {}:NAME names one of: {}", file.path(), printable(path.array),
                            file.path(), fmt::join(names, ", ")));
}

}  // namespace evenorm::cli
