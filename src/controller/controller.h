// One NVMe controller: registers, admin commands, features, logs, events (NVMe Base 2.0c, chapters 3 and 5).
//
// It is a non-blocking state machine. Registers may be read and written by any thread (a transport's trap); the write
// only stores into atomics and sets a flag. Everything with consequences happens on the admin thread, in poll() and
// execute_admin(), which the engine calls from its first service unit. record_error() and the I/O accessors may be
// called by every unit.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/platform.h"
#include "base/rate_gate.h"
#include "command_set/command_set.h"
#include "controller/activity.h"
#include "controller/admin_result.h"
#include "controller/changed_namespaces.h"
#include "controller/error_log.h"
#include "controller/events.h"
#include "controller/features.h"
#include "controller/queue_host.h"
#include "controller/queue_table.h"
#include "controller/rights.h"
#include "controller/subsystem.h"
#include "flashmob/config.h"
#include "memory/address_space.h"
#include "memory/command_data.h"
#include "memory/data_pointer.h"
#include "memory/host_memory.h"
#include "nvme/admin_command.h"
#include "nvme/async_event.h"
#include "nvme/command.h"
#include "nvme/features.h"
#include "nvme/identify_controller.h"
#include "nvme/placement.h"
#include "nvme/registers.h"
#include "nvme/status.h"

namespace flashmob::controller {

struct alignas(8) Arbitration {  // one atomic word
  bool weighted_round_robin = false;  // CC.AMS = 001b
  std::uint8_t burst_log2 = 7;        // AB: 7 = no limit
  std::uint8_t low_weight = 0, medium_weight = 0, high_weight = 0;  // 0's based
};

struct alignas(2) Coalescing {
  std::uint8_t threshold = 0;      // 0's based number of entries
  std::uint8_t time_100us = 0;     // 0: no coalescing
};

enum class ControllerState : std::uint8_t { disabled, enabling, ready, disabling, shutting_down, shut_down, fatal };

// How hosts reach a controller, as far as they can tell from what it says of itself.
struct ControllerRole {
  bool fabrics = false;                // data by SGLs alone; no doorbell buffers, no queues made by commands
  std::uint32_t in_capsule_bytes = 0;  // data that a command capsule of an I/O queue may carry (IOCCSZ)
  HostRights rights = {};              // what its host may do
};

class Controller {
 public:
  // The host outlives the controller: its counters are asked a last time in the destructor. Throws ConfigError.
  Controller(Subsystem& subsystem, const ControllerConfig& config, QueueHost& host, const ControllerRole& role = {});
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // --- Registers: any thread. `size` is 4 or 8; other accesses read as zero and write nothing. ---
  std::uint64_t read_register(std::uint32_t offset, unsigned size) const;
  void write_register(std::uint32_t offset, unsigned size, std::uint64_t value);

  // Doorbells as plain memory: 2 * (max_queue_pairs + 1) words, stride 4 bytes (CAP.DSTRD = 0);
  // word 2y is SQ y's tail, word 2y + 1 is CQ y's head. Page-aligned, so a transport can map it to its host.
  std::uint32_t* doorbells() { return doorbells_; }
  std::size_t doorbell_bytes() const;
  // The memory file behind doorbells(), for transports whose host is another process. It is laid out like BAR0: the
  // doorbells begin at offset nvme::kRegDoorbells of the file. -1 for a host over fabrics, which needs none.
  int doorbell_fd() const { return doorbell_memory_.fd(); }

  // --- Admin thread ---
  // Runs pending register consequences, timers (keep alive) and event delivery. Cheap when nothing is pending.
  // Returns the next time it must be called, UINT64_MAX when only a register write or a command can need it.
  std::uint64_t poll(std::uint64_t now_ns);
  // True when a register write awaits poll(); lets the engine skip the call.
  bool needs_poll() const { return register_event_.load(std::memory_order_acquire); }
  // Executes one command fetched from the admin queue. Completes it through QueueHost::complete_admin, now or later.
  void execute_admin(const nvme::Sqe& sqe, std::uint64_t now_ns);
  void on_queue_reply(const QueueReply& reply);
  void on_disk_work(std::uint64_t ticket, bool good);
  // A command that changed namespaces is over.
  void end_change(std::uint16_t cid, std::uint32_t nsid, nvme::Status status);
  // Executes a command that waited for such a one.
  void resume_admin(const nvme::Sqe& sqe) { execute_admin(sqe, now_ns_); }
  QueueHost& queue_host() { return host_; }
  // Enters the fatal state (CSTS.CFS): for faults that the specification calls fatal.
  void set_fatal();

