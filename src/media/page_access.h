// Access to mapped files whose pages may be gone: somebody cut the file short, the disk is full where a hole would need
// a block, or it cannot be read. The kernel then raises SIGBUS (mmap(2)), which here ends the access and not the
// process.
//
// Any thread. Touching a registered range outside try_access(), and SIGBUS elsewhere, do what they did before.
#pragma once

#include <cstddef>
#include <type_traits>

#include "base/guarded_ranges.h"

namespace flashmob::media {

// Registers [begin, begin + bytes) for as long as it lives. The first one of the process installs the signal's handler.
class FilePages {
 public:
  FilePages(const void* begin, std::size_t bytes);
  ~FilePages();
  FilePages(const FilePages&) = delete;
  FilePages& operator=(const FilePages&) = delete;

 private:
  GuardedRange* place_;
};

bool try_access(void (*access)(void*), void* context);

// Runs `access`; false if it met a page that is gone. It then stopped half-way without unwinding, so it must own
// nothing, and what it changed is unknown.
template <class F>
bool try_access(F&& access) {
  return try_access([](void* f) { (*static_cast<std::remove_reference_t<F>*>(f))(); }, &access);
}

}  // namespace flashmob::media
