// `evenorm info` prints the version, the SIMD targets, the threads and the caches.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "evenorm/evenorm.hpp"
#include "plan/caches.hpp"

namespace evenorm::cli {
namespace {

constexpr const char* kInfoExamples = R"(Examples:
  evenorm info
  evenorm info --json
  EVENORM_TARGET=avx2 evenorm info      with another SIMD target)";

void info(bool json) {
  const std::vector<std::string> compiled = compiled_targets();
  const std::vector<std::string> supported = supported_targets();
  const std::string chosen = target();
  const std::size_t threads = pool_executor(0).threads;
  const internal::Caches& caches = internal::caches();
  constexpr std::size_t kKiB = 1024;
  if (json) {
    const nlohmann::ordered_json document{{"version", version()},
                                          {"numerics_revision", numerics_revision()},
                                          {"targets", supported},
                                          {"compiled_targets", compiled},
                                          {"target", chosen},
                                          {"threads", threads},
                                          {"cache_bytes", {{"second", caches.second}, {"last", caches.last}}},
                                          {"streamed_from", internal::streamed_from(caches)},
                                          {"prefetched_from", internal::prefetched_from(caches)}};
    print(document.dump() + "\n");
    return;
  }
  const char* forced = std::getenv("EVENORM_TARGET");
  print(fmt::format("version             {}\n", version()) +
        fmt::format("numerics revision   {}\n", numerics_revision()) +
        fmt::format("targets compiled    {}\n", fmt::join(compiled, " ")) +
        fmt::format("targets supported   {}\n", fmt::join(supported, " ")) +
        fmt::format("target in use       {}{}\n", chosen, forced != nullptr ? " (EVENORM_TARGET)" : "") +
        fmt::format("threads             {} with --threads 0, 1 by default\n", threads) +
        fmt::format("caches              {} KiB per core, {} KiB last level; results of {} KiB or more bypass them\n",
                    caches.second / kKiB, caches.last / kKiB, internal::streamed_from(caches) / kKiB));
}

}  // namespace

void add_info(CLI::App& app) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("info", "Print the version, SIMD targets, threads and caches");
  command->add_flag("--json", *json, "Print one line of JSON");
  command->footer(kInfoExamples);
  command->callback([json] { info(*json); });
}

}  // namespace evenorm::cli
