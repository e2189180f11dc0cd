// Whether a keep alive timer will soon tell that a host is gone: then it is nobody else's to end it. A host may choose
// one of 49 days, and such a host is as good as one without.
#pragma once

#include <cstdint>

namespace flashmob::transport {

// Linux asks for 5 s (30 s for discovery), SPDK for 10 s; hosts on slow paths take some times that.
inline constexpr std::uint32_t kLongestKeptAliveMs = 120'000;

constexpr bool is_kept_alive(std::uint32_t keep_alive_ms) {
  return keep_alive_ms != 0 && keep_alive_ms <= kLongestKeptAliveMs;
}

}  // namespace flashmob::transport
