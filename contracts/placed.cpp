// Implements placed.hpp.
#include "contracts/placed.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

namespace evenorm::contracts {
namespace {

constexpr std::byte kUntouched{0xA5};
constexpr std::size_t kAlignment = 64, kMargin = 128;  // bytes; the margin is on both sides

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::size_t whole_pages(std::size_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

// Calls move(offset, count, step) for each line of the last axis, in C order: its offset from element (0, ..., 0), and
// the distance of its elements, in bytes.
template <class Move>
void for_each_line(const Shape& shape, const Shape& strides, std::size_t element, const Move& move) {
  if (product(shape) == 0) return;
  const auto bytes = static_cast<std::ptrdiff_t>(element);
  if (shape.empty()) return move(std::ptrdiff_t{0}, std::size_t{1}, bytes);
  const std::size_t last = shape.size() - 1;
  const std::ptrdiff_t step = shape[last] == 1 ? bytes : strides[last] * bytes;  // that of one element may be anything
  Shape index(last);
  for (;;) {
    std::ptrdiff_t offset = 0;
    for (std::size_t axis = 0; axis < last; ++axis) offset += index[axis] * strides[axis];
    move(offset * bytes, static_cast<std::size_t>(shape[last]), step);
    std::size_t axis = last;
    while (axis-- > 0 && ++index[axis] == shape[axis]) index[axis] = 0;
    if (axis == std::size_t(-1)) return;
  }
}

// Elements of `bytes` bytes, at distances in bytes.
void copy_line(std::byte* to, std::ptrdiff_t to_step, const std::byte* from, std::ptrdiff_t from_step,
               std::size_t count, std::size_t bytes) {
  const auto dense = static_cast<std::ptrdiff_t>(bytes);
  if (to_step == dense && from_step == dense) {
    std::memcpy(to, from, count * bytes);
    return;
  }
  for (std::size_t i = 0; i < count; ++i, to += to_step, from += from_step) std::memcpy(to, from, bytes);
}

}  // namespace

std::size_t product(std::span<const std::int64_t> shape) {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

// --- memory

GuardedMemory::GuardedMemory(std::size_t bytes, Guard guard)
    : pages_(nullptr, Unmap{whole_pages(bytes) + 2 * page_size()}), size_(bytes) {
  void* pages = mmap(nullptr, pages_.get_deleter().bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  pages_.reset(static_cast<std::byte*>(pages));
  const std::size_t inside = whole_pages(bytes);
  std::byte* const first = pages_.get() + page_size();
  if (inside != 0 && mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  data_ = first + (guard == Guard::after ? inside - bytes : 0);
}
GuardedMemory::GuardedMemory(std::span<const std::byte> contents, Guard guard) : GuardedMemory(contents.size(), guard) {
  if (!contents.empty()) std::memcpy(data_, contents.data(), contents.size());
}
void GuardedMemory::Unmap::operator()(std::byte* pages) const { munmap(pages, bytes); }
void GuardedMemory::forbid_writing() {
  const std::size_t inside = pages_.get_deleter().bytes - 2 * page_size();
  if (inside != 0) mprotect(pages_.get() + page_size(), inside, PROT_READ);
}

Shape strides_of(const Shape& shape, const Place& place) {
  Shape order(shape.size()), strides(shape.size(), 1);  // order: of the axes, outermost first
  std::iota(order.begin(), order.end(), 0);
  const bool moved = place.order == Order::columns_first || place.order == Order::channels_last;
  const std::ptrdiff_t to = place.order == Order::channels_last ? 1 : 0;
  if (moved && std::ssize(order) > to) std::rotate(order.begin() + to, order.end() - 1, order.end());
  std::int64_t step = place.order == Order::columns_apart ? 2 : 1;
  const std::size_t gaps[] = {place.gap, place.more};
  for (std::size_t i = order.size(), inner = 0; i-- > 0; ++inner) {
    const auto axis = static_cast<std::size_t>(order[i]);
    strides[axis] = place.order == Order::reversed ? -step : step;
    step = step * shape[axis] + static_cast<std::int64_t>(inner < 2 ? gaps[inner] : 0);
  }
  return strides;
}

Placed::Placed(DType dtype, const Shape& shape, const Place& place, bool odd, Guard guard)
    : Placed(dtype, shape, strides_of(shape, place)) {
  const auto [before, after] = extent();
  if (guard != Guard::none) {
    guarded_ = std::make_unique<GuardedMemory>(static_cast<std::size_t>(before + after), guard);
    std::fill_n(guarded_->data(), guarded_->size(), kUntouched);
    size_ = guarded_->size();
    start_ = before;
    return;
  }
  const std::size_t offset = place.offset * size_of(dtype) + (odd ? 1 : 0);
  size_ = 2 * kMargin + kAlignment + offset + static_cast<std::size_t>(before + after);
  memory_.assign(size_, kUntouched);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kMargin);
  start_ = static_cast<std::ptrdiff_t>(kMargin + (kAlignment - address % kAlignment) % kAlignment + offset) + before;
}

Placed Placed::chosen(DType dtype, const Shape& shape, const Choose& choose, bool may_meet) {
  Placed tensor(dtype, shape, Shape(shape.size()));
  Shape order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[choose(i)]);
  const std::size_t ahead = choose(4) == 0 ? choose(9) : 0;
  std::int64_t step = choose(3) == 0 ? 2 : 1;
  for (const std::int64_t axis : order) {
    const auto i = static_cast<std::size_t>(axis);
    const bool backwards = choose(4) == 0;
    if (may_meet && choose(4) == 0) step = static_cast<std::int64_t>(choose(3));
    tensor.strides_[i] = backwards ? -step : step;
    step *= shape[i] + static_cast<std::int64_t>(choose(4) == 0 ? choose(3) : 0);
  }
  const auto [before, after] = tensor.extent();
  tensor.start_ = before + static_cast<std::ptrdiff_t>(ahead * size_of(dtype) + (ahead % 3 == 2 ? 1 : 0));
  tensor.size_ = static_cast<std::size_t>(tensor.start_ + after);
  tensor.memory_.assign(tensor.size_, kUntouched);
  return tensor;
}

std::pair<std::ptrdiff_t, std::ptrdiff_t> Placed::extent() const {
  if (product(shape_) == 0) return {0, 0};
  const auto bytes = static_cast<std::ptrdiff_t>(size_of(dtype_));
  std::ptrdiff_t before = 0, after = bytes;
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    const std::ptrdiff_t last = (shape_[i] - 1) * strides_[i] * bytes;
    last < 0 ? before -= last : after += last;
  }
  return {before, after};
}

void Placed::put(const std::byte* values) {
  const std::size_t bytes = size_of(dtype_);
  for_each_line(shape_, strides_, bytes, [&](std::ptrdiff_t offset, std::size_t count, std::ptrdiff_t step) {
    copy_line(start() + offset, step, values, static_cast<std::ptrdiff_t>(bytes), count, bytes);
    values += count * bytes;
  });
  before_.assign(data(), data() + size_);
}

Array Placed::get() const {
  Array values(dtype_, product(shape_));
  const std::size_t bytes = size_of(dtype_);
  std::byte* to = values.data();
  for_each_line(shape_, strides_, bytes, [&](std::ptrdiff_t offset, std::size_t count, std::ptrdiff_t step) {
    copy_line(to, static_cast<std::ptrdiff_t>(bytes), start() + offset, step, count, bytes);
    to += count * bytes;
  });
  return values;
}

void Placed::forbid_writing() {
  if (guarded_) guarded_->forbid_writing();
}

void Placed::reset() {
  before_.empty() ? void(std::fill_n(data(), size_, kUntouched)) : void(std::ranges::copy(before_, data()));
}

bool Placed::is_unchanged() const { return std::equal(before_.begin(), before_.end(), data()); }

bool Placed::only_elements_were_written() const {
  Bytes blank(data(), data() + size_);
  const std::size_t bytes = size_of(dtype_);
  for_each_line(shape_, strides_, bytes, [&](std::ptrdiff_t offset, std::size_t count, std::ptrdiff_t step) {
    std::byte* place = blank.data() + start_ + offset;
    for (std::size_t i = 0; i < count; ++i, place += step) std::fill_n(place, bytes, kUntouched);
  });
  return std::ranges::all_of(blank, [](std::byte b) { return b == kUntouched; });
}

// --- rows

Axes axes_of(const Shape& shape, const Shape& axes) {
  Axes result{axes, {}, {}};
  for (std::int64_t i = 0; i < std::ssize(shape); ++i) {
    const bool normalized =
        std::ranges::any_of(axes, [&](std::int64_t a) { return a == i || a + std::ssize(shape) == i; });
    (normalized ? result.normalized : result.outer).push_back(shape[static_cast<std::size_t>(i)]);
  }
  return result;
}

bool Axes::are_the_last() const {
  for (std::int64_t i = 0; i < std::ssize(axes); ++i) {
    if (axes[static_cast<std::size_t>(i)] != i - std::ssize(axes)) return false;
  }
  return true;
}

Axes choose_axes(const Shape& shape, const Choose& choose) {
  Shape axes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool last_chance = i + 1 == shape.size() && axes.empty();
    if (!last_chance && choose(2) != 0) continue;
    const auto axis = static_cast<std::int64_t>(i);
    const bool first = choose(2) == 0, from_start = choose(2) == 0;
    axes.insert(first ? axes.begin() : axes.end(), from_start ? axis : axis - std::ssize(shape));
  }
  return axes_of(shape, axes);
}

std::vector<std::ptrdiff_t> element_offsets(const Shape& shape, const Shape& strides, std::size_t element) {
  std::vector<std::ptrdiff_t> offsets;
  for_each_line(shape, strides, element, [&](std::ptrdiff_t offset, std::size_t count, std::ptrdiff_t step) {
    for (std::size_t i = 0; i < count; ++i, offset += step) offsets.push_back(offset);
  });
  return offsets;
}

std::vector<std::size_t> places_of_rows(const Shape& shape, const Shape& axes) {
  const Axes split = axes_of(shape, axes);
  // Strides of a tensor with the normalised axes last, in C order.
  Shape strides(shape.size());
  std::int64_t col = 1, row = static_cast<std::int64_t>(product(split.normalized));
  for (std::size_t i = shape.size(); i-- > 0;) {
    const bool normalized = std::ranges::any_of(axes, [&](std::int64_t a) {
      return a == static_cast<std::int64_t>(i) || a + std::ssize(shape) == static_cast<std::int64_t>(i);
    });
    std::int64_t& step = normalized ? col : row;
    strides[i] = step;
    step *= shape[i];
  }
  std::vector<std::size_t> order(product(shape));
  std::size_t place = 0;
  for (const std::ptrdiff_t offset : element_offsets(shape, strides, 1))
    order[static_cast<std::size_t>(offset)] = place++;
  return order;
}

Array permuted(const Array& from, const std::vector<std::size_t>& order, bool back) {
  Array to(from.dtype(), from.size());
  const std::size_t bytes = size_of(from.dtype());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t source = back ? i : order[i], target = back ? order[i] : i;
    std::memcpy(to.data() + target * bytes, from.data() + source * bytes, bytes);
  }
  return to;
}

}  // namespace evenorm::contracts
