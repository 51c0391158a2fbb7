// The text of a case, and its numbers.
#include "contracts/case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace evenorm::contracts {
namespace {

using Names = std::vector<std::string>;

[[noreturn]] void refuse(std::string_view word) {
  throw std::invalid_argument(
      fmt::format("a case has no '{}'; for example: layer f32 weight=f32 64x768 threads=2", word));
}

template <class Value, std::size_t kSize>
Value value_named(std::string_view word, const std::pair<std::string_view, Value> (&names)[kSize]) {
  for (const auto& [name, value] : names) {
    if (name == word) return value;
  }
  refuse(word);
}
template <class Value, std::size_t kSize>
std::string_view name_of(Value value, const std::pair<std::string_view, Value> (&names)[kSize]) {
  return std::ranges::find(names, value, [](const auto& pair) { return pair.second; })->first;
}

constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"f64", DType::f64}, {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}, {"i8", DType::i8}};
constexpr std::pair<std::string_view, Order> kOrders[] = {{"rows", Order::rows_first},
                                                          {"apart", Order::columns_apart},
                                                          {"first", Order::columns_first},
                                                          {"last", Order::channels_last},
                                                          {"reversed", Order::reversed}};
constexpr std::pair<std::string_view, Part> kHomes[] = {
    {"x", Part::x}, {"residual", Part::residual}, {"dy", Part::y}, {"dsum", Part::dsum}};
constexpr std::pair<std::string_view, Guard> kGuards[] = {{"after", Guard::after}, {"before", Guard::before}};
constexpr std::pair<std::string_view, Entry> kEntries[] = {{"direct", Entry::direct},
                                                           {"scratch", Entry::scratch},
                                                           {"pieces", Entry::pieces},
                                                           {"c", Entry::c},
                                                           {"plan", Entry::plan}};
constexpr std::pair<std::string_view, unsigned> kGradients[] = {{"dx", kDx}, {"dgamma", kDgamma}, {"dbeta", kDbeta}};

// What is before the separator, and what is behind it; empty without one.
std::pair<std::string_view, std::string_view> split(std::string_view text, std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + separator.size())};
}

double number(std::string_view word) {
  const std::string text(word);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0) refuse(word);
  return value;
}
template <class Integer>
Integer integer(std::string_view word) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) refuse(word);
  return value;
}
Shape integers(std::string_view word, char separator) {
  Shape shape;
  for (const std::string& part : parts_of(word, separator)) shape.push_back(integer<std::int64_t>(part));
  return shape;
}

std::string place_text(const Place& place) {
  std::string text(place.order == Order::rows_first ? "" : name_of(place.order, kOrders));
  if (place.offset != 0) text += fmt::format("+{}", place.offset);
  if (place.gap != 0 || place.more != 0) text += fmt::format("~{}", place.gap);
  if (place.more != 0) text += fmt::format("~{}", place.more);
  return text;
}
Place parse_place(std::string_view text) {
  const auto [rest, gaps] = split(text, "~");
  const auto [gap, more] = split(gaps, "~");
  const auto [order, offset] = split(rest, "+");
  const auto size = [](std::string_view word) { return word.empty() ? 0 : integer<std::size_t>(word); };
  return {order.empty() ? Order::rows_first : value_named(order, kOrders), size(offset), size(gap), size(more)};
}

std::string type_text(const Type& type) { return type ? std::string(name(*type)) : ""; }
DType parse_type(std::string_view word) { return value_named(word, kTypes); }
bool is_type(std::string_view word) {
  return std::ranges::any_of(kTypes, [&](const auto& type) { return type.first == word; });
}

// One word "KEY=VALUE", "KEY:VALUE" or "KEY". text: the value, "" if it is the default and the word is left out.
struct Word {
  std::string_view key;
  std::string (*text)(const Case&);
  void (*set)(Case&, std::string_view value);
};

std::string flag(bool is_set) { return is_set ? " " : ""; }
template <class Number>
std::string unless(Number value, Number usual) {
  return value == usual ? "" : fmt::format("{}", value);
}
std::string names_text(const Names& names) {
  return names == Names{"normal"} ? "" : fmt::format("{}", fmt::join(names, ","));
}
std::string home_text(Part part, Part own) { return part == own ? "" : std::string(name_of(part, kHomes)); }

