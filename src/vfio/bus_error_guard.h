// Keeps this process alive when its peer cuts short a file whose memory they share: touching a page that is gone raises
// SIGBUS (mmap(2)), and the guard then puts zeroes in the place of all that follows in the range, as one mapping: page
// by page, a process would run out of mappings. The peer harms its own data only, and whoever serves it should drop it.
//
// Ranges may be added and removed on any thread; the signal handler reads them without a lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/guarded_ranges.h"

namespace flashmob::vfio {

class BusErrorGuard {
 public:
  // Guards [begin, begin + bytes), mapped in pages of `page_bytes` (those of the file: 4 KiB, or huge ones). The first
  // guard of the process installs the handler; SIGBUS elsewhere stays what it was.
  BusErrorGuard(void* begin, std::size_t bytes, std::size_t page_bytes);
  // Before the range is unmapped.
  ~BusErrorGuard();
  BusErrorGuard(const BusErrorGuard&) = delete;
  BusErrorGuard& operator=(const BusErrorGuard&) = delete;

  // Whether something in the range was lost.
  bool was_hit() const;
  // How often that has happened in this process: as long as it stays the same, no guard need be asked.
  static std::uint64_t hits();

 private:
  GuardedRange* place_;
};

}  // namespace flashmob::vfio
