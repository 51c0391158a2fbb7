// The page of `evenorm explain --html`: the files of learn/page/ around one line of JSON.
#pragma once

#include <string>
#include <string_view>

namespace evenorm::cli {

// The page before and after the data. learn/CMakeLists.txt generates the source that defines it.
extern const std::string_view kPageHalves[2];

// `json` is one line, with or without a line feed. The page holds it unchanged, except that each "<" becomes "\u003c",
// so that no text in it can end the enclosing element.
std::string html_page(std::string_view json);

}  // namespace evenorm::cli
