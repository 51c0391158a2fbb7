#include "support/guarded.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace evenorm::testing {
namespace {

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::size_t whole_pages(std::size_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

}  // namespace

// Inaccessible pages on both sides. The bytes are adjacent to one of them.
GuardedMemory::GuardedMemory(std::size_t bytes, Guard guard)
    : pages_bytes_(whole_pages(bytes) + 2 * page_size()), size_(bytes) {
  void* pages = mmap(nullptr, pages_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<std::byte*>(pages);
  const std::size_t inside = whole_pages(bytes);
  if (inside != 0 && mprotect(pages_ + page_size(), inside, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  data_ = pages_ + page_size() + (guard == Guard::after ? inside - bytes : 0);
}

GuardedMemory::GuardedMemory(std::span<const std::byte> contents, Guard guard) : GuardedMemory(contents.size(), guard) {
  if (!contents.empty()) std::memcpy(data_, contents.data(), contents.size());
}

GuardedMemory::~GuardedMemory() { munmap(pages_, pages_bytes_); }

void GuardedMemory::forbid_writing() {
  if (pages_bytes_ > 2 * page_size()) mprotect(pages_ + page_size(), pages_bytes_ - 2 * page_size(), PROT_READ);
}

}  // namespace evenorm::testing