// The operation's words, then the others.
constexpr std::size_t kOperationWords = 13;
constexpr Word kWords[] = {
    {"weight=", [](const Case& c) { return type_text(c.op.weight) + (c.op.weight && c.op.zero_centered ? "+1" : ""); },
     [](Case& c, std::string_view v) {
       c.op.weight = parse_type(split(v, "+").first);
       c.op.zero_centered = v.ends_with("+1");
     }},
    {"bias=", [](const Case& c) { return type_text(c.op.bias); },
     [](Case& c, std::string_view v) { c.op.bias = parse_type(v); }},
    {"residual=",
     [](const Case& c) {
       return type_text(c.op.residual) +
              (c.op.residual && c.op.residual_scale != 1 ? fmt::format("*{}", c.op.residual_scale) : "");
     },
     [](Case& c, std::string_view v) {
       const auto [type, scale] = split(v, "*");
       c.op.residual = parse_type(type);
       c.op.residual_scale = scale.empty() ? 1 : number(scale);
     }},
    {"nosum", [](const Case& c) { return flag(!c.op.sum); }, [](Case& c, std::string_view) { c.op.sum = false; }},
    {"given_scale=", [](const Case& c) { return unless(c.op.given_scale, 0.0); },
     [](Case& c, std::string_view v) { c.op.given_scale = number(v); }},
    {"dx=", [](const Case& c) { return type_text(c.op.dx); },
     [](Case& c, std::string_view v) {
       if (is_type(v)) {
         c.op.dx = parse_type(v);
       } else {
         c.way.layout.dx = parse_place(v);
       }
     }},
    {"dgamma=", [](const Case& c) { return type_text(c.op.dgamma); },
     [](Case& c, std::string_view v) { c.op.dgamma = parse_type(v); }},
    {"dbeta=", [](const Case& c) { return type_text(c.op.dbeta); },
     [](Case& c, std::string_view v) { c.op.dbeta = parse_type(v); }},
    {"dsum=", [](const Case& c) { return type_text(c.op.dsum); },
     [](Case& c, std::string_view v) { c.op.dsum = parse_type(v); }},
    {"accumulate", [](const Case& c) { return flag(c.op.accumulate); },
     [](Case& c, std::string_view) { c.op.accumulate = true; }},
    {"eps=", [](const Case& c) { return unless(c.op.eps, 1e-5); },
     [](Case& c, std::string_view v) { c.op.eps = number(v); }},
    {"axes=", [](const Case& c) { return c.axes == Shape{-1} ? "" : fmt::format("{}", fmt::join(c.axes, ",")); },
     [](Case& c, std::string_view v) { c.axes = integers(v, ','); }},
    {"parameter=", [](const Case& c) { return fmt::format("{}", fmt::join(c.parameter, "x")); },
     [](Case& c, std::string_view v) { c.parameter = integers(v, 'x'); }},
    {"x:", [](const Case& c) { return names_text(c.x); }, [](Case& c, std::string_view v) { c.x = parts_of(v, ','); }},
    {"dy:", [](const Case& c) { return names_text(c.dy); },
     [](Case& c, std::string_view v) { c.dy = parts_of(v, ','); }},
    {"residual:", [](const Case& c) { return names_text(c.residual); },
     [](Case& c, std::string_view v) { c.residual = parts_of(v, ','); }},
    {"seed=", [](const Case& c) { return unless(c.seed, std::uint64_t{1}); },
     [](Case& c, std::string_view v) { c.seed = integer<std::uint64_t>(v); }},
    {"x=", [](const Case& c) { return place_text(c.way.layout.x); },
     [](Case& c, std::string_view v) { c.way.layout.x = parse_place(v); }},
    {"y=", [](const Case& c) { return place_text(c.way.layout.y); },
     [](Case& c, std::string_view v) { c.way.layout.y = parse_place(v); }},
    {"dx=", [](const Case& c) { return place_text(c.way.layout.dx); }, nullptr},  // as above
    {"y@", [](const Case& c) { return home_text(c.way.layout.y_in, Part::y); },
     [](Case& c, std::string_view v) { c.way.layout.y_in = value_named(v, kHomes); }},
    {"sum@", [](const Case& c) { return home_text(c.way.layout.sum_in, Part::sum); },
     [](Case& c, std::string_view v) { c.way.layout.sum_in = value_named(v, kHomes); }},
    {"dx@", [](const Case& c) { return home_text(c.way.layout.dx_in, Part::dx); },
     [](Case& c, std::string_view v) { c.way.layout.dx_in = value_named(v, kHomes); }},
    {"odd", [](const Case& c) { return flag(c.way.layout.odd_addresses); },
     [](Case& c, std::string_view) { c.way.layout.odd_addresses = true; }},
    {"vectors=",
     [](const Case& c) {
       return place_text(
           {c.way.layout.vectors_apart ? Order::columns_apart : Order::rows_first, c.way.layout.vector_offset});
     },
     [](Case& c, std::string_view v) {
       const Place place = parse_place(v);
       c.way.layout.vectors_apart = place.order == Order::columns_apart;
       c.way.layout.vector_offset = place.offset;
     }},
    {"statistics=",
     [](const Case& c) {
       const Type& type = c.way.layout.statistics;
       return type == DType::f64 ? "" : type ? type_text(type) : std::string("none");
     },
     [](Case& c, std::string_view v) { c.way.layout.statistics = v == "none" ? Type() : parse_type(v); }},
    {"guard=",
     [](const Case& c) {
       return c.way.layout.guard == Guard::none ? "" : std::string(name_of(c.way.layout.guard, kGuards));
     },
     [](Case& c, std::string_view v) { c.way.layout.guard = value_named(v, kGuards); }},
    {"threads=", [](const Case& c) { return unless(c.way.threads, std::size_t{1}); },
     [](Case& c, std::string_view v) { c.way.threads = integer<std::size_t>(v); }},
    {"tasks=", [](const Case& c) { return unless(c.way.tasks, std::size_t{0}); },
     [](Case& c, std::string_view v) { c.way.tasks = integer<std::size_t>(v); }},
    {"entry=",
     [](const Case& c) {
       if (c.way.entry == Entry::direct) return std::string();
       return std::string(name_of(c.way.entry, kEntries)) + (c.way.amount != 0 ? fmt::format("*{}", c.way.amount) : "");
     },
     [](Case& c, std::string_view v) {
       const auto [entry, amount] = split(v, "*");
       c.way.entry = value_named(entry, kEntries);
       c.way.amount = amount.empty() ? 0 : integer<std::size_t>(amount);
     }},
    {"mode=", [](const Case& c) { return c.way.mode == FpMode::plain ? "" : std::string(name(c.way.mode)); },
     [](Case& c, std::string_view v) {
       const auto known = std::ranges::find_if(unusual_fp_modes(), [&](FpMode mode) { return name(mode) == v; });
       if (known == unusual_fp_modes().end()) refuse(v);
       c.way.mode = *known;
     }},
    {"alone", [](const Case& c) { return flag(c.way.alone); }, [](Case& c, std::string_view) { c.way.alone = true; }},
    {"only=",
     [](const Case& c) {
       Names names;
       for (const auto& [name, gradient] : kGradients) {
         if ((c.way.only & gradient) != 0) names.emplace_back(name);
       }
       return fmt::format("{}", fmt::join(names, ","));
     },
     [](Case& c, std::string_view v) {
       c.way.only = 0;
       for (const std::string& name : parts_of(v, ',')) c.way.only |= value_named(name, kGradients);
     }},
    {"given", [](const Case& c) { return flag(c.way.statistics_given); },
     [](Case& c, std::string_view) { c.way.statistics_given = true; }},
    {"repeat=", [](const Case& c) { return unless(c.way.repeat, std::size_t{1}); },
     [](Case& c, std::string_view v) { c.way.repeat = integer<std::size_t>(v); }},
};

