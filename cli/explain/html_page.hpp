// The page of `evenorm explain --html`: the files of cli/page/, put together when evenorm was built, around one line of
// JSON. Knows nothing of what the JSON says.
#pragma once

#include <string>
#include <string_view>

namespace evenorm::cli {

// The page around the place of the data, made by cmake/embed.cmake.
extern const std::string_view kPageBeforeData, kPageAfterData;

// `json`: one line, with a line feed or without. It stands in the page as it is, but for each "<", which is written
// "\u003c", so that no text in it can end the element around it.
std::string html_page(std::string_view json);

}  // namespace evenorm::cli
