// A user-space NVMe driver over any PciDevice: reset, enable, identify, features, queues, admin commands, abort.
//
// For one thread at a time (queue pairs may then be used by a thread each). It never blocks in the kernel: while it
// waits for the device it calls the Waiter's pump, which relaxes the core in real time and runs the simulation in
// virtual time. Admin failures throw NvmeError; time-outs throw NvmeTimeout; a dead controller throws NvmeFatal.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/pci_device.h"
#include "driver/queue_ids.h"
#include "driver/queue_pair.h"
#include "nvme/command.h"
#include "nvme/status.h"

namespace flashmob::driver {

// How the driver passes time while it waits. Time must pass between calls of pump(), or deadlines never come.
struct Waiter {
  std::function<void()> pump;
  std::function<std::uint64_t()> now_ns;
};

class NvmeError : public std::runtime_error {
 public:
  NvmeError(const std::string& what, std::uint16_t status_field);
  std::uint16_t status_field() const { return status_field_; }

 private:
  std::uint16_t status_field_;
};

class NvmeTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The controller reports Controller Fatal Status, or its registers read as all ones (it is gone from the bus).
class NvmeFatal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct AdminResult {
  std::uint16_t status_field;  // 0 on success
  std::uint32_t dw0;
};

// Zeroed memory of the caller's, mapped for the device at the addresses given, for the rings of a queue pair. It must
// stay until the pair is deleted or the controller reset. The pointers are nullptr where the host itself does not
// submit or reap, as for rings in a GPU's memory: then the pair is good for its identifier and its doorbells.
struct QueueRings {
  nvme::Sqe* sq = nullptr;
  std::uint64_t sq_iova = 0;
  nvme::Cqe* cq = nullptr;
  std::uint64_t cq_iova = 0;
};

struct QueueOptions {
  std::uint32_t sq_entries = 128;  // 2...MQES + 1
  std::uint32_t cq_entries = 0;    // 0: as sq_entries
  bool interrupts = false;
  std::uint16_t vector = 0;
  std::uint8_t priority = 0;  // QPRIO
  std::optional<QueueRings> rings = {};  // none: memory of the driver's
};

class NvmeDriver {
 public:
  // Does not touch the device. The admin queues have `admin_entries` entries each.
  NvmeDriver(PciDevice& device, Waiter waiter, std::uint32_t admin_entries = 64);
  ~NvmeDriver();
  NvmeDriver(const NvmeDriver&) = delete;
  NvmeDriver& operator=(const NvmeDriver&) = delete;

  // Resets the controller and brings it to ready (Base 2.0c, 3.5.1). `weighted` selects WRR arbitration if offered. A
  // controller that keeps CSTS.RDY for too long gets a function level reset, where the device offers one.
  void enable(bool weighted = false);
  // CC.EN = 0 and waits for CSTS.RDY = 0. Queue pairs made before are gone, and so are commands in flight: the
  // callbacks of asynchronous ones are dropped uncalled. Not from inside such a callback.
  void disable();
  // Normal or abrupt shutdown; waits for CSTS.SHST = complete (3.6). A normal one deletes the queue pairs first. Only
  // disable() and enable() may follow.
  void shutdown(bool abrupt);
  bool fatal() const;

  // Runs one admin command to its end. The SQE's CID is filled in here, and its data pointer unless `data` is empty
  // (then the caller's stays): `data`, up to 1 MiB, is bounced through DMA memory in the direction given.
  AdminResult admin(nvme::Sqe sqe, std::span<std::byte> data, bool to_host);
  // Starts an admin command without data and returns its CID; finished when poll_admin() has called `done`. Waits
  // while every slot of the admin queue is taken.
  std::uint16_t admin_async(nvme::Sqe sqe, std::function<void(AdminResult)> done);
  void poll_admin();
  // Completions whose CID no command had: a sign of a broken device. Late answers to commands that timed out are
  // not counted.
  std::uint64_t unexpected_completions() const { return unexpected_completions_; }

