// The NVM subsystem: namespaces shared by its controllers, the command sets, the device's identity.
//
// Control operations (create, delete, attach, format) run on admin threads under one mutex; the I/O path reads
// attachment tables of atomic pointers without locks. A deleted namespace's objects and media are freed when no command
// under way knows them any more (QueueHost::knows()).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "command_set/command_set.h"
#include "command_set/lba_formats.h"
#include "command_set/namespace.h"
#include "command_set/placement.h"
#include "controller/feature_saves.h"
#include "controller/namespace_changes.h"
#include "controller/queue_host.h"
#include "controller/rights.h"
#include "controller/unit_space.h"
#include "flashmob/config.h"
#include "media/media.h"
#include "media/saved_state.h"
#include "nvme/features.h"
#include "nvme/placement.h"
#include "timing/model.h"

namespace flashmob::controller {

class Controller;

inline constexpr std::uint32_t kMaxNamespaces = 256;  // NN
// An identifier that a namespace could have, whether or not one has it (Base 2.0c, 3.2.1.2: valid NSID).
constexpr bool is_valid_nsid(std::uint32_t nsid) { return nsid >= 1 && nsid <= kMaxNamespaces; }

// nsid -> attached namespace, one table per controller; index 0 unused.
using AttachmentTable = std::array<std::atomic<command_set::Namespace*>, kMaxNamespaces + 1>;

// Details of a namespace that only admin commands need.
struct NamespaceInfo {
  command_set::Namespace* current = nullptr;  // nullptr: the NSID is not allocated
  NamespaceConfig config;
  std::array<std::uint8_t, 16> nguid{};
  std::array<std::uint8_t, 8> eui64{};
  std::array<std::uint8_t, 16> uuid{};
  bool from_configuration = false;  // else a host made it
  bool is_handle_chosen = false;  // its one reclaim unit handle; else whoever made it has named them
  media::Media* media = nullptr;  // of `current`
  std::uint64_t unit_base = 0;  // first timing unit; formats keep it
  std::uint64_t units = 0;
  std::uint64_t capacity_bytes = 0;  // what it takes from the subsystem's total
  // By LBA format: what `current` was in one format is used again when the format comes back.
  std::array<command_set::Namespace*, command_set::kLbaFormats> by_format{};
  bool is_formatting = false;
  // Those that it goes back to when its format is over.
  std::vector<Controller*> detached_for_format;
  // What hosts have asked for. Media that cannot be written are protected besides.
  nvme::WriteProtection write_protection = nvme::WriteProtection::none;
};

class Subsystem;

// A part of a namespace that is lent out as a drive of its own.
struct Window {
  Subsystem& of;  // outlives it
  std::uint32_t nsid = 1;
  // Whole blocks, and whole units of the timing model.
  std::uint64_t first_byte = 0;
  std::uint64_t size_bytes = 0;
  std::string nqn, serial;  // its own, which differ from all others'
};

class Subsystem {
 public:
  static constexpr std::size_t kMaxControllers = 2047;  // as many as a controller list names

  // Opens all media. `seed` names generated content; `timing_unit_bytes` is the timing model's unit. Throws
  // ConfigError.
  Subsystem(const SubsystemConfig& config, std::uint64_t seed, std::uint32_t timing_unit_bytes);
  // A subsystem with one namespace, which is a window: hosts see nothing else, and of each other nothing but what a
  // drive's load shows. For command sets and media that are no more than addressable blocks. Throws ConfigError.
  explicit Subsystem(const Window& window);
  ~Subsystem();
  Subsystem(const Subsystem&) = delete;
  Subsystem& operator=(const Subsystem&) = delete;

