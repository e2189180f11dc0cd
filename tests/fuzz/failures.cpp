#include "fuzz/failures.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>

namespace flashmob::fuzz {
namespace {

// Of each Lack: requests that still succeed; negative: all of them.
thread_local std::array<int, 3> left{-1, -1, -1};

bool fails(Lack what) {
  int& count = left[static_cast<std::size_t>(what)];
  return count >= 0 && count-- == 0;
}

}  // namespace

Failure::Failure(Lack what, unsigned after) { left[static_cast<std::size_t>(what)] = static_cast<int>(after); }
Failure::~Failure() { left = {-1, -1, -1}; }

bool mapping_fails() { return fails(Lack::mappings); }
bool descriptor_fails() { return fails(Lack::descriptors); }

}  // namespace flashmob::fuzz

// The linker's names: __wrap_X is called for X, __real_X is X.
extern "C" {
void* __real__Znwm(std::size_t bytes);
int __real_eventfd(unsigned value, int flags);

void* __wrap__Znwm(std::size_t bytes) {
  if (flashmob::fuzz::fails(flashmob::fuzz::Lack::memory)) throw std::bad_alloc();
  return __real__Znwm(bytes);
}

int __wrap_eventfd(unsigned value, int flags) {
  if (!flashmob::fuzz::descriptor_fails()) return __real_eventfd(value, flags);
  errno = EMFILE;
  return -1;
}
}
