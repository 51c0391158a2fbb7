// See pictures_json.hpp.
#include "learn/explain/pictures_json.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "learn/explain/json_numbers.hpp"

namespace evenorm::cli {
namespace {

using Json = nlohmann::ordered_json;

// Bytes in base64 (RFC 4648).
std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kBytes = 3, kCharacters = 4;  // 24 bits
  std::string text;
  text.reserve((bytes.size() + kBytes - 1) / kBytes * kCharacters);
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kBytes, bytes.size()))) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < kBytes; ++i) {
      bits = bits << 8U | (i < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i]) : 0);
    }
    for (std::size_t i = 0; i < kCharacters; ++i) {
      text += i <= bytes.size() ? kDigits[bits >> (18U - 6U * i) & 63U] : '=';
    }
  }
  return text;
}

Json norm_json(const SharedMean& norm) {
  Json outputs = Json::array();
  for (const std::vector<double>& output : norm.outputs) outputs.push_back(json_list(output));
  return {{"name", norm.name},
          {"title", norm.title},
          {"axes", norm.axes},
          {"channel_groups", norm.channel_groups ? Json(*norm.channel_groups) : Json(nullptr)},
          {"words", norm.words},
          {"outputs", std::move(outputs)},
          {"moved", json_list(norm.moved)}};
}

Json shifted_json(const ShiftedRow& row) {
  return {{"power", row.power},
          {"shift", json_number(row.shift)},
          {"var", json_number(row.var)},
          {"std_over_mean", json_number(row.std_over_mean)},
          {"errors",
           {{"textbook", json_number(row.errors.textbook)},
            {"two_pass", json_number(row.errors.two_pass)},
            {"welford", json_number(row.errors.welford)},
            {"evenorm", json_number(row.errors.evenorm)}}}};
}

Json scaled_json(const ScaledRow& row) {
  return {{"power", row.power}, {"std", json_number(row.std)}, {"out", json_number(row.out)}};
}

}  // namespace

Json map_json(const std::optional<ColourMap>& map) {
  if (!map) return nullptr;
  return {{"centre", json_number(map->centre)},
          {"scale", json_number(map->scale)},
          {"levels", base64(std::as_bytes(std::span(map->levels)))}};
}

Json neighbours_json(const std::optional<Neighbours>& neighbours) {
  if (!neighbours) return nullptr;
  Json norms = Json::array();
  for (const SharedMean& norm : neighbours->norms) norms.push_back(norm_json(norm));
  return {{"batch_axis", neighbours->batch_axis},
          {"channel_axis", neighbours->channel_axis},
          {"norms", std::move(norms)},
          {"changed_sample", neighbours->changed_sample},
          {"observed_sample", neighbours->observed_sample},
          {"observed", neighbours->observed},
          {"amounts", json_list(neighbours->amounts)},
          {"spread", json_number(neighbours->spread)}};
}

Json precision_json(const std::optional<Precision>& precision) {
  if (!precision) return nullptr;
  Json points = Json::array(), eps = Json::array();
  for (const ShiftedRow& row : precision->shifted) points.push_back(shifted_json(row));
  for (const ScaledRow& row : precision->scaled) eps.push_back(scaled_json(row));
  Json divisor = nullptr;
  if (const auto& d = precision->divisor) {
    divisor = {{"n", d->n}, {"by_n", json_number(d->by_n)}, {"by_n_less_1", json_number(d->by_n_less_1)}};
  }
  return {{"unit", json_number(precision->unit)},
          {"points", std::move(points)},
          {"eps", std::move(eps)},
          {"divisor", std::move(divisor)}};
}

}  // namespace evenorm::cli
