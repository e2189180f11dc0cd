// What a controller asks of the engine that carries its queues. The engine implements it; tests may too.
//
// All calls but counters() are made on the controller's admin thread (the thread that calls Controller::poll and
// Controller::execute_admin), and none blocks: queue operations answer later, on the same thread, by
// Controller::on_queue_reply().
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "command_set/namespace.h"
#include "media/media.h"
#include "nvme/status.h"

namespace flashmob::controller {

class Controller;

enum class QueuePriority : std::uint8_t { urgent = 0, high = 1, medium = 2, low = 3 };  // Create I/O SQ, QPRIO

struct CqSpec {
  std::uint16_t cqid;
  std::uint32_t entries;
  std::uint64_t iova;  // physically contiguous ring
  bool interrupts_enabled;
  std::uint16_t vector;
};

struct SqSpec {
  std::uint16_t sqid;
  std::uint16_t cqid;
  std::uint32_t entries;
  std::uint64_t iova;
  QueuePriority priority;
};

enum class QueueOp : std::uint8_t {
  create_cq,      // cq
  create_sq,      // sq
  delete_sq,      // sq.sqid: outstanding commands complete with Command Aborted due to SQ Deletion or are done
  delete_cq,      // cq.cqid; the controller has checked that no SQ uses it
  delete_all,  // every queue, admin queues too: completions are dropped, nothing is written to the host afterwards
  abort_command,  // sq.sqid, cid: finds the command and completes it with Command Abort Requested if it is not done
};

struct QueueRequest {
  QueueOp op;
  std::uint64_t ticket;  // returned in the reply
  CqSpec cq{};
  SqSpec sq{};
  std::uint16_t cid = 0;
};

struct QueueReply {
  std::uint64_t ticket;
  nvme::Status status;  // success, data_transfer_error where the ring is not in mapped memory
  bool aborted;  // abort_command only: the command was found and aborted
};

enum class CommandsToEnd : std::uint8_t { all, writes };

// Sums over all units of what one controller's hosts did; for SMART and reports.
struct IoCounters {
  // Of every kind, as they were fetched; at least as many as the next two together.
  std::uint64_t commands = 0;
  std::uint64_t read_commands = 0;
  std::uint64_t write_commands = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t busy_ns = 0;  // time with at least one I/O command outstanding

  void add(const IoCounters& other) {
    commands += other.commands;
    read_commands += other.read_commands;
    write_commands += other.write_commands;
    read_bytes += other.read_bytes;
    written_bytes += other.written_bytes;
    // Controllers of one engine report the busy time of units that they share.
    busy_ns = std::max(busy_ns, other.busy_ns);
  }
  // Two accounts of the same commands, of which one may have ended before the other.
  static IoCounters larger(const IoCounters& a, const IoCounters& b) {
    return {.commands = std::max(a.commands, b.commands),
            .read_commands = std::max(a.read_commands, b.read_commands),
            .write_commands = std::max(a.write_commands, b.write_commands),
            .read_bytes = std::max(a.read_bytes, b.read_bytes),
            .written_bytes = std::max(a.written_bytes, b.written_bytes),
            .busy_ns = std::max(a.busy_ns, b.busy_ns)};
  }
};

struct DiskDone {
  bool good;  // all of it was done
  bool waited = true;  // false: another's wait for the disk had served it, too
};

// Work for a controller that waits for a disk. It may run on any thread and outlive the controller, so that it uses
// nothing but what it holds, and `media`.
struct DiskWork {
  std::function<DiskDone()> run = nullptr;  // throws nothing but std::bad_alloc
  bool waits = false;  // false: there is nothing to wait for
  std::vector<const media::Media*> media = {};  // QueueHost::knows() these until it is over
};

class QueueHost {
 public:
  virtual ~QueueHost() = default;
  // Has the work done where no queue waits with it, if there is such a place, and calls Controller::on_disk_work() on
  // the admin thread afterwards, be it before this returns.
  // A controller's work is done one piece after the other, so that no controller's keeps another's waiting for long.
  virtual void run_disk_work(Controller& controller, std::uint64_t ticket, DiskWork work) = 0;
  // The same for a change that is the subsystem's: `then` is called on the admin thread whatever has become of the
  // controller that asked for it, unless the engine stops before.
  virtual void run_change(DiskWork work, std::function<void(bool good)> then) = 0;
  // Nobody waits for the controller's work any more: what has not begun is not done.
  virtual void forget_disk_work(Controller&) {}
  // Starts a queue operation. The admin queues (id 0) are created through the same calls. The reply may arrive
  // before this returns.
  virtual void request(Controller& controller, const QueueRequest& request) = 0;
  // Posts a completion of an admin command now (held by the engine while the admin CQ is full).
  // `status_field` is a nvme::Status with M and DNR bits, without phase.
  virtual void complete_admin(Controller& controller, std::uint16_t cid, std::uint16_t status_field,
                              std::uint32_t dw0) = 0;
  // Arbitration and coalescing features changed (Controller::arbitration(), Controller::coalescing()).
  virtual void features_changed(Controller& controller) = 0;
  // Any thread. Of a controller that is not attached: nothing.
  virtual IoCounters counters(const Controller& controller) const = 0;
  // Doorbell Buffer Config: shadow doorbell and EventIdx pages at these addresses; 0, 0 switches them off.
  virtual nvme::Status set_shadow_doorbells(Controller& controller, std::uint64_t shadow_iova,
                                            std::uint64_t event_index_iova) = 0;
  // Namespaces came, went, were formatted or protected (Controller::attached()); the subsystem's mutex is held.
  // Commands fetched after this returns must meet them as they are now.
  virtual void namespaces_changed(Controller&) {}
  // Whether a command fetched before a namespace was detached may still touch its media; the subsystem's mutex is held.
  virtual bool knows(const media::Media&) { return false; }
  // A namespace was formatted or deleted: these units of the timing model hold nothing any more.
  virtual void units_deallocated(std::uint64_t /*first_unit*/, std::uint64_t /*units*/) {}
  // Ends the commands that were fetched while a namespace was attached, or writable, and are not done, with this
  // status; the subsystem's mutex is held. None of them touches its media after this has returned.
  virtual void end_commands(const command_set::Namespace&, nvme::Status, CommandsToEnd) {}
  // True: I/O queues take Read, Write, Flush, Compare, Write Zeroes and Dataset Management by PRPs alone, one by one.
  virtual bool basic_commands_only() const { return false; }
};

}  // namespace flashmob::controller