std::string words_text(const Case& c, std::span<const Word> words) {
  std::string text;
  for (const Word& word : words) {
    const std::string value = word.text(c);
    if (!value.empty()) text += " " + std::string(word.key) + (value == " " ? "" : value);
  }
  return text;
}

// What computes: the kind, the types and the operation's words.
std::string operation_text(const Case& c) {
  std::string text = c.op.kind == Kind::layer ? "layer " : "rms ";
  text += evenorm::name(c.op.x);
  if (c.op.y != c.op.x) text += "->" + std::string(evenorm::name(c.op.y));
  return text + words_text(c, std::span(kWords).first(kOperationWords));
}

void set_word(Case& c, std::string_view word) {
  if (word == "layer" || word == "rms") {
    c.op.kind = word == "layer" ? Kind::layer : Kind::rms;
  } else if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
    c.shape = integers(word, 'x');
  } else if (is_type(split(word, "->").first)) {
    const auto [x, y] = split(word, "->");
    c.op.x = parse_type(x);
    c.op.y = y.empty() ? c.op.x : parse_type(y);
  } else {
    const auto found = std::ranges::find_if(kWords, [&](const Word& known) {
      const bool has_value = !std::isalnum(static_cast<unsigned char>(known.key.back()));
      return known.set != nullptr && (has_value ? word.starts_with(known.key) : word == known.key);
    });
    if (found == std::end(kWords)) refuse(word);
    found->set(c, word.substr(found->key.size()));
  }
}

}  // namespace

Names parts_of(std::string_view text, char separator) {
  Names parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Case case_of(const Operation& op, std::size_t rows) {
  return {.op = op, .shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(op.cols)}};
}

