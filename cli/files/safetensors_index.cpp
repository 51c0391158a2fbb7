// The index is parsed event by event, so that a deep or large one costs little memory.
#include "cli/files/safetensors_index.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/common/text.hpp"

namespace evenorm::cli {
namespace {

// Collects the strings of { "weight_map": { tensor: file, ... }, ... }. Stops at what no index has.
class IndexHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::set<std::string> shards;

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_map_) shards.insert(value);
    return shards.size() < kMostShards;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) in_map_ = name == "weight_map";
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return ++depth_ <= kMostDepth; }
  bool start_array(std::size_t /*size*/) override { return ++depth_ <= kMostDepth; }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return false;
  }

 private:
  static constexpr std::size_t kMostShards = 10000;
  static constexpr int kMostDepth = 125;

  int depth_ = 0;
  bool in_map_ = false;
};

}  // namespace

std::string shards_of_index(std::string_view text) {
  IndexHandler handler;
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);  // an index that was cut names its first shards
  std::string names;
  std::size_t named = 0;
  for (const std::string& shard : handler.shards) {
    if (named++ == 3) return names + " and others";
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", printable(shard, 80));
  }
  return names;
}

}  // namespace evenorm::cli
