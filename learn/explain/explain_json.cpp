// An explanation as one line of JSON with all digits. docs/explain.md describes the fields.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "learn/explain/explain.hpp"
#include "learn/explain/json_numbers.hpp"
#include "learn/explain/pictures_json.hpp"
#include "learn/explain/step_list.hpp"

namespace evenorm::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string formula_text(const Formula& formula) {
  return fmt::format("{} = {}", formula.left, fmt::join(formula.right, " = "));
}

Json step_json(const Step& step) {
  Json formulas = Json::array();
  for (const Formula& formula : step.formulas) formulas.push_back(formula_text(formula));
  Json json{{"name", step.name},
            {"title", step.title},
            {"shape", step.shape},
            {"rule", formula_text(step.rule)},
            {"formulas", std::move(formulas)},
            {"exact", json_tensor(step.exact, step.shape)}};
  if (!step.by_hand.empty()) json["rounded"] = json_tensor(step.by_hand, step.shape);
  return json;
}

Json steps_json(const std::vector<Step>& steps) {
  Json list = Json::array();
  for (const Step& step : steps) list.push_back(step_json(step));
  return list;
}

Json check_json(const Explanation& e, const GradientCheck& check) {
  Json json{{"along_xhat", json_number(check.along_xhat)}, {"expected", json_number(check.expected)}};
  if (e.kind == Kind::layer) json["sum"] = json_number(check.sum);
  return json;
}

Json trial_json(const Explanation& e, const std::optional<Trial>& trial) {
  if (!trial) return nullptr;
  return {{"index", index_of(trial->element, e.normalized_shape)},
          {"x", trial->x},
          {"step", trial->step},
          {"above", trial->above},
          {"below", trial->below},
          {"quotient", trial->quotient},
          {"dx", trial->dx}};
}

Json gradient_json(const Explanation& e, const RowGradient& gradient) {
  Json wrongs = Json::array();
  for (const WrongGradient& wrong : gradient.wrongs) {
    wrongs.push_back({{"name", wrong.name},
                      {"formula", wrong.formula},
                      {"why", wrong.why},
                      {"dx", json_tensor(wrong.dx, e.normalized_shape)}});
  }
  return {{"dy", json_tensor(gradient.dy, e.normalized_shape)},
          {"steps", steps_json(gradient.steps)},
          {"dx", json_tensor(gradient.dx, e.normalized_shape)},
          {"dgamma", json_tensor(gradient.dgamma, e.normalized_shape)},
          {"dbeta", json_tensor(gradient.dbeta, e.normalized_shape)},
          {"largest_difference", json_number(gradient.largest_difference)},
          {"check", check_json(e, gradient.check)},
          {"trial", trial_json(e, gradient.trial)},
          {"wrong", std::move(wrongs)},
          {"notes", gradient.notes}};
}

Json sums_json(const Explanation& e) {
  const GradientSums& sums = *e.gradient_sums;
  return {{"rows", e.rows.size()},
          {"exact_dgamma", json_tensor(sums.exact_dgamma, e.normalized_shape)},
          {"exact_dbeta", json_tensor(sums.exact_dbeta, e.normalized_shape)},
          {"dgamma", json_tensor(sums.dgamma, e.normalized_shape)},
          {"dbeta", json_tensor(sums.dbeta, e.normalized_shape)}};
}

Json row_json(const Explanation& e, const ExplainedRow& row) {
  Json json{{"row", row.row},
            {"index", row.index},
            {"x", json_tensor(row.x, e.normalized_shape)},
            {"steps", steps_json(row.steps)},
            {"y", json_tensor(row.y, e.normalized_shape)},
            {"largest_difference", json_number(row.largest_difference)}};
  if (e.gamma.varies) json["weight"] = json_tensor(row.gamma, e.normalized_shape);
  if (e.beta.varies) json["bias"] = json_tensor(row.beta, e.normalized_shape);
  if (e.kind == Kind::layer) json["mean"] = json_number(row.mean);
  json["rstd"] = json_number(row.rstd);
  Json check{{e.kind == Kind::layer ? "var" : "mean_square", json_number(row.check.var)},
             {"expected", json_number(row.check.expected)}};
  if (e.kind == Kind::layer) check["mean"] = json_number(row.check.mean);
  json["check"] = std::move(check);
  json["notes"] = row.notes;
  if (row.gradient) json["gradient"] = gradient_json(e, *row.gradient);
  if (e.pictures) json["precision"] = precision_json(row.precision);
  return json;
}

Json parameter_json(const Explanation& e, const Parameter& parameter) {
  return parameter.given && !parameter.varies ? json_tensor(parameter.values, e.normalized_shape) : Json(nullptr);
}

}  // namespace

std::string explanation_json(const Explanation& e) {
  Json rows = Json::array();
  for (const ExplainedRow& row : e.rows) rows.push_back(row_json(e, row));
  Json document{{"version", version()},
                {"kind", e.kind == Kind::layer ? "layer" : "rms"},
                {"dtype", name(e.dtype)},
                {"eps", e.eps},
                {"zero_centered", e.zero_centered},
                {"round", e.round ? Json(*e.round) : Json(nullptr)},
                {"shapes", {{"x", e.x_shape}, {"rows", e.leading_shape}, {"normalized_shape", e.normalized_shape}}},
                {"axes", e.axes},
                {"weight", parameter_json(e, e.gamma)},
                {"bias", parameter_json(e, e.beta)},
                {"rows_total", e.rows_total},
                {"warnings", e.warnings},
                {"notes", e.notes},
                {"rows", std::move(rows)}};
  if (e.groups != 0) document["groups"] = e.groups;
  if (e.gradient_sums) document["gradient_sums"] = sums_json(e);
  if (e.pictures) {
    const std::string& note = e.pictures->neighbours_note;
    document["decimals"] = e.decimals;
    document["map"] = map_json(e.pictures->map);
    document["neighbours"] = neighbours_json(e.pictures->neighbours);
    document["neighbours_note"] = note.empty() ? Json(nullptr) : Json(note);
  }
  return document.dump() + "\n";
}

}  // namespace evenorm::cli
