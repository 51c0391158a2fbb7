// Replaces a file by another one, which gets its name, owner and permissions, and restores it.
#pragma once

#include <sys/stat.h>

#include <string>

namespace evenorm::cli {

// Gives the file `fd` the owner, group and permissions of the file that it is to replace, as far as this process may.
// If the group cannot be kept, the group's permissions are at most those of others.
void take_after(int fd, const struct stat& replaced) noexcept;

// What replace() found at the target. take_back() needs to know.
enum class Replaced { nothing, file };

// Exchanges the names of the temporary file and the target; without a target, renames the temporary file. If the file
// system cannot exchange names (NFS), it takes three steps and uses `spare`, a name in the same folder. Returns 0, or
// errno if nothing has changed.
int replace(const std::string& temporary, const std::string& target, const std::string& spare,
            Replaced& replaced) noexcept;

// Replaces the target in one step, without a way back. Returns 0 or errno.
int replace_for_good(const std::string& temporary, const std::string& target) noexcept;

// Undoes replace(). Returns 0 or errno.
int take_back(const std::string& temporary, const std::string& target, const std::string& spare,
              Replaced replaced) noexcept;

}  // namespace evenorm::cli
