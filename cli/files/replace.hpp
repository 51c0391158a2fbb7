// How a file takes another's place: with its owner and permissions, by its name, and back again.
// Knows nothing of what is in it, nor of the other files of a run.
#pragma once

#include <sys/stat.h>

#include <string>

namespace evenorm::cli {

// Gives the file at `fd` the owner, group and permissions of the one that it is to replace, as far as this process may;
// where the group cannot be kept, its permissions are at most those of all others.
void take_after(int fd, const struct stat& replaced) noexcept;

// What replace() found at the target, and so how it is taken back.
enum class Replaced { nothing, file };

// The temporary file takes the target's name, and the target, where there is one, its; so doing it again takes it back.
// Neither name is ever without a file where the file system can exchange them; else, as on NFS, `spare` is used on the
// way, a name in the same folder. 0, or what errno was: then nothing has changed.
int replace(const std::string& temporary, const std::string& target, const std::string& spare,
            Replaced& replaced) noexcept;

// The same without a way back, in one step everywhere.
int replace_for_good(const std::string& temporary, const std::string& target) noexcept;

// 0, or what errno was.
int take_back(const std::string& temporary, const std::string& target, const std::string& spare,
              Replaced replaced) noexcept;

}  // namespace evenorm::cli