  const SubsystemConfig& config() const { return config_; }
  // What a timing model is built for: all that namespaces may ever hold. Before hosts come.
  timing::DeviceShape shape() const {
    return {total_capacity_bytes_, seed_, command_set::streams_of(config_.placement)};
  }
  // Guards everything below; hold it while reading NamespaceInfo.
  std::mutex& mutex() { return mutex_; }
  NamespaceInfo& info(std::uint32_t nsid) { return infos_[nsid]; }  // nsid in 1...kMaxNamespaces
  // One bit for each command set that namespaces may be of (nvme::io_command_set_bit()).
  std::uint64_t command_sets() const { return command_sets_; }
  // Flexible Data Placement; nullptr: the drive has no such thing.
  command_set::Placement* placement() const { return placement_.get(); }
  // Whether namespaces that are made now have it.
  bool places_data() const { return placement_ != nullptr && placement_->is_enabled(); }
  // How each of its handles is used by namespaces. mutex() held, as for the next two.
  std::vector<nvme::FdpHandleAttribute> handle_attributes() const;
  // Whether a namespace of that format may share these handles with those that have them, but for one.
  bool share_format(const std::vector<std::uint16_t>& handles, std::uint32_t lba_bytes, std::uint32_t but = 0) const;
  bool has_namespaces() const;

  // Controllers register themselves; identifiers (CNTLID) are given in order from 1, those in use left out. Throws
  // ConfigError beyond kMaxControllers.
  std::uint16_t add_controller(Controller& controller);
  void remove_controller(Controller& controller);
  const std::vector<Controller*>& controllers() const { return controllers_; }
  // Those and the ones of its windows. mutex() held.
  const std::vector<Controller*>& served() const { return served_; }

  // Allocates a namespace of anonymous memory, with the first free identifier that whoever asks may see; returns its
  // nsid, or 0 with `status` set. mutex() held.
  std::uint32_t create_namespace(const NamespaceConfig& config, nvme::Status& status, const HostRights& rights = {},
                                 bool is_handle_chosen = false);
  // Detaches it from every controller and marks it deleted. The capacity of memory may be allocated again; an
  // operator's file is not the host's to erase, and nothing takes its place. mutex() held.
  NamespaceChange delete_namespace(std::uint32_t nsid);
  // Whether format_namespace() would begin. mutex() held.
  // `all`: those that share its handles are formatted with it.
  nvme::Status check_format(std::uint32_t nsid, std::uint32_t lba_bytes, bool all = false) const;
  // Erases the namespace and gives it another LBA size. It is attached to nobody meanwhile. mutex() held.
  NamespaceChange format_namespace(std::uint32_t nsid, std::uint32_t lba_bytes);
  // Those changes that are under way, and who waits for them.
  NamespaceChanges& changes() { return changes_; }
  // Namespace Write Protection (8.12). Media that cannot be written are protected for good. mutex() held.
  nvme::WriteProtection write_protection(std::uint32_t nsid) const;
  bool is_host_protected(std::uint32_t nsid) const {
    return infos_[nsid].write_protection != nvme::WriteProtection::none;
  }
  // Whether set_write_protection() would begin. mutex() held.
  nvme::Status check_write_protection(std::uint32_t nsid, nvme::WriteProtection state) const;
  // What was written before is durable when a namespace has become protected, and what was not is not written any
  // more. mutex() held.
  NamespaceChange set_write_protection(std::uint32_t nsid, nvme::WriteProtection state);
  std::uint64_t total_capacity_bytes() const { return total_capacity_bytes_; }
  std::uint64_t unallocated_capacity_bytes() const { return total_capacity_bytes_ - allocated_capacity_bytes_; }
  // Attaches or detaches an allocated namespace; `controller` is one of controllers(). mutex() held.
  void attach_namespace(std::uint32_t nsid, Controller& controller);
  // Shows the controller's host those of its namespaces whose command set it has enabled, and no others. mutex() held.
  void show_namespaces(Controller& controller);
  void detach_namespace(std::uint32_t nsid, Controller& controller);
  // What hosts saved with Set Features, in the order in which it takes effect; for controllers that begin. Empty where
  // no media keeps it. mutex() held, as for the others.
  std::vector<media::SavedFeature> saved_features() const;
  // What saves one more, in place of what it overrides, or returns false; any thread may call it, and it waits for the
  // disk. Empty where no media keeps it.
  std::function<DiskDone()> feature_saver(const media::SavedFeature& feature) const;
  // Tells every controller that the namespace is attached to. mutex() held.
  void notify_attached(std::uint32_t nsid);

