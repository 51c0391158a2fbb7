// The slips that explanations of layer norm make: each as it is written, what it gives, what is right, and how the
// wrong number comes about. Every number but those quoted from the texts is computed when this is called.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace evenorm::cli {

// label: formula = values
struct Figure {
  std::string label;
  std::string formula;
  std::vector<double> values;
};

// Which figures, by their places, give a slip away: they should be the same, and are not.
struct Telling {
  std::size_t wrong = 0, right = 0;
};

struct Slip {
  std::string name;  // short, for JSON
  std::string title;
  std::string written;  // as it stands in a text
  std::vector<Figure> wrong, right;
  std::string how;
  bool quoted = true;  // it stands in some text; else it is easily made
  Telling telling{};
};

std::vector<Slip> find_slips();           // all, those of the forward pass first
std::vector<Slip> find_backward_slips();  // those of the backward pass

std::string slips_text(const std::vector<Slip>& slips);
std::string slips_json(const std::vector<Slip>& slips);  // one line

}  // namespace evenorm::cli
