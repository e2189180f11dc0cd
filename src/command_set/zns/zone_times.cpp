#include "command_set/zns/zone_times.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace flashmob::zns {
namespace {

constexpr std::array<double, ShareTime::kPoints> kShares = {0, 1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2, 1};

double between(double share, double low_share, double high_share, std::uint64_t low_ns, std::uint64_t high_ns) {
  const auto low = static_cast<double>(low_ns), high = static_cast<double>(high_ns);
  return low + (high - low) * (share - low_share) / (high_share - low_share);
}

}  // namespace

std::uint64_t ShareTime::at(double share) const {
  share = std::clamp(share, 0.0, 1.0);
  if (values_ns_.size() == 1) return values_ns_[0];
  if (values_ns_.size() == 2)
    return static_cast<std::uint64_t>(std::llround(between(share, 0, 1, values_ns_[0], values_ns_[1])));
  std::size_t i = 1;
  while (i + 1 < kShares.size() && share > kShares[i]) ++i;
  return static_cast<std::uint64_t>(
      std::llround(between(share, kShares[i - 1], kShares[i], values_ns_[i - 1], values_ns_[i])));
}

std::uint64_t ZoneTimes::of_finish(const Zone& zone) const {
  if (zone.state == nvme::ZoneState::full) return 0;
  if (zone.written == 0) return finish_empty_ns;
  return finish.at(1 - static_cast<double>(zone.written) / static_cast<double>(capacity_blocks));
}

std::uint64_t ZoneTimes::of_reset(const Zone& zone) const {
  const double share = static_cast<double>(zone.written) / static_cast<double>(capacity_blocks);
  return zone.finished ? reset_finished.at(share) : reset.at(share);
}

}  // namespace flashmob::zns