  // What all controllers' hosts ever did, those of removed controllers included. mutex() held.
  IoCounters counters() const;
  // What removed controllers' hosts did, those of its windows included. mutex() held.
  const IoCounters& removed_counters() const { return removed_everywhere_; }
  // Controllers that there ever were, those of its windows included. mutex() held.
  std::uint64_t controllers_added() const { return controllers_added_; }
  // The first time that any controller saw; since then the subsystem counts as powered. Any thread.
  void note_time(std::uint64_t now_ns);
  std::uint64_t powered_ns(std::uint64_t now_ns) const;

 private:
  // With those that are deleted and not forgotten yet.
  static constexpr std::size_t kMaxMediaObjects = 4096;
  static SubsystemConfig describe(const Window& window);
  void return_marks();
  void note_served(Controller& controller);
  void note_gone(Controller& controller, const IoCounters& counters);
  static constexpr std::uint16_t kMaxCntlid = 0xFFEF;  // what follows is reserved

  void install(std::uint32_t nsid, const NamespaceConfig& config, std::unique_ptr<media::Media> media,
               bool from_configuration, bool is_handle_chosen = false);
  command_set::Namespace* namespace_of(std::uint32_t nsid, std::uint32_t lba_bytes);
  void publish(std::uint32_t nsid, Controller& controller);
  static void withdraw(std::uint32_t nsid, Controller& controller);
  void free_unused();
  void derive_identifiers(std::uint32_t nsid);
  nvme::Status end_deletion(std::uint32_t nsid, const SavedChange& saved, QueueHost& runner);
  nvme::Status end_format(std::uint32_t nsid, std::uint32_t lba_bytes, const SavedChange& saved, QueueHost& runner);
  nvme::Status end_protection(std::uint32_t nsid, nvme::WriteProtection state, const SavedChange& saved);
  void await_format(std::uint32_t nsid, Controller& controller);
  std::vector<QueueHost*> hosts() const;
  void tell_deallocated(const NamespaceInfo& info, QueueHost& runner) const;
  void end_commands(const command_set::Namespace& ns, nvme::Status status, CommandsToEnd which = CommandsToEnd::all);
  void take_over_saved(std::uint32_t nsid, const media::SavedState& state);

  SubsystemConfig config_;
  std::uint64_t seed_;
  std::uint32_t timing_unit_bytes_;
  std::uint64_t command_sets_;
  const std::unique_ptr<command_set::Placement> placement_;
  std::mutex mutex_;
  std::array<NamespaceInfo, kMaxNamespaces + 1> infos_{};
  std::vector<std::unique_ptr<command_set::Namespace>> namespaces_;  // every object ever made
  std::vector<std::unique_ptr<media::Media>> media_;
  std::vector<const media::Media*> deleted_;  // of those
  std::vector<Controller*> controllers_;
  std::uint16_t next_cntlid_ = 1;
  UnitSpace unit_space_;
  std::uint64_t generation_ = 0;  // namespaces ever made by hosts: makes reused NSIDs' identifiers differ
  std::uint64_t total_capacity_bytes_ = 0;
  std::uint64_t allocated_capacity_bytes_ = 0;
  std::shared_ptr<FeatureSaves> feature_saves_;  // with the first image that keeps any state: the drive's own is there
  NamespaceChanges changes_{mutex_};
  IoCounters removed_counters_;
  // What the whole's monitor sees; a window tells the whole.
  Subsystem* const whole_ = nullptr;
  command_set::Namespace* lent_ = nullptr;  // the whole's that a window is of, and the window's first block there
  std::uint64_t lent_first_ = 0;
  std::vector<Controller*> served_;
  IoCounters removed_everywhere_;
  std::uint64_t controllers_added_ = 0;
  std::atomic<std::uint64_t> power_on_ns_{UINT64_MAX};  // UINT64_MAX: no controller has run yet
};

}  // namespace flashmob::controller
