// `evenorm completion` prints scripts with which bash, zsh and fish complete evenorm's commands, options, values and
// files. The options come from describe.hpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/describe.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

constexpr const char* kCompletionExamples = R"(Examples:
  evenorm completion bash > ~/.local/share/bash-completion/completions/evenorm
  evenorm completion zsh > ~/.zfunc/_evenorm         with fpath+=~/.zfunc before compinit
  evenorm completion fish > ~/.config/fish/completions/evenorm.fish
  source <(evenorm completion bash)                  for this shell only)";

// Puts text in single quotes. `escape` is the shell's form of a single quote inside them.
std::string single_quoted(std::string_view text, std::string_view escape = "'\\''") {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string(escape) : std::string(1, c);
  return result + "'";
}

std::vector<std::string> option_names(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

const OptionDescription* positional(const CommandDescription& command) {
  for (const OptionDescription& option : command.options) {
    if (!option.positional.empty()) return &option;
  }
  return nullptr;
}

std::vector<std::string> command_names(const ProgramDescription& program) {
  std::vector<std::string> names;
  for (const CommandDescription& command : program.commands) names.push_back(command.name);
  return names;
}

// --- bash ------------------------------------------------------------------------------------------------------------

constexpr const char* kBashStart = R"(# bash completion of evenorm; made by `evenorm completion bash`.
_evenorm_reply() {
  local word
  while IFS= read -r word; do COMPREPLY+=("$word"); done
}

_evenorm_files() {
  compopt -o filenames 2>/dev/null
  _evenorm_reply < <(compgen -f -- "$1")
}

_evenorm_words() { _evenorm_reply < <(compgen -W "$2" -- "$1"); }

_evenorm() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= i
  COMPREPLY=()
  # bash splits --option=value into three words.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
)";

std::string bash_value(const OptionDescription& option) {
  if (!option.values.empty()) {
    return fmt::format("_evenorm_words \"$current\" {}",
                       single_quoted(fmt::format("{}", fmt::join(option.values, " "))));
  }
  return option.takes_file() ? "_evenorm_files \"$current\"" : ":  # no completion for this value";
}

// Maps the code that completes a value to the options, as "command option", that it is for.
std::map<std::string, std::vector<std::string>> bash_values(const ProgramDescription& program) {
  std::map<std::string, std::vector<std::string>> values;
  for (const CommandDescription& command : program.commands) {
    for (const OptionDescription& option : command.options) {
      if (!option.takes_value()) continue;
      for (const std::string& name : option.names) {
        values[bash_value(option)].push_back(single_quoted(command.name + " " + name));
      }
    }
  }
  return values;
}

std::string bash_script(const ProgramDescription& program) {
  std::string script = kBashStart;
  script += fmt::format("  for ((i = 1; i < COMP_CWORD; i++)); do\n    case ${{COMP_WORDS[i]}} in\n      {})\n",
                        fmt::join(command_names(program), " | "));
  script += "        command=${COMP_WORDS[i]}\n        break\n        ;;\n    esac\n  done\n";
  script += "  case \"$command $previous\" in\n";
  for (const auto& [action, patterns] : bash_values(program)) {
    script += fmt::format("    {})\n      {}\n      return\n      ;;\n", fmt::join(patterns, " | "), action);
  }
  script += "  esac\n  case \"$command $current\" in\n";
  script += fmt::format("    ' -'*) _evenorm_words \"$current\" {} ;;\n",
                        single_quoted(fmt::format("{}", fmt::join(option_names(program.program), " "))));
  script += fmt::format("    ' '*) _evenorm_words \"$current\" {} ;;\n",
                        single_quoted(fmt::format("{}", fmt::join(command_names(program), " "))));
  for (const CommandDescription& command : program.commands) {
    script += fmt::format("    {}*) _evenorm_words \"$current\" {} ;;\n", single_quoted(command.name + " -"),
                          single_quoted(fmt::format("{}", fmt::join(option_names(command), " "))));
    if (const OptionDescription* argument = positional(command)) {
      script += fmt::format("    {}*) {} ;;\n", single_quoted(command.name + " "), bash_value(*argument));
    }
  }
  return script + "  esac\n}\n\ncomplete -F _evenorm evenorm\n";
}