  // --- Any thread ---
  ControllerState state() const { return state_.load(std::memory_order_acquire); }
  // The I/O path's view. nullptr: not attached, not allocated, or of a command set that the host has not enabled. What
  // it points to is there for as long as
  // QueueHost::knows() says that it is known, so other threads than the engine's ask for the size alone.
  command_set::Namespace* attached(std::uint32_t nsid) const {
    return nsid <= kMaxNamespaces ? attachments_[nsid].load(std::memory_order_acquire) : nullptr;
  }
  // Not attached, for the time of a Format.
  bool is_formatting(std::uint32_t nsid) const {
    return nsid <= kMaxNamespaces && formatting_[nsid].load(std::memory_order_acquire);
  }
  // What the lengths of its commands follow from; blocks of 0 bytes: not attached.
  memory::DataShape attached_shape(std::uint32_t nsid) const {
    return nsid <= kMaxNamespaces ? attached_shapes_[nsid].load(std::memory_order_relaxed) : memory::DataShape{};
  }
  // Counts when a namespace came, went or was formatted: two looks that show the same have had one LBA size between
  // them.
  std::uint32_t attachment_changes(std::uint32_t nsid) const {
    return nsid <= kMaxNamespaces ? attachment_changes_[nsid].load(std::memory_order_acquire) : 0;
  }
  const command_set::IoLimits& io_limits() const { return io_limits_; }  // fixed while enabled
  // Values as of now; QueueHost::features_changed() follows every change.
  Arbitration arbitration() const { return arbitration_.load(std::memory_order_relaxed); }
  Coalescing coalescing() const { return coalescing_.load(std::memory_order_relaxed); }
  // Feature 06h. While it is off, a completed write must be as durable as one with FUA.
  bool write_cache_enabled() const { return write_cache_enabled_.load(std::memory_order_relaxed); }
  // INTMS and INTMC: bit n masks vector n of pin-based and MSI interrupts.
  std::uint32_t interrupt_mask() const { return interrupt_mask_.load(std::memory_order_relaxed); }
  // For doors with a level-triggered interrupt line, which must know whether a completion has not been read yet: the
  // completion queues that interrupt, and whether their heads are in the host's shadow doorbells instead of
  // doorbells().
  std::vector<CqSpec> interrupting_queues() const { return queues_.interrupting(); }
  bool uses_shadow_doorbells() const { return shadow_doorbells_.load(std::memory_order_acquire); }
  // Whether hosts are offered Doorbell Buffer Config. A door takes the offer back while it must see doorbell writes.
  void offer_doorbell_buffers(bool offered) { doorbell_buffers_offered_.store(offered, std::memory_order_relaxed); }
  // True when the vector's coalescing is disabled (feature 09h, Interrupt Vector Configuration).
  bool coalescing_disabled(std::uint16_t vector) const;
  memory::AddressSpace& address_space() { return address_space_; }
  Subsystem& subsystem() { return subsystem_; }
  const ControllerConfig& config() const { return config_; }
  const HostRights& rights() const { return role_.rights; }
  RateGate& rate_gate() { return rate_gate_; }
  std::uint16_t cntlid() const { return cntlid_; }

  // Adds an Error Information log entry for a failed command; returns the status field to post, with M and DNR set.
  // Mutex inside: only for commands that fail.
  std::uint16_t record_error(std::uint16_t sqid, std::uint16_t cid, nvme::Status status, std::uint32_t nsid,
                             std::uint64_t lba);
  // Queues an asynchronous event of type Error. Any thread; delivered by the admin thread.
  void raise_error_event(nvme::AsyncErrorInfo event);
  // Other controllers' namespace changes (Namespace Attribute Changed notice and the Changed Namespace List log).
  void notify_namespace_changed(std::uint32_t nsid);
  // Called whenever a register write or event wants the admin thread's attention; set by the engine to wake it.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }
  // For doors with a connection: ends it, as an injected fault. Called on engine threads, from attach() to detach().
  void set_connection_drop(std::function<void()> drop) { drop_connection_ = std::move(drop); }
  // Where there is no connection to drop, the controller fails instead.
  void drop_connection() {
    if (drop_connection_)
      drop_connection_();
    else
      request_failure();
  }
  // An injected fault: the admin thread takes a controller that is ready to the fatal state. Any thread.
  void request_failure();
  // For a door that lacks the means to serve the host: the next write that sets CC.EN ends in the fatal state, which
  // clearing it leaves. Any thread.
  void refuse_enable() { enable_refused_.store(true, std::memory_order_release); }

