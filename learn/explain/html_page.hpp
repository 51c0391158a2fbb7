// The page of `evenorm explain --html`: the files of learn/page/ around one line of JSON. The build puts them together.
// Knows nothing of what the JSON says.
#pragma once

#include <string>
#include <string_view>

namespace evenorm::cli {

// The page before and after the place of the data. CMake makes the source that defines it: learn/CMakeLists.txt.
extern const std::string_view kPageHalves[2];

// `json`: one line, with a line feed or without. It stands in the page as it is, but for each "<", which is written
// "\u003c", so that no text in it can end the element around it.
std::string html_page(std::string_view json);

}  // namespace evenorm::cli