// --- zsh -------------------------------------------------------------------------------------------------------------

// Escapes text for the [...] or after the : of a specification.
std::string zsh_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_value(const OptionDescription& option) {
  const std::string type = zsh_escaped(option.type);
  if (!option.values.empty()) return fmt::format(":{}:({})", type, fmt::join(option.values, " "));
  return fmt::format(":{}:{}", type, option.takes_file() ? "_files" : "");
}

std::vector<std::string> zsh_specifications(const CommandDescription& command) {
  std::vector<std::string> all;
  int place = 0;
  for (const OptionDescription& option : command.options) {
    const std::string value = option.takes_value() ? zsh_value(option) : "";
    if (option.names.empty()) {
      all.push_back(single_quoted(std::to_string(++place) + value));
      continue;
    }
    for (const std::string& name : option.names) {
      all.push_back(single_quoted(
          fmt::format("({}){}[{}]{}", fmt::join(option.names, " "), name, zsh_escaped(option.description), value)));
    }
  }
  return all;
}

std::string zsh_script(const ProgramDescription& program) {
  std::string script =
      "#compdef evenorm\n# zsh completion of evenorm; made by `evenorm completion zsh`.\n_evenorm() {\n"
      "  local curcontext=\"$curcontext\" state line\n  typeset -A opt_args\n";
  script += fmt::format("  _arguments -C \\\n    {} \\\n    '1:command:->command' '*::argument:->arguments'\n",
                        fmt::join(zsh_specifications(program.program), " \\\n    "));
  script += "  case $state in\n    command)\n      local -a commands\n      commands=(\n";
  for (const CommandDescription& command : program.commands) {
    script += fmt::format("        {}\n", single_quoted(command.name + ":" + zsh_escaped(command.description)));
  }
  script += "      )\n      _describe command commands\n      ;;\n    arguments)\n      case $line[1] in\n";
  for (const CommandDescription& command : program.commands) {
    script += fmt::format("        {})\n          _arguments \\\n            {}\n          ;;\n", command.name,
                          fmt::join(zsh_specifications(command), " \\\n            "));
  }
  return script +
         "      esac\n      ;;\n  esac\n}\n\n"
         "if [ \"$funcstack[1]\" = _evenorm ]; then\n  _evenorm \"$@\"\nelse\n  compdef _evenorm evenorm\nfi\n";
}

// --- fish ------------------------------------------------------------------------------------------------------------

std::string fish_quoted(std::string_view text) { return single_quoted(text, "\\'"); }

std::string fish_line(const std::string& condition, const OptionDescription& option) {
  std::string line = "complete -c evenorm -n " + fish_quoted(condition);
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.values.empty()) {
    line += fmt::format(" {}-a {}", option.names.empty() ? "" : "-x ",
                        fish_quoted(fmt::format("{}", fmt::join(option.values, " "))));
  } else if (option.takes_file()) {
    line += option.names.empty() ? " -F" : " -r -F";
  } else if (option.takes_value()) {
    line += " -x";
  }
  return line + " -d " + fish_quoted(option.description) + "\n";
}

std::string fish_script(const ProgramDescription& program) {
  std::string script = "# fish completion of evenorm; made by `evenorm completion fish`.\ncomplete -c evenorm -f\n";
  for (const OptionDescription& option : program.program.options) {
    script += fish_line("__fish_use_subcommand", option);
  }
  for (const CommandDescription& command : program.commands) {
    script += fmt::format("complete -c evenorm -n __fish_use_subcommand -a {} -d {}\n", command.name,
                          fish_quoted(command.description));
    for (const OptionDescription& option : command.options) {
      script += fish_line("__fish_seen_subcommand_from " + command.name, option);
    }
  }
  return script;
}

}  // namespace

void add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that makes your shell complete evenorm's commands");
  command->add_option("SHELL", *shell, "The shell")
      ->required()
      ->type_name("NAME")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(kCompletionExamples);
  command->callback([shell, &app] {
    const ProgramDescription program = describe(app);
    print(*shell == "bash" ? bash_script(program) : *shell == "zsh" ? zsh_script(program) : fish_script(program));
  });
}

}  // namespace evenorm::cli
