// `evenorm explain`: the norm step by step on given numbers, and slips that explanations make. This file has the
// options only. explain_input.cpp reads, explain_steps.cpp and slips.cpp compute, *_text.cpp print.
#include "learn/explain/command.hpp"

#include <fmt/format.h>

#include <memory>
#include <span>

#include "cli/common/options.hpp"
#include "cli/common/streams.hpp"
#include "cli/common/text.hpp"
#include "cli/files/files.hpp"
#include "learn/explain/explain_input.hpp"
#include "learn/explain/explain_page.hpp"
#include "learn/explain/explain_steps.hpp"
#include "learn/explain/html_page.hpp"
#include "learn/explain/slips.hpp"

namespace evenorm::cli {
namespace {

struct Options {
  ExplainOptions input;
  std::string html;
  bool json = false;
  bool slips = false;
};

constexpr const char* kExplainExamples = R"(Examples:
  evenorm explain "4 2 8" --weight "1.5 1 0.5" --bias "0.5 0 -0.5"
  evenorm explain "4 2 8" --round 2                      also with each step rounded, as by hand
  evenorm explain "[[[0.2 0.1 0.3]] [[0.5 0.1 0.1]]]" --normalized-shape 1,3 --batch-axis 1
  evenorm explain "[[1, 2], [3, 5]]" --axes 0            over the first axis
  evenorm explain "[[[1 3] [5 7] [0 4] [4 0]]]" --groups 2 --weight "1 1 1 2"   group norm
  evenorm explain "4 2 8" --rms
  evenorm explain "4 2 8" --grad "1 0 -1" --weight "1.5 1 0.5"   the backward pass
  evenorm explain hidden.npy --rows 0,17 --weight w.npy --bias b.npy
  evenorm explain hidden.npy --params model.safetensors --name encoder.layer.0.output.LayerNorm --eps 1e-12
  evenorm explain --slips                                slips that explanations make, with numbers
  evenorm explain hidden.npy --html page.html            a page with drawings, to open in a browser
  evenorm explain --slips --html slips.html

Spaces, commas or both separate numbers, and brackets make axes. An argument that ends in .npy or has a / is a file. Put
numbers that begin with "-." or "-inf" in brackets. --json prints every element with all digits; NaN and infinities are
the strings "NaN", "Infinity" and "-Infinity". The page of --html is one file that needs no network. If it cannot be
written, an existing FILE is left untouched. With --json, the line of JSON in the page is printed too.)";

// The output in the requested forms.
struct Shown {
  std::string text;     // empty if --json or --html is given
  std::string json;     // one line
  std::string counted;  // "2 rows", for the page
};

Shown slips_shown(const Options& options) {
  const std::vector<Slip> slips = find_slips();
  const bool text = options.html.empty() && !options.json;
  return {text ? slips_text(slips) : "", slips_json(slips), fmt::format("{} slips", slips.size())};
}

Shown input_shown(const Options& options, const Outputs& outputs) {
  if (options.input.x.empty()) throw Failure("X is not given: numbers, e.g. \"4 2 8\", or a .npy file");
  ExplainOptions input = options.input;
  input.pictures = !options.html.empty();
  const Explanation explanation = explain(read_explain_input(input, outputs));
  const std::string rows = counted(explanation.rows.size(), "row", "rows");
  if (!options.html.empty() || options.json) return {"", explanation_json(explanation), rows};
  return {explanation.gradient_sums ? gradient_text(explanation) : explanation_text(explanation), "", rows};
}

// Reports before the page replaces an old file, as evenorm apply does, so that a failed report leaves the file
// untouched.
void write_page(const Options& options, const Shown& shown, Outputs& outputs) {
  const std::string page = html_page(shown.json);
  outputs.open();
  outputs.write(0, 0, std::as_bytes(std::span(page)));
  outputs.finish();
  if (options.json) {
    print_report(shown.json);
  } else if (!outputs.has_standard_output()) {
    print_report(fmt::format("wrote {}: {}, {} KB\n", printable(options.html), shown.counted,
                             with_commas((page.size() + 999) / 1000)));
  }
  outputs.commit();
}

// Throws every error in the input before anything is written.
void explain_or_refuse(const Options& options) {
  Outputs outputs;
  if (!options.html.empty()) outputs.add("--html", options.html);
  expect_room_for_json(options.json, outputs);
  const Shown shown = options.slips ? slips_shown(options) : input_shown(options, outputs);
  if (!options.html.empty()) {
    write_page(options, shown, outputs);
  } else {
    print(options.json ? shown.json : shown.text);
  }
}

}  // namespace

void add_explain(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  ExplainOptions& input = options->input;
  CLI::App* command = app.add_subcommand("explain", "Layer norm or RMS norm step by step, on your own numbers");
  std::vector<const CLI::Option*> not_for_slips;
  const auto add = [&](const char* flags, std::string& value, const char* type, const char* description) {
    CLI::Option* option = add_value(*command, flags, value, type, description);
    not_for_slips.push_back(option);
    return option;
  };
  const auto add_flag = [&](const char* flags, bool& value, const char* description) {
    not_for_slips.push_back(command->add_flag(flags, value, description));
  };
  add("X", input.x, "NUMBERS|FILE", "The input: numbers, or a .npy file");
  add("--grad", input.grad, "NUMBERS|FILE", "Show the backward pass; dy, the gradient of y, has x's shape");
  add("--weight", input.weight, "NUMBERS|FILE", "gamma, of the normalised shape or one that broadcasts to X (1)");
  add("--bias", input.bias, "NUMBERS|FILE", "beta, of the normalised shape or one that broadcasts to X (0)");
  add("--params", input.params, "FILE", "Weight and bias from a .safetensors file");
  add("--name", input.name, "NAME", "Which norm in that file");
  CLI::Option* shape = add("--normalized-shape", input.normalized_shape, "SIZES",
                           "The trailing axes to normalise together (the weight's or bias's, else the last axis)");
  add("--axes", input.axes, "AXES", "The normalised axes by their places, e.g. 1,2 or -1")->excludes(shape);
  add("--groups", input.groups, "G", "Group norm of X, (N, C, ...): a row is one of G groups of channels");
  add("--eps", input.eps, "E", "Added to the variance, inside the square root (1e-5)");
  add_flag("--rms", input.rms, "RMS norm: the mean is not subtracted");
  add_flag("--zero-centered", input.zero_centered, "Multiply by 1 + weight instead of weight");
  add("--dtype", input.dtype, "TYPE", "The type to compute in (the file's; f32 for numbers)")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  add("--rows", input.rows, "ROWS",
      "Which rows to show, counted from 0, e.g. 0,17; or all (the first two; more with --html)");
  add("--batch-axis", input.batch_axis, "AXIS", "The batch's axis: warns if samples are mixed");
  add("--round", input.round, "N", "Also show the results of rounding each step to N decimals");
  add("--decimals", input.decimals, "N", "How many decimals to show (4)");
  add_value(*command, "--html", options->html, "FILE", "Write a page for a browser with the same numbers, drawn");
  command->add_flag("--slips", options->slips,
                    "Show slips that explanations make, and the right results; alone or with --json and --html");
  command->add_flag("--json", options->json, "One line of JSON");
  command->footer(kExplainExamples);
  command->callback([options, not_for_slips] {
    for (const CLI::Option* option : not_for_slips) {
      if (!options->slips || option->count() == 0) continue;
      throw Failure(fmt::format("--slips shows examples of its own and takes no {}", option->get_name()));
    }
    explain_or_refuse(*options);
  });
}

}  // namespace evenorm::cli
