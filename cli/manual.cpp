// `evenorm manual`, a hidden command, prints the manual page evenorm(1) in roff. The build runs it. The content comes
// from describe.hpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "cli/commands.hpp"
#include "cli/common/describe.hpp"
#include "cli/common/streams.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {
namespace {

// Escapes text for roff. "-" stays the ASCII character, so that options can be copied from the page.
std::string roff(std::string_view text) {
  std::string result;
  bool line_starts = true;
  for (const char c : text) {
    if (line_starts && (c == '.' || c == '\'')) result += "\\&";
    line_starts = c == '\n';
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '\'') {
      result += "\\(aq";
    } else {
      result += c;
    }
  }
  return result;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

// "-o, --output FILE"
std::string option_heading(const OptionDescription& option) {
  if (option.names.empty()) return italic(option.positional);
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(bold(name));
  return fmt::format("{}{}", fmt::join(names, ", "), option.type.empty() ? "" : " " + italic(option.type));
}

std::string option_text(const OptionDescription& option) {
  std::string text = fmt::format(".TP\n{}\n{}", option_heading(option), roff(option.description));
  if (!option.values.empty())
    text += fmt::format("; one of {}", roff(fmt::format("{}", fmt::join(option.values, ", "))));
  return text + ".\n";
}

std::string synopsis(const CommandDescription& command) {
  std::string text = bold("evenorm " + command.name);
  for (const OptionDescription& option : command.options) {
    if (option.names.empty())
      text += option.required ? " " + italic(option.positional) : " [" + italic(option.positional) + "]";
    if (!option.names.empty() && option.required) text += " " + bold(option.names.front()) + " " + italic(option.type);
  }
  return text + " [" + italic("options") + "]\n";
}

// Formats the footer's paragraphs, which empty lines separate. A paragraph may begin with "Heading:". Indented lines
// keep their form. Headings of sections are in capitals.
std::string paragraphs(std::string_view footer, std::string_view macro) {
  std::string text;
  while (!footer.empty()) {
    const std::size_t end = std::min(footer.find("\n\n"), footer.size());
    std::string_view paragraph = footer.substr(0, end);
    footer.remove_prefix(std::min(end + 2, footer.size()));
    const std::size_t colon = paragraph.find(':');
    const bool headed = colon < paragraph.find_first_of(".,;\n(") && colon + 1 < paragraph.size();
    if (headed) {
      std::string heading(paragraph.substr(0, colon));
      if (macro == ".SH")
        std::ranges::transform(heading, heading.begin(), [](unsigned char c) { return std::toupper(c); });
      text += fmt::format("{} \"{}\"\n", macro, roff(heading));
      paragraph.remove_prefix(colon + 1);
      paragraph.remove_prefix(paragraph.find_first_not_of(paragraph[0] == '\n' ? "\n" : " "));
    } else {
      text += ".PP\n";
    }
    const bool lines = paragraph.starts_with("  ");
    text += lines ? fmt::format(".nf\n{}\n.fi\n", roff(paragraph)) : roff(paragraph) + "\n";
  }
  return text;
}

std::string command_text(const CommandDescription& command) {
  std::string text = fmt::format(".SS \"evenorm {}\"\n{}.\n", roff(command.name), roff(command.description));
  for (const OptionDescription& option : command.options) text += option_text(option);
  return text + paragraphs(command.footer, ".PP\n.B");
}

std::string manual(const CommandDescription& program) {
  std::string text = fmt::format(".TH EVENORM 1 \"\" \"evenorm {}\" \"User Commands\"\n", roff(version()));
  text += fmt::format(".SH NAME\nevenorm \\- {}\n.SH SYNOPSIS\n", roff(program.description));
  for (const CommandDescription& command : program.commands) text += synopsis(command) + ".br\n";
  text += bold("evenorm") + " " + bold("--help") + " | " + bold("--version") + "\n.SH OPTIONS\n";
  for (const OptionDescription& option : program.options) text += option_text(option);
  text += ".SH COMMANDS\n";
  for (const CommandDescription& command : program.commands) text += command_text(command);
  return text + paragraphs(program.footer, ".SH");
}

}  // namespace

void add_manual(CLI::App& app) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page in roff")->group("");
  command->callback([&app] { print(manual(describe(app))); });
}

}  // namespace evenorm::cli
