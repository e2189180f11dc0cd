// The zones of a namespace: states, write pointers, and the limits on those that are open and active (Zoned Namespace
// Command Set 1.1, clauses 2.1.1 and 3.4). What a command may do, what it does, and with which status it fails; it
// knows nothing of data, memory or time.
//
// For one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "command_set/zns/zone_sets.h"
#include "nvme/status.h"
#include "nvme/zns.h"

namespace flashmob::zns {

struct Geometry {
  std::uint64_t zone_blocks = 0;      // ZSZE, a power of two
  std::uint64_t capacity_blocks = 0;  // ZCAP, 1...zone_blocks
  std::uint32_t zones = 0;
  std::uint32_t max_open = 0;    // 0: no limit, as max_active
  std::uint32_t max_active = 0;
  std::uint32_t extension_bytes = 0;  // of a zone descriptor; 0: there are none
};

struct Zone {
  std::uint64_t written = 0;  // blocks from its start; of a full zone what it had when it became so
  nvme::ZoneState state = nvme::ZoneState::empty;
  bool finished = false;        // full by Finish
  bool has_extension = false;
  // Neighbours in the list of implicitly opened zones, the one that was opened first at its head.
  std::uint32_t before = UINT32_MAX, behind = UINT32_MAX;
};

class Zones {
 public:
  explicit Zones(const Geometry& geometry);

  const Geometry& geometry() const { return geometry_; }
  const Zone& zone(std::uint32_t index) const { return zones_[index]; }
  std::uint32_t zone_of(std::uint64_t lba) const { return static_cast<std::uint32_t>(lba >> shift_); }
  std::uint64_t start_of(std::uint32_t index) const { return std::uint64_t{index} << shift_; }
  std::uint32_t open_zones() const {
    return sets_.count(nvme::ZoneState::implicitly_opened) + sets_.count(nvme::ZoneState::explicitly_opened);
  }
  std::uint32_t active_zones() const { return open_zones() + sets_.count(nvme::ZoneState::closed); }
  std::uint32_t offline_zones() const { return sets_.count(nvme::ZoneState::offline); }
  // Of the zones from `first` on, those that are in one of these states: how many, and the first one, or kNone.
  static constexpr std::uint32_t kNone = ZoneSets::kNone;
  std::uint32_t count_from(StateMask states, std::uint32_t first) const { return sets_.count_from(states, first); }
  std::uint32_t next(StateMask states, std::uint32_t first) const { return sets_.next(states, first); }

  // --- Commands on blocks, which lie in the namespace; `blocks` is at least 1 ---
  nvme::Status check_read(std::uint64_t first, std::uint64_t blocks, bool may_cross) const;
  // Blocks that are written from the write pointer on: opens the zone, and fills it with its last block.
  nvme::Status write(std::uint64_t first, std::uint64_t blocks);
  // The same of a zone named by its first block; `first` is where its write pointer was, if it succeeds.
  nvme::Status append(std::uint64_t zslba, std::uint64_t blocks, std::uint64_t& first);

  // --- Zone Management Send: one zone, or all that the action is for ---
  nvme::Status open(std::uint32_t index);
  nvme::Status close(std::uint32_t index);
  nvme::Status finish(std::uint32_t index);
  nvme::Status reset(std::uint32_t index);
  nvme::Status check_reset(std::uint32_t index) const;  // what reset() would say
  nvme::Status set_offline(std::uint32_t index);  // by a host, of a zone that is read only
  nvme::Status set_extension(std::uint32_t index, std::span<const std::byte> extension);
  nvme::Status open_all();
  // The states of the zones that an action on all zones is for (clause 3.4.3.1).
  static StateMask selected(nvme::ZoneSendAction action);
  std::span<const std::byte> extension(std::uint32_t index) const;

  // --- Of the controller's own accord: the zone is on the list of changed zones ---
  void fail_read_only(std::uint32_t index);
  void fail_offline(std::uint32_t index);
  // Those zones, ascending; forgotten unless they are to be retained.
  std::vector<std::uint32_t> changed(bool retain);

  nvme::ZoneDescriptor descriptor(std::uint32_t index) const;
  // Formatted: all zones are empty, those that have failed as well.
  void restart();

 private:
  nvme::Status check_writable(std::uint32_t index, std::uint64_t first, std::uint64_t blocks) const;
  nvme::Status write(std::uint32_t index, std::uint64_t first, std::uint64_t blocks);
  nvme::Status take_open(std::uint32_t index, nvme::ZoneState as);
  void advance(std::uint32_t index, std::uint64_t blocks);
  void move_to(std::uint32_t index, nvme::ZoneState state);
  void leave(std::uint32_t index);
  void note_changed(std::uint32_t index);

  Geometry geometry_;
  unsigned shift_;
  std::vector<Zone> zones_;
  std::vector<std::byte> extensions_;
  std::vector<std::uint32_t> changed_;
  ZoneSets sets_;
  std::uint32_t oldest_ = kNone, youngest_ = kNone;  // of the implicitly opened ones
};

}  // namespace flashmob::zns
