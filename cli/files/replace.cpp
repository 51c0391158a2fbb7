#include "cli/files/replace.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace evenorm::cli {
namespace {

int move(const std::string& from, const std::string& to) noexcept {
  return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

bool is_folder(const std::string& path) noexcept {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Exchanges two names in three steps. If a step fails, it undoes the steps before.
int exchange_by(const std::string& spare, const std::string& a, const std::string& b) noexcept {
  if (const int error = move(b, spare); error != 0) return error;
  if (const int error = move(a, b); error != 0) {
    move(spare, b);
    return error;
  }
  if (const int error = move(spare, a); error != 0) {
    move(b, a);
    move(spare, b);
    return error;
  }
  return 0;
}

int exchange(const std::string& a, const std::string& b, const std::string& spare) noexcept {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return 0;
  const bool unknown = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
  return unknown ? exchange_by(spare, a, b) : errno;
}

}  // namespace

void take_after(int fd, const struct stat& replaced) noexcept {
  mode_t mode = replaced.st_mode & 0777U;
  if (fchown(fd, replaced.st_uid, replaced.st_gid) != 0) {
    struct stat own {};
    const bool kept = fchown(fd, static_cast<uid_t>(-1), replaced.st_gid) == 0 ||
                      (fstat(fd, &own) == 0 && own.st_gid == replaced.st_gid);
    if (!kept) mode &= ~070U | (mode & 07U) << 3U;
  }
  fchmod(fd, mode);
}

int replace(const std::string& temporary, const std::string& target, const std::string& spare,
            Replaced& replaced) noexcept {
  if (is_folder(target)) return EISDIR;  // an exchange would accept a folder
  const int error = exchange(temporary, target, spare);
  replaced = error == ENOENT ? Replaced::nothing : Replaced::file;
  return error == ENOENT ? move(temporary, target) : error;
}

int replace_for_good(const std::string& temporary, const std::string& target) noexcept {
  return move(temporary, target);
}

int take_back(const std::string& temporary, const std::string& target, const std::string& spare,
              Replaced replaced) noexcept {
  return replaced == Replaced::file ? exchange(temporary, target, spare) : move(target, temporary);
}

}  // namespace evenorm::cli
