// `evenorm check --x`: how well a result was computed from the user's own rows.
#pragma once

#include <string>

#include "cli/common/options.hpp"

namespace evenorm::cli {

// Values as on the command line; empty if not given.
struct RowsOptions {
  std::string x, y, within;
  NormOptions norm;
};

// Measures y, or evenorm's own result if there is none, against the reference in binary128, and prints what x's rows
// are like and the errors. Returns kCheckFailed if an error is beyond `within`. Throws Failure or Error on wrong use.
int check_rows(const RowsOptions& options);

}  // namespace evenorm::cli
