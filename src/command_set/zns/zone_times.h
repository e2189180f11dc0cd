// How long a zoned device takes for what it does to zones, by how much of the zone has been written. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "command_set/zns/zones.h"

namespace flashmob::zns {

// A time as a function of a share: always the one value; or between two, for none and all; or through six, for none,
// 1/16, 1/8, 1/4, 1/2 and all, which is where drives are measured.
class ShareTime {
 public:
  static constexpr std::size_t kPoints = 6;
  static bool is_length(std::size_t values) { return values == 1 || values == 2 || values == kPoints; }

  explicit ShareTime(const std::vector<std::uint64_t>& values_ns) : values_ns_(values_ns) {}
  std::uint64_t at(double share) const;

 private:
  std::vector<std::uint64_t> values_ns_;
};

// See ZonedConfig in flashmob/config.h.
struct ZoneTimes {
  std::uint64_t append_ns = 0, open_ns = 0, close_ns = 0, finish_empty_ns = 0;
  ShareTime finish, reset, reset_finished;
  std::uint64_t capacity_blocks = 1;

  // Of zones as they are before.
  std::uint64_t of_finish(const Zone& zone) const;
  std::uint64_t of_reset(const Zone& zone) const;
};

}  // namespace flashmob::zns
