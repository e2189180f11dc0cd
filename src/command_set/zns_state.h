// What the Zoned Namespace command set keeps of a namespace, and its commands, one function each.
//
// Any thread. `mutex` guards the zones, for moments. Who writes a zone's data shares its lock of `data`, and who erases
// them has it alone, so that nothing is written into a zone that has been reset meanwhile; that lock comes first.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "command_set/command_set.h"
#include "command_set/zns/zone_times.h"
#include "command_set/zns/zones.h"
#include "flashmob/config.h"

namespace flashmob::command_set {

class ZonedState final : public NamespaceState {
 public:
  ZonedState(const zns::Geometry& geometry, const ZonedConfig& config, Namespace& ns);
  void restart() override;
  std::shared_mutex& data_of(std::uint32_t zone) { return data_[zone % data_.size()]; }
  // After a zone has gone offline or has come back; the mutex is held.
  void note_runs();

  static ZonedState& of(Namespace& ns) { return static_cast<ZonedState&>(*ns.state); }
  static const ZonedState& of(const Namespace& ns) { return static_cast<const ZonedState&>(*ns.state); }

  std::mutex mutex;
  zns::Zones zones;
  const zns::ZoneTimes times;
  const bool reads_cross_zones;

 private:
  Namespace& ns_;
  const ZonedConfig config_;
  std::array<std::shared_mutex, 64> data_;
};

// Asks the zones for the blocks that a command of the NVM command set is about to write, and keeps them from being
// erased until it has.
class ZoneGate final : public WriteGate {
 public:
  // With a first block of the zone, an append: where the data goes is then in first().
  explicit ZoneGate(ZonedState& state, std::optional<std::uint64_t> zslba = {}) : state_(state), zslba_(zslba) {}
  nvme::Status admit(std::uint64_t& first, std::uint64_t blocks) override;
  nvme::Status check_source(std::uint64_t first, std::uint64_t blocks) override;
  bool admitted() const { return lock_.owns_lock(); }
  std::uint64_t first() const { return first_; }

 private:
  ZonedState& state_;
  const std::optional<std::uint64_t> zslba_;
  std::uint64_t first_ = 0;
  std::shared_lock<std::shared_mutex> lock_;
};

Outcome zone_management_send(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);
Outcome zone_management_receive(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);

}  // namespace flashmob::command_set
