#include "base/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

namespace flashmob {

RunDelay::~RunDelay() {
  if (file_ >= 0) ::close(file_);
}

std::optional<std::uint64_t> RunDelay::read_ns() {
  if (file_ == kUnopened) {
    file_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (file_ < 0) file_ = kUnknown;
  }
  if (file_ == kUnknown) return std::nullopt;
  // "RAN WAITED TURNS", in nanoseconds and a number. A kernel that was told not to count says zeroes.
  std::array<char, 96> text;
  const ssize_t bytes = ::pread(file_, text.data(), text.size(), 0);
  if (bytes <= 0) return std::nullopt;
  const char* const end = text.data() + bytes;
  std::uint64_t ran_ns = 0;
  const auto ran = std::from_chars(text.data(), end, ran_ns);
  std::uint64_t waited_ns = 0;
  if (ran.ec != std::errc{} || ran.ptr == end || ran_ns == 0) return std::nullopt;
  if (std::from_chars(ran.ptr + 1, end, waited_ns).ec != std::errc{}) return std::nullopt;
  return waited_ns;
}

}  // namespace flashmob
