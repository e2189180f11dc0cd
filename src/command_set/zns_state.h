// What the Zoned Namespace command set keeps of a namespace, and its commands, one function each.
//
// Any thread. `mutex` guards the zones and who uses them, for moments; nobody waits for a zone. Who is to write into
// one enters it first, and leaves it when that is done. Who resets one keeps newcomers out from the beginning, in many
// steps, and erases it when those that were in have left; whoever finds it so comes again later. So nothing is written
// into a zone that has been reset meanwhile.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
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

  // --- The mutex is held ---
  // False: it is being reset.
  bool enter(std::uint32_t zone) {
    if (uses_[zone].is_resetting) return false;
    ++uses_[zone].writers;
    return true;
  }
  void leave(std::uint32_t zone) { --uses_[zone].writers; }
  // False: by somebody else.
  bool begin_reset(std::uint32_t zone) { return !std::exchange(uses_[zone].is_resetting, true); }
  bool is_written(std::uint32_t zone) const { return uses_[zone].writers != 0; }
  void end_reset(std::uint32_t zone) { uses_[zone].is_resetting = false; }
  // After a zone has gone offline or has come back.
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
  struct Use {
    std::uint16_t writers = 0;  // one of each thread at most
    bool is_resetting = false;
  };
  std::vector<Use> uses_;
};

// Asks the zones for the blocks that a command of the NVM command set is about to write, and keeps them from being
// erased until it has.
class ZoneGate final : public WriteGate {
 public:
  // By the command's first block. Of an append that is its zone's: where the data goes is then in first().
  ZoneGate(ZonedState& state, const nvme::Sqe& sqe);
  ~ZoneGate() override;
  ZoneGate(const ZoneGate&) = delete;
  ZoneGate& operator=(const ZoneGate&) = delete;
  // The zone is being reset, and the command is not for now.
  bool is_busy() const { return is_busy_; }
  nvme::Status admit(std::uint64_t& first, std::uint64_t blocks) override;
  nvme::Status check_source(std::uint64_t first, std::uint64_t blocks) override;
  bool admitted() const { return admitted_; }
  std::uint64_t first() const { return first_; }

 private:
  ZonedState& state_;
  const std::uint64_t named_;
  const std::uint32_t zone_;
  const bool appends_;
  bool is_inside_ = false;
  bool is_busy_ = false;
  bool admitted_ = false;
  std::uint64_t first_ = 0;
};

// Zone Management Send between two steps.
struct ZoneProgress {
  enum class Stage : std::uint8_t { looks, waits, erases };
  Stage stage = Stage::looks;  // for the next zone of all; or it resets one
  bool marks_changed = false;
  std::uint32_t index = 0;
  std::uint64_t bytes = 0;  // of the zone that is being erased, ...
  std::uint64_t done_bytes = 0;
  std::uint64_t reset_ns = 0;  // ... and what that takes, as modelled
  std::uint64_t took_ns = 0;  // so far
};

std::optional<Outcome> zone_management_send(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context,
                                            Progress& progress);
// The zone that is being reset is as it was, but for the data that it has lost already.
void abandon(Namespace& ns, const ZoneProgress& progress);
Outcome zone_management_receive(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context);

}  // namespace flashmob::command_set
