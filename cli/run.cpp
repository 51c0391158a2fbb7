// The program behind main: parses the command line, and turns exceptions into one line of text and an exit status.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <vector>

#include "cli/commands.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "evenorm/evenorm.hpp"
#include "learn/explain/command.hpp"

namespace evenorm::cli {
namespace {

constexpr const char* kRunExamples = R"(Examples:
  evenorm apply x.npy -o y.npy --weight w.npy --bias b.npy
  evenorm grad x.npy dy.npy -o dx.npy --weight w.npy --dweight dw.npy --dbias db.npy
  evenorm explain "4 2 8" --weight "1.5 1 0.5" --bias "0.5 0 -0.5"
  evenorm check --quick
  evenorm bench 4096x768 --dtype bf16
  evenorm info --json
  evenorm apply --help

Exit status: 0 done, 1 a check failed, 2 wrong use or bad input.

Environment: EVENORM_TARGET selects a SIMD target that `evenorm info` lists. All targets give the same bits.)";

// Prints one line, whatever characters `why` has. The status reports the failure even if standard error is closed.
int refuse(std::string_view why) noexcept {
  try {
    tell(fmt::format("evenorm: {}\n", printable(why)));
  } catch (const std::bad_alloc&) {
    tell("evenorm: out of memory\n");
  }
  return kRefused;
}

int parse_and_run(std::span<const std::string> arguments) {
  int status = kDone;
  CLI::App app("Accurate layer norm and RMS norm, with the same bits on every machine", "evenorm");
  app.set_version_flag("--version", fmt::format("evenorm {}", version()));
  app.require_subcommand(0, 1);  // with a minimum of 1, a misspelt subcommand would be reported as missing
  app.footer(kRunExamples);
  app.parse_complete_callback([&] {
    if (app.get_subcommands().empty()) throw Failure("no subcommand is given (see evenorm --help)");
  });
  add_apply(app);
  add_bench(app, status);
  add_check(app, status);
  add_explain(app);
  add_grad(app);
  add_info(app);
  add_completion(app);
  add_manual(app);
  try {
    // CLI11 takes the arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    print(app.help());
  } catch (const CLI::CallForVersion&) {
    print(app.version() + "\n");
  } catch (const CLI::ParseError& error) {
    const auto used = app.get_subcommands();
    const std::string command = used.empty() ? "evenorm" : "evenorm " + used.front()->get_name();
    return refuse(fmt::format("{} (see {} --help)", error.what(), command));
  }
  return status;
}

}  // namespace

int run(std::span<const std::string> arguments) noexcept {
  try {
    return parse_and_run(arguments);
  } catch (const std::bad_alloc&) {
    return refuse("out of memory");
  } catch (const ReaderGone&) {
    end_by_closed_pipe();
    return kRefused;
  } catch (const std::exception& error) {  // Failure, evenorm::Error and others
    return refuse(error.what());
  }
}

}  // namespace evenorm::cli
