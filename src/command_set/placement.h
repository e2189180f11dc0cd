// Flexible Data Placement (NVMe Base 2.1, 8.1.10): the one endurance group of a drive that has it, with its reclaim
// unit handles, and what a namespace has of these.
//
// Whose data lies where is the timing model's to say where that keeps streams apart (timing::StreamPlacement): a stream
// is a handle in a reclaim group, a reclaim unit a superblock. Other models have no medium: reclaim units are counted
// here then, each full when so many bytes were written, and what hosts write is all that is written.
//
// Thread rule: any thread, but set_enabled() and use(), which belong to the admin thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "flashmob/config.h"
#include "nvme/placement.h"
#include "timing/model.h"

namespace flashmob::command_set {

inline constexpr std::uint16_t kEnduranceGroup = 1;

class Placement {
 public:
  // Where a write goes.
  struct Target {
    std::uint16_t group = 0;
    std::uint16_t handle = 0;  // reclaim unit handle
  };
  struct Statistics {
    std::uint64_t host_bytes = 0;
    std::uint64_t media_bytes = 0;
    std::uint64_t erased_bytes = 0;
  };
  // Of a command; at which time is the engine's clock to say.
  struct Event {
    nvme::FdpEventType type;
    std::uint32_t nsid;
    std::uint16_t identifier;
    Target target;
    std::uint64_t at_ns;
  };
  // Those that are reported, in the order of their numbers.
  static constexpr std::array kEventTypes = {nvme::FdpEventType::not_fully_written,
                                             nvme::FdpEventType::invalid_placement_identifier};
  static_assert(kEventTypes.size() == nvme::kFdpSupportedEvents);

  explicit Placement(const PlacementConfig& config);

  std::uint32_t groups() const { return config_.reclaim_groups; }
  std::uint32_t handles() const { return config_.handles; }
  bool is_persistently_isolated() const { return config_.persistently_isolated; }
  std::uint32_t streams() const { return groups() * handles(); }
  // RGIF.
  unsigned group_bits() const { return group_bits_; }
  std::uint64_t unit_bytes() const;
  // How many identifiers one update may have.
  std::uint32_t max_identifiers() const;

  bool is_enabled() const { return enabled_.load(std::memory_order_relaxed); }
  // Forgets what was written and what happened. No namespace has any of it.
  void set_enabled(bool enabled);
  // From now on this is where data lies; nullptr: nowhere.
  void use(timing::StreamPlacement* model);

  // A write of so many bytes is on its way there.
  void note_write(const Target& target, std::uint64_t bytes, timing::Demand& demand);
  // What its reclaim unit still takes.
  std::uint64_t bytes_left(const Target& target) const;
  // It goes on in an empty one. Returns what the other one has left, if anything was written to it.
  std::uint64_t next_unit(const Target& target);
  Statistics statistics() const;

  bool reports(const Target& target, nvme::FdpEventType type) const;
  bool reports(std::uint16_t handle, nvme::FdpEventType type) const { return reports(Target{0, handle}, type); }
  // False: there is no such event.
  bool set_reports(std::uint16_t handle, nvme::FdpEventType type, bool reported);
  // Where that handle's are reported; the oldest is forgotten where there are too many.
  void record(const Event& event);
  std::vector<Event> events() const;

 private:
  std::uint32_t stream_of(const Target& target) const { return target.group * config_.handles + target.handle; }
  Statistics counted() const;

  const PlacementConfig config_;
  const unsigned group_bits_;
  std::atomic<bool> enabled_;
  std::atomic<timing::StreamPlacement*> model_{nullptr};
  std::atomic<std::uint64_t> written_{0};  // by hosts, where there is no such model, and of the unit of each stream
  std::unique_ptr<std::atomic<std::uint64_t>[]> unit_written_;
  Statistics before_;  // what does not count any more
  std::unique_ptr<std::atomic<std::uint8_t>[]> reported_;  // by handle, a bit for each of kEventTypes
  mutable std::mutex mutex_;  // of what follows
  std::deque<Event> events_;
};

// Of one namespace.
class NamespacePlacement {
 public:
  // `handles` are its reclaim unit handles, by placement handle.
  NamespacePlacement(Placement& drive, std::uint32_t nsid, std::vector<std::uint16_t> handles)
      : drive_(drive), nsid_(nsid), handles_(std::move(handles)) {}

  Placement& drive() const { return drive_; }
  const std::vector<std::uint16_t>& handles() const { return handles_; }
  bool is_directed() const { return directed_.load(std::memory_order_relaxed); }
  // Whether writes may name a placement identifier (Directive Send). Without it all directives are ignored.
  void set_directed(bool directed) { directed_.store(directed, std::memory_order_relaxed); }

  // Whether a write's directive is one that it may have.
  bool accepts(const nvme::Sqe& write) const {
    const nvme::Directive directive = nvme::write_directive(write);
    return directive == nvme::Directive::identify || directive == nvme::Directive::data_placement || !is_directed();
  }
  // Nothing: there is no such group, or no such placement handle.
  std::optional<Placement::Target> target_of(std::uint16_t identifier) const;
  std::uint16_t identifier_of(std::uint32_t group, std::uint32_t placement_handle) const {
    return static_cast<std::uint16_t>((group << (16 - drive_.group_bits())) | placement_handle);
  }
  // A write that is right is asked of the timing model: says where its data goes. An identifier that names nothing
  // leaves that to the controller, which reports it.
  void place(const nvme::Sqe& write, std::uint64_t bytes, std::uint64_t now_ns, timing::Demand& demand) const;

 private:
  Placement& drive_;
  const std::uint32_t nsid_;
  const std::vector<std::uint16_t> handles_;
  std::atomic<bool> directed_{true};
};

// What a timing model is to keep apart.
timing::nand::Streams streams_of(const PlacementConfig& config);
// Throws ConfigError where a drive's placement is not what its namespaces, its timing model and its engine allow.
void check_placement(const DeviceConfig& config);
// The reclaim unit handles of a namespace of the configuration: those that it names, or all.
std::vector<std::uint16_t> configured_handles(const PlacementConfig& drive, const NamespaceConfig& ns);

}  // namespace flashmob::command_set
