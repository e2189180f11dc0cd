// How long the calling thread has stood ready to run and did not: after its wake-ups and while others had its core,
// since it began. What a thread that slept for want of work cannot see by the clock is when it could have gone on; this
// tells.
//
// Linux counts it (scheduler statistics, which distributions build in). For one thread, which makes it and reads it; a
// reading is a system call of some microseconds.
#pragma once

#include <cstdint>
#include <optional>

namespace flashmob {

class RunDelay {
 public:
  RunDelay() = default;
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  // Nothing where the kernel does not tell.
  std::optional<std::uint64_t> read_ns();

 private:
  static constexpr int kUnopened = -1;
  static constexpr int kUnknown = -2;
  int file_ = kUnopened;
};

}  // namespace flashmob