  // --- Monitoring: any thread ---
  // A door says whose controller this is: "vfio-user" and a process, "nvme-tcp" and a host NQN.
  void set_host(std::string door, std::string host) { activity_.set_host(std::move(door), std::move(host)); }
  ControllerActivity activity() const { return activity_.latest(); }
  // An engine that the controller has left knows nothing of it any more; what was kept then stands.
  IoCounters counters() const { return IoCounters::larger(host_.counters(*this), activity_.latest().io); }
  // Before the engine forgets it.
  void keep_counters() { activity_.keep(host_.counters(*this)); }
  // The how-manieth controller of its subsystem: an identifier may come round again, this does not.
  std::uint64_t arrival() const { return arrival_; }
  std::uint32_t io_queue_count() const { return queues_.io_sq_count(); }

 private:
  friend class Subsystem;  // fills and clears attachments_

  // A queue operation under way: what to complete when the engine has answered.
  struct PendingOp {
    QueueOp op;
    bool enabling;  // creation of an admin queue
    std::uint16_t cid;
    std::uint16_t qid;
  };

  // Whether a namespace is attached to this controller, though its host may not see it; the subsystem's mutex held.
  bool holds(std::uint32_t nsid) const { return held_.test(nsid); }
  // Whether the host has enabled a namespace's command set.
  bool shows(const command_set::Namespace& ns) const {
    return (enabled_sets_ & nvme::io_command_set_bit(ns.command_set->csi())) != 0;
  }
  void enable_command_sets(const nvme::Cc& cc);

  // registers.cpp
  std::uint32_t read_dword(std::uint32_t offset) const;
  void write_dword(std::uint32_t offset, std::uint32_t value);
  void write_cc(std::uint32_t value);
  void write_doorbell(std::uint32_t offset, std::uint32_t value);
  void notify_admin_thread();

  // controller.cpp: as record_error(), with the place of the error in the command.
  std::uint16_t record_error_at(std::uint16_t sqid, std::uint16_t cid, nvme::Status status, std::uint32_t nsid,
                                std::uint64_t lba, std::uint16_t error_location);

  // lifecycle.cpp
  void advance();
  void begin_enable(const nvme::Cc& cc);
  void on_admin_queue_created(const PendingOp& op, nvme::Status status);
  void begin_reset();
  void finish_disable();
  void enter_disabled();
  void begin_shutdown();
  void finish_shutdown();
  void shut_down_stopped();
  void tear_down();
  void on_torn_down();
  void propagate_subsystem_reset();
  void apply_subsystem_reset();
  void forget_shutdown();
  void set_csts(std::uint32_t clear, std::uint32_t set);

  // disk_work.cpp
  using FailedNamespaces = std::shared_ptr<std::vector<std::uint32_t>>;
  void forget_disk_work();
  void wait_for_disk(DiskWork work, std::function<void(bool good)> then);
  DiskWork flush_work(FailedNamespaces failed);
  void note_flush_failures(const FailedNamespaces& failed);
  void flush_namespaces(std::function<void(bool good)> then);
  void note_flushed(std::uint32_t switched);

  // admin.cpp
  AdminResult dispatch(const nvme::Sqe& sqe);
  bool looks_at_namespaces(const nvme::Sqe& sqe) const;
  void complete(std::uint16_t cid, std::uint32_t nsid, const AdminResult& result);
  AdminResult abort(const nvme::Sqe& sqe);
  AdminResult async_event_request(const nvme::Sqe& sqe);
  AdminResult doorbell_buffer_config(const nvme::Sqe& sqe);
  void deliver_events();
  void restart_keep_alive();
  nvme::Status to_guest(const nvme::Sqe& sqe, std::span<const std::byte> data);
  // Ends a command whose answer is one data structure.
  template <class T>
  AdminResult answer(const nvme::Sqe& sqe, const T& structure) {
    const nvme::Status status = to_guest(sqe, std::as_bytes(std::span(&structure, 1)));
    return status == nvme::Status::success ? succeed() : fail(status, kAtPrp1);
  }
  nvme::Status from_guest(const nvme::Sqe& sqe, std::span<std::byte> data);
  void start(const QueueRequest& request, const PendingOp& pending);

