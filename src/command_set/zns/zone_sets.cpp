#include "command_set/zns/zone_sets.h"

#include <algorithm>
#include <bit>

namespace flashmob::zns {
namespace {

bool has(StateMask states, unsigned position) { return ((states >> position) & 1) != 0; }

// The bits of a word from a zone's own on.
std::uint64_t from_bit(std::uint32_t index) { return ~std::uint64_t{0} << (index % 64); }

}  // namespace

ZoneSets::ZoneSets(std::uint32_t zones) : zones_(zones) {
  const std::uint32_t groups = (zones + kGroupZones - 1) / kGroupZones;
  for (unsigned state = 0; state < kZoneStates; ++state) {
    bits_[state].resize(std::size_t{groups} * kGroupWords);
    groups_[state].resize(groups);
  }
  const unsigned empty = position_of(nvme::ZoneState::empty);
  for (std::uint32_t group = 0; group < groups; ++group)
    groups_[empty][group] = static_cast<std::uint16_t>(std::min(zones - group * kGroupZones, kGroupZones));
  std::fill_n(bits_[empty].begin(), zones / kWordZones, ~std::uint64_t{0});
  if (zones % kWordZones != 0) bits_[empty][zones / kWordZones] = ~from_bit(zones);
  totals_[empty] = zones;
}

void ZoneSets::move(std::uint32_t index, nvme::ZoneState from, nvme::ZoneState to) {
  const std::uint64_t bit = std::uint64_t{1} << (index % kWordZones);
  const unsigned left = position_of(from), entered = position_of(to);
  bits_[left][index / kWordZones] &= ~bit;
  --groups_[left][index / kGroupZones];
  --totals_[left];
  bits_[entered][index / kWordZones] |= bit;
  ++groups_[entered][index / kGroupZones];
  ++totals_[entered];
}

std::uint64_t ZoneSets::word(StateMask states, std::uint32_t index) const {
  std::uint64_t bits = 0;
  for (unsigned state = 0; state < kZoneStates; ++state)
    if (has(states, state)) bits |= bits_[state][index];
  return bits;
}

bool ZoneSets::is_in_group(StateMask states, std::uint32_t group) const {
  for (unsigned state = 0; state < kZoneStates; ++state)
    if (has(states, state) && groups_[state][group] != 0) return true;
  return false;
}

std::uint32_t ZoneSets::count_from(StateMask states, std::uint32_t first) const {
  if (first >= zones_) return 0;
  if (states == kAllStates) return zones_ - first;
  std::uint32_t count = 0;
  const std::uint32_t group = first / kGroupZones;
  for (std::uint32_t at = first / kWordZones; at < (group + 1) * kGroupWords; ++at) {
    const std::uint64_t wanted = at == first / kWordZones ? from_bit(first) : ~std::uint64_t{0};
    count += static_cast<std::uint32_t>(std::popcount(word(states, at) & wanted));
  }
  for (unsigned state = 0; state < kZoneStates; ++state)
    if (has(states, state))
      for (std::size_t later = group + 1; later < groups_[state].size(); ++later) count += groups_[state][later];
  return count;
}

std::uint32_t ZoneSets::next(StateMask states, std::uint32_t first) const {
  if (first >= zones_) return kNone;
  if (states == kAllStates) return first;
  std::uint64_t wanted = from_bit(first);
  std::uint32_t at = first / kWordZones;
  const std::uint32_t words = static_cast<std::uint32_t>(bits_[0].size());
  while (at < words) {
    if (!is_in_group(states, at / kGroupWords)) {
      at = (at / kGroupWords + 1) * kGroupWords;
    } else {
      if (const std::uint64_t found = word(states, at) & wanted; found != 0)
        return at * kWordZones + static_cast<std::uint32_t>(std::countr_zero(found));
      ++at;
    }
    wanted = ~std::uint64_t{0};
  }
  return kNone;
}

}  // namespace flashmob::zns
