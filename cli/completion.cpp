// `evenorm completion` prints scripts for bash, zsh and fish. They call `evenorm complete`, a hidden command, with the
// words of a command line. It prints candidates for the last word, from describe.hpp.
#include <algorithm>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/describe.hpp"
#include "cli/common/streams.hpp"

namespace evenorm::cli {
namespace {

constexpr const char* kCompletionExamples = R"(Examples:
  evenorm completion bash > ~/.local/share/bash-completion/completions/evenorm
  evenorm completion zsh > ~/.zfunc/_evenorm         with fpath+=~/.zfunc before compinit
  evenorm completion fish > ~/.config/fish/completions/evenorm.fish
  source <(evenorm completion bash)                  for this shell only)";

// Each script runs the program as it was typed. Without candidates, the shell offers files.
constexpr const char* kBash = R"sh(# bash completion of evenorm
_evenorm() {
  local IFS=$'\n' words=("${COMP_WORDS[@]:0:COMP_CWORD}" "$2")
  COMPREPLY=($(compgen -W "$("${1/#\~/$HOME}" complete "${words[@]}" 2>/dev/null | cut -f 1)" -- "$2"))
}
complete -o default -F _evenorm evenorm
)sh";

constexpr const char* kZsh = R"sh(#compdef evenorm
# zsh completion of evenorm
_evenorm() {
  local -a candidates
  candidates=(${(f)"$(${~words[1]} complete "${(@)words[1,CURRENT]}" 2>/dev/null)"})
  if (( $#candidates )); then
    candidates=("${(@)candidates/$'\t'/:}")
    _describe argument candidates
  else
    compset -P '--*='
    _files
  fi
}
if [ "$funcstack[1]" = _evenorm ]; then
  _evenorm "$@"
else
  compdef _evenorm evenorm
fi
)sh";

constexpr const char* kFish = R"sh(# fish completion of evenorm
function __evenorm_candidates
  set -l words (string replace -r '^~' ~ -- (commandline -opc) (commandline -ct))
  $words[1] complete $words 2>/dev/null
end
complete -c evenorm -n '__evenorm_candidates | string length -q' -f -a '(__evenorm_candidates)'
)sh";

std::string lines(const std::vector<std::string>& names, const std::string& start, const std::string& end) {
  std::string text;
  for (const std::string& name : names) text += start + name + end + "\n";
  return text;
}

// Returns a line for each candidate: the word, then a tab and its description if it has one. `words` begins with the
// program and ends with the word to complete.
std::string candidates(const CommandDescription& program, std::vector<std::string> words) {
  std::erase(words, "=");  // bash splits --option=value into three words
  words.resize(std::max<std::size_t>(words.size(), 2));
  const CommandDescription* command = &program;
  for (const CommandDescription& one : program.commands) {
    if (words.size() > 2 && words[1] == one.name) command = &one;
  }
  const std::string last = words.back(), start = last.substr(0, last.find('=') + 1);
  const std::string before = start.empty() ? words[words.size() - 2] : last.substr(0, start.size() - 1);
  std::string options, arguments;
  bool only_options = command != &program;
  for (const OptionDescription& option : command->options) {
    if (!option.type.empty() && std::ranges::count(option.names, before) != 0) return lines(option.values, start, "");
    options += lines(option.names, "", "\t" + option.description);
    if (!option.names.empty()) continue;
    arguments += lines(option.values, "", "");
    only_options = false;
  }
  for (const CommandDescription& one : command->commands) arguments += lines({one.name}, "", "\t" + one.description);
  return only_options || last.starts_with('-') ? options : arguments;
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
  command->callback([shell] { print(*shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish); });

  CLI::App* complete = app.add_subcommand("complete", "Print candidates for the last word")->group("");
  complete->prefix_command();  // takes all words as they are
  complete->callback([complete, &app] { print(candidates(describe(app), complete->remaining())); });
}

}  // namespace evenorm::cli