  // queues.cpp
  AdminResult create_io_cq(const nvme::Sqe& sqe);
  AdminResult create_io_sq(const nvme::Sqe& sqe);
  AdminResult delete_io_cq(const nvme::Sqe& sqe);
  AdminResult delete_io_sq(const nvme::Sqe& sqe);
  void on_io_queue_reply(const PendingOp& op, const QueueReply& reply);

  // identify.cpp and identify_namespaces.cpp
  AdminResult identify(const nvme::Sqe& sqe);
  AdminResult identify_controller(const nvme::Sqe& sqe);
  void describe_fabrics(nvme::IdentifyController& c) const;
  AdminResult identify_namespace(const nvme::Sqe& sqe, bool allocated);
  const command_set::CommandSet* command_set_asked(const nvme::Identify& fields) const;
  AdminResult identify_namespace_of_set(const nvme::Sqe& sqe, const command_set::CommandSet& set, bool allocated);
  AdminResult identify_namespace_independent(const nvme::Sqe& sqe);
  AdminResult identify_namespace_list(const nvme::Sqe& sqe, bool allocated, const command_set::CommandSet* set);
  AdminResult identify_descriptors(const nvme::Sqe& sqe);
  AdminResult identify_controller_list(const nvme::Sqe& sqe, const nvme::Identify& fields, bool of_namespace);
  AdminResult identify_io_command_sets(const nvme::Sqe& sqe, const nvme::Identify& fields);

  // log_pages.cpp
  AdminResult get_log_page(const nvme::Sqe& sqe);
  const command_set::CommandSet* set_with_log(nvme::LogPage lid) const;
  std::uint8_t critical_warning() const;

  // placement.cpp: of drives with Flexible Data Placement
  bool is_placement_page(nvme::LogPage lid) const;
  nvme::Status placement_page(const nvme::GetLogPage& fields, std::vector<std::byte>& page);
  nvme::EnduranceGroupInformation endurance_group() const;
  AdminResult identify_endurance_groups(const nvme::Sqe& sqe, const nvme::Identify& fields);
  AdminResult directive_receive(const nvme::Sqe& sqe);
  AdminResult directive_send(const nvme::Sqe& sqe);
  AdminResult set_placement(const nvme::Sqe& sqe, bool save);
  AdminResult get_placement(const nvme::Sqe& sqe, nvme::FeatureSelect select);
  AdminResult set_placement_events(const nvme::Sqe& sqe);
  AdminResult get_placement_events(const nvme::Sqe& sqe, nvme::FeatureSelect select);
  std::optional<std::uint16_t> handle_of_events(const nvme::Sqe& sqe, AdminResult& why);
  nvme::Status wanted_handles(std::span<const std::byte> page, std::uint32_t lba_bytes,
                              std::vector<std::uint16_t>& handles, bool& is_chosen);

  // controller.cpp
  void load_features();

  // feature_commands.cpp
  AdminResult set_features(const nvme::Sqe& sqe);
  AdminResult get_features(const nvme::Sqe& sqe);
  AdminResult set_scalar_feature(const nvme::Sqe& sqe, nvme::Feature feature, bool save);
  AdminResult set_number_of_queues(const nvme::Sqe& sqe);
  AdminResult set_timestamp(const nvme::Sqe& sqe);
  AdminResult set_host_behavior(const nvme::Sqe& sqe);
  AdminResult set_write_protection(const nvme::Sqe& sqe);
  AdminResult get_write_protection(const nvme::Sqe& sqe, nvme::FeatureSelect select);
  // True: what the write cache held has to be made durable.
  bool apply_feature(nvme::Feature feature);
  bool apply_all_features();
  void note_queue_features();
  void check_health_events();

  // namespaces.cpp
  AdminResult change_namespaces(const nvme::Sqe& sqe, NamespaceCommand command);
  AdminResult format_nvm(const nvme::Sqe& sqe);
  AdminResult namespace_management(const nvme::Sqe& sqe);
  AdminResult create_namespace(const nvme::Sqe& sqe);
  bool manages(std::uint32_t nsid) const;
  AdminResult delete_namespace(const nvme::Sqe& sqe);
  AdminResult namespace_attachment(const nvme::Sqe& sqe);
  AdminResult attach(std::uint32_t nsid, std::span<const std::uint16_t> ids);
  AdminResult detach(std::uint32_t nsid, std::span<const std::uint16_t> ids);

