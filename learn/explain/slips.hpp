// Slips that explanations of layer norm make: the formula as written, its result, the right result, and how the slip
// arises. All numbers are computed when this is called, except those quoted from the texts.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace evenorm::cli {

// A line "label: formula = values".
struct Figure {
  std::string label;
  std::string formula;
  std::vector<double> values;
};

// The positions of the two figures that should be equal but differ, which reveals the slip.
struct Telling {
  std::size_t wrong = 0, right = 0;
};

struct Slip {
  std::string name;  // short, for JSON
  std::string title;
  std::string written;  // the slip as it is written
  std::vector<Figure> wrong, right;
  std::string how;
  bool quoted = true;  // false if no text is quoted, but the slip is easily made
  Telling telling{};
};

std::vector<Slip> find_slips();           // all slips, those of the forward pass first
std::vector<Slip> find_backward_slips();  // those of the backward pass

std::string slips_text(const std::vector<Slip>& slips);
std::string slips_json(const std::vector<Slip>& slips);  // one line

}  // namespace evenorm::cli