  // Shorthands; each throws NvmeError on a failing status.
  void identify(std::uint8_t cns, std::uint32_t nsid, std::span<std::byte> out, std::uint16_t cntid = 0,
                std::uint8_t csi = 0);
  void log_page(std::uint8_t lid, std::uint32_t nsid, std::uint64_t offset, std::span<std::byte> out,
                bool retain_async_event = false);
  std::uint32_t get_feature(std::uint8_t fid, std::uint8_t select = 0, std::uint32_t cdw11 = 0, std::uint32_t nsid = 0);
  std::uint32_t set_feature(std::uint8_t fid, std::uint32_t cdw11, bool save = false, std::uint32_t nsid = 0);
  // Asks for I/O queues (feature 07h); returns how many pairs are granted.
  std::uint32_t request_queues(std::uint32_t pairs);
  // True if the command was found and aborted.
  bool abort(std::uint16_t sqid, std::uint16_t cid);

  // Creates a CQ and an SQ with the lowest free identifier. The pair lives until delete_queue_pair, disable or the
  // driver's end. Throws ConfigError for what the device does not have.
  QueuePair& create_queue_pair(const QueueOptions& options);
  void delete_queue_pair(QueuePair& pair);
  // All that there are, whoever created them.
  std::uint32_t queue_pairs() const { return ids_.taken(); }
  // Changes when disable(), enable() or shutdown() takes all queue pairs away. Any thread.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  PciDevice& device() { return device_; }
  std::uint64_t capabilities() const { return capabilities_; }  // CAP
  const Waiter& waiter() const { return waiter_; }
  std::uint64_t admin_timeout_ns = 10'000'000'000;
  // For shutdown(); the device's own estimate is RTD3 Entry Latency in Identify.
  std::uint64_t shutdown_timeout_ns = 10'000'000'000;
  // enable() and disable() wait as long as CAP.TO says, and no less than this.
  std::uint64_t least_ready_timeout_ns = 0;
  // The device has not answered in its time: from here on every wait for it looks once and then throws.
  void give_up() { is_given_up_ = true; }

 private:
  struct PairState;
  struct AdminSlot;
  struct Bounce;

  void check_capabilities() const;
  void throw_if_dead(const char* step) const;
  void wait_status(const char* step, std::uint32_t mask, std::uint32_t value, std::uint64_t timeout_ns);
  void release_queues();
  void check_queue(const QueueOptions& options, std::uint32_t cq_entries) const;
  std::uint16_t take_queue_id();
  void forget(std::uint16_t qid);
  void create_ring(const PairState& state, bool submission, const QueueOptions& options);
  void delete_ring(std::uint16_t qid, bool submission);

  AdminResult admin_or_throw(const nvme::Sqe& sqe, std::span<std::byte> data, bool to_host);
  AdminSlot& start_admin(nvme::Sqe sqe, std::unique_ptr<Bounce> bounce, std::function<void(AdminResult)> done);
  AdminSlot* free_slot();
  void finish_admin(const nvme::Cqe& entry);
  void release_slot(AdminSlot& slot);
  void wait_admin(const nvme::Sqe& sqe, const std::function<bool()>& ready);
  std::unique_ptr<Bounce> take_bounce(std::size_t bytes);

  PciDevice& device_;
  Waiter waiter_;
  std::uint64_t capabilities_ = 0;
  std::uint32_t admin_entries_;
  std::unique_ptr<PairState> admin_;
  std::vector<std::unique_ptr<AdminSlot>> admin_slots_;
  std::vector<std::unique_ptr<Bounce>> free_bounces_;
  std::vector<std::unique_ptr<PairState>> pairs_;
  QueueIds ids_;
  std::atomic<std::uint64_t> generation_{0};
  std::uint64_t unexpected_completions_ = 0;
  bool is_given_up_ = false;
  unsigned admin_depth_ = 0;  // admin calls on the stack: callbacks may nest them
};

}  // namespace flashmob::driver
