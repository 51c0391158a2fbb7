// Finds an array in a .npz file: a zip archive of .npy files, not compressed, as numpy.savez writes it. It knows the
// fields of zip and zip64 that lead to a member's bytes, and nothing of their contents.
#pragma once

#include <optional>
#include <string>

#include "cli/files/files.hpp"

namespace evenorm::cli {

// "run.npz:x", or "run.npz" if that has only one array.
struct NpzPath {
  std::string file, array;
};
std::optional<NpzPath> npz_path(const std::string& path);  // nothing for other files

// The array as a file of its own. Throws Failure, which names the file, and its arrays if it has no such one.
InputFile open_in_npz(const NpzPath& path);

}  // namespace evenorm::cli