std::string Operation::name() const {
  Case c{.op = *this};
  c.op.eps = 1e-5;
  return operation_text(c) + " " + std::to_string(cols);
}

std::string Case::text() const {
  return operation_text(*this) + fmt::format(" {}", fmt::join(shape, "x")) +
         words_text(*this, std::span(kWords).subspan(kOperationWords));
}

namespace {

// Whether outputs that share memory have the type of what is there, and rows are whole where a pass needs that.
bool is_possible(const Case& c) {
  const Operation& op = c.op;
  const Layout& layout = c.way.layout;
  const auto fits = [&](Part home, Part own, const Type& output) {
    const Type there = home == Part::x      ? Type(op.x)
                       : home == Part::y    ? op.y
                       : home == Part::dsum ? op.dsum
                                            : op.residual;
    return home == own || (output.has_value() && output == there);
  };
  const auto has_whole_rows = [](const Place& place) { return place.order == Order::rows_first; };
  const bool needs_whole_rows = op.residual || op.y == DType::i8;
  return fits(layout.y_in, Part::y, op.y) && fits(layout.sum_in, Part::sum, op.has_sum() ? Type(op.x) : std::nullopt) &&
         fits(layout.dx_in, Part::dx, op.dx) &&
         (!needs_whole_rows || (has_whole_rows(layout.x) && has_whole_rows(layout.y)));
}

}  // namespace

Case with_way(Case c, std::string_view words) {
  for (const std::string& word : parts_of(words, ' ')) {
    if (!word.empty()) set_word(c, word);
  }
  const Axes split = axes_of(c.shape, c.axes);
  if (split.normalized.size() != c.axes.size() || product(split.normalized) == 0) refuse("axes or sizes like these");
  c.op.cols = product(split.normalized);
  if (!is_possible(c)) refuse("way like this, for these types or for whole rows");
  return c;
}

Case parse_case(std::string_view text) { return with_way({}, text); }

// --- numbers

namespace {

// A NaN that is not canonical: negative, with a payload.
void set_odd_nan(Array& array, std::size_t i) {
  array.set(i, std::numeric_limits<double>::quiet_NaN());
  const std::size_t bytes = size_of(array.dtype());
  array.data()[i * bytes] |= std::byte{1};
  array.data()[(i + 1) * bytes - 1] |= std::byte{0x80};
}

Array row_of(std::string_view name, DType dtype, std::size_t cols, std::uint64_t seed) {
  Array row = make_input_or("normal", name, dtype, cols, seed);
  if (name == "nan") set_odd_nan(row, seed % cols);
  if (name == "infinity") row.set(seed % cols, -std::numeric_limits<double>::infinity());
  return row;
}

// Weight and bias, and what dgamma and dbeta hold before, of so many elements.
void add_parameters(Inputs& in, const Operation& op, std::size_t elements, std::uint64_t seed) {
  if (op.weight) in.weight = make_weight(*op.weight, elements, seed);
  if (op.bias) in.bias = make_bias(*op.bias, elements, seed);
  if (op.accumulate && op.dgamma) in.dgamma = make_bias(*op.dgamma, elements, 4);
  if (op.accumulate && op.dbeta) in.dbeta = make_bias(*op.dbeta, elements, 5);
}

}  // namespace

Array rows_of(const Names& names, DType dtype, std::size_t rows, std::size_t cols, std::uint64_t seed) {
  Array all(dtype, std::size_t{0});
  for (std::size_t r = 0; r < rows; ++r) all.append(row_of(names[r % names.size()], dtype, cols, seed + r));
  return all;
}

Inputs inputs_of(const Operation& op, const Names& x, const Names& dy, std::size_t rows, std::uint64_t seed) {
  Inputs in{rows_of(x, op.x, rows, op.cols, seed)};
  if (op.is_backward()) in.dy = rows_of(dy, op.y, rows, op.cols, seed + 1000000);
  add_parameters(in, op, op.cols, seed);
  if (op.dsum) in.dsum = rows_of({"normal"}, *op.dsum, rows, op.cols, seed + 2000000);
  return in;
}

Inputs inputs_of(const Case& c) {
  const std::size_t rows = product(c.shape) / c.op.cols;
  Inputs in = inputs_of(c.op, c.x, c.dy, rows, c.seed);
  if (c.op.residual) in.residual = rows_of(c.residual, *c.op.residual, rows, c.op.cols, c.seed + 1000);
  if (!c.parameter.empty()) add_parameters(in, c.op, product(c.parameter), c.seed);
  return in;
}

}  // namespace evenorm::contracts