  Subsystem& subsystem_;
  ControllerConfig config_;
  QueueHost& host_;
  ControllerRole role_;
  RateGate rate_gate_;
  std::uint16_t cntlid_ = 0;
  memory::AddressSpace address_space_;
  AttachmentTable attachments_{};
  std::array<std::atomic<memory::DataShape>, kMaxNamespaces + 1> attached_shapes_{};
  std::bitset<kMaxNamespaces + 1> held_;  // attached, whether or not its command set is enabled; the subsystem's mutex
  std::array<std::atomic<std::uint32_t>, kMaxNamespaces + 1> attachment_changes_{};
  std::array<std::atomic<bool>, kMaxNamespaces + 1> formatting_{};
  command_set::IoLimits io_limits_;
  std::atomic<Arbitration> arbitration_{Arbitration{}};
  std::atomic<Coalescing> coalescing_{Coalescing{}};
  static_assert(std::atomic<Arbitration>::is_always_lock_free && std::atomic<Coalescing>::is_always_lock_free);
  std::atomic<ControllerState> state_{ControllerState::disabled};
  std::atomic<bool> register_event_{false};
  std::uint32_t* doorbells_ = nullptr;
  std::function<void()> drop_connection_;
  std::function<void()> wake_;

  // Registers. 64-bit registers are kept as halves, because hosts may write them so.
  std::uint64_t cap_ = 0;
  std::atomic<std::uint32_t> cc_{0};
  std::atomic<std::uint32_t> csts_{0};
  std::atomic<std::uint32_t> interrupt_mask_{0};
  std::atomic<std::uint32_t> aqa_{0};
  std::atomic<std::uint32_t> asq_[2] = {0, 0};
  std::atomic<std::uint32_t> acq_[2] = {0, 0};
  // What register writes ask of the admin thread; levels alone would miss EN going 1, 0, 1 between two polls.
  std::atomic<bool> reset_requested_{false};
  std::atomic<bool> shutdown_requested_{false};
  std::atomic<bool> nssr_written_{false};
  std::atomic<bool> subsystem_reset_requested_{false};
  std::atomic<bool> failure_requested_{false};
  std::atomic<bool> enable_refused_{false};

  // One bit for each command set that CC.CSS has enabled; the subsystem's mutex, to change it on the admin thread.
  std::uint64_t enabled_sets_ = nvme::io_command_set_bit(nvme::Csi::nvm);
  std::atomic<bool> write_cache_enabled_{true};
  bool owes_flush_ = false;  // the write cache was switched off, and what it held is not known to be on the disk
  std::uint32_t cache_switches_ = 0;
  std::atomic<bool> doorbell_buffers_offered_{true};
  memory::HostMemory doorbell_memory_;
  QueueTable queues_;
  Features features_;
  ErrorLog error_log_;
  EventQueue events_;
  ChangedNamespaces changed_namespaces_;
  ActivityBoard activity_;
  std::uint64_t arrival_ = 0;  // the subsystem's to say

  // Admin thread only.
  memory::AddressSpace::Reader reader_{address_space_};
  memory::SegmentList segments_;
  std::unordered_map<std::uint64_t, PendingOp> pending_;
  std::unordered_map<std::uint64_t, std::function<void(bool good)>> disk_work_;  // what follows each
  std::uint64_t next_ticket_ = 1;
  std::uint64_t teardown_ticket_ = 0;  // delete_all under way; 0: none
  bool engine_has_queues_ = false;  // a queue was created since the last delete_all
  std::atomic<bool> shadow_doorbells_{false};
  std::uint32_t aborts_outstanding_ = 0;
  std::uint64_t now_ns_ = 0;  // of the latest poll() or execute_admin()
  std::uint64_t keep_alive_deadline_ns_ = UINT64_MAX;  // UINT64_MAX: off
  bool is_keep_alive_late_ = false;  // the deadline is over, and this is the time that is given beyond it
  std::uint8_t reported_warnings_ = 0;  // critical warnings that an event has been raised for
};

}  // namespace flashmob::controller
