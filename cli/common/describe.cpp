#include "cli/common/describe.hpp"

namespace evenorm::cli {
namespace {

// Splits "TYPE:{a,b}", CLI11's form of a type with a set of values.
void split_type(const std::string& text, OptionDescription& option) {
  option.type = text.substr(0, text.find(':'));
  const std::size_t open = text.find('{'), close = text.find('}');
  if (open == std::string::npos || close == std::string::npos) return;
  for (std::size_t start = open + 1; start < close;) {
    const std::size_t end = std::min(text.find(',', start), close);
    option.values.push_back(text.substr(start, end - start));
    start = end + 1;
  }
}

OptionDescription describe_option(const CLI::Option& given) {
  OptionDescription option;
  for (const std::string& name : given.get_snames()) option.names.push_back("-" + name);
  for (const std::string& name : given.get_lnames()) option.names.push_back("--" + name);
  if (given.get_positional()) option.positional = given.get_name(true);
  if (given.get_type_size() != 0) split_type(given.get_type_name(), option);
  option.description = given.get_description();
  option.required = given.get_required();
  return option;
}

}  // namespace

CommandDescription describe(const CLI::App& app) {
  CommandDescription command{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) command.options.push_back(describe_option(*option));
  const auto shown = [](const CLI::App* one) { return !one->get_group().empty(); };
  for (const CLI::App* one : app.get_subcommands(shown)) command.commands.push_back(describe(*one));
  return command;
}

}  // namespace evenorm::cli
