// Which zones are in which state: what a report or an action on all zones walks, so that neither looks at the others.
// A bit for each zone and state, and counts of groups of zones, which stand for the groups that have none.
//
// For one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nvme/zns.h"

namespace flashmob::zns {

// Some of the states; 0: none.
using StateMask = std::uint8_t;
inline constexpr unsigned kZoneStates = 7;
inline constexpr StateMask kAllStates = (1u << kZoneStates) - 1;

constexpr unsigned position_of(nvme::ZoneState state) {
  switch (state) {
    case nvme::ZoneState::empty:
      return 0;
    case nvme::ZoneState::implicitly_opened:
      return 1;
    case nvme::ZoneState::explicitly_opened:
      return 2;
    case nvme::ZoneState::closed:
      return 3;
    case nvme::ZoneState::full:
      return 4;
    case nvme::ZoneState::read_only:
      return 5;
    case nvme::ZoneState::offline:
      return 6;
  }
  return 0;
}
constexpr StateMask mask_of(nvme::ZoneState state) { return static_cast<StateMask>(1u << position_of(state)); }

class ZoneSets {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // All are empty.
  explicit ZoneSets(std::uint32_t zones);

  void move(std::uint32_t index, nvme::ZoneState from, nvme::ZoneState to);
  std::uint32_t count(nvme::ZoneState state) const { return totals_[position_of(state)]; }
  // Of the zones from `first` on, those that are in one of these states: how many, and the first one, or kNone.
  std::uint32_t count_from(StateMask states, std::uint32_t first) const;
  std::uint32_t next(StateMask states, std::uint32_t first) const;

 private:
  static constexpr std::uint32_t kWordZones = 64, kGroupZones = 1024, kGroupWords = kGroupZones / kWordZones;

  std::uint64_t word(StateMask states, std::uint32_t index) const;
  bool is_in_group(StateMask states, std::uint32_t group) const;

  std::uint32_t zones_;
  std::array<std::vector<std::uint64_t>, kZoneStates> bits_;
  std::array<std::vector<std::uint16_t>, kZoneStates> groups_;
  std::array<std::uint32_t, kZoneStates> totals_{};
};

}  // namespace flashmob::zns
