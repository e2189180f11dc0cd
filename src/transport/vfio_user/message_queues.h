// The queues of a client whose memory only messages reach. The engine serves rings of ours, as long as the client's; a
// thread of this session brings submissions and their data from the client's memory into them, and carries data and
// completions back. Entries keep their places, so doorbells, phases and queue heads are the same on both sides.
//
// It is the slow way, some thousand commands per second, for clients that can share no memory; shared memory never
// comes here. The server's thread starts, rings and stops it; engine threads call interrupt(); the rest happens on its
// own thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "controller/controller.h"
#include "memory/command_data.h"
#include "memory/host_memory.h"
#include "nvme/command.h"
#include "nvme/opcode.h"
#include "transport/vfio_user/message_memory.h"
#include "transport/vfio_user/message_pointers.h"

namespace flashmob::transport {

class MessageQueues {
 public:
  // Clients' addresses of the admin queues.
  struct AdminQueues {
    std::uint64_t sq_iova = 0;
    std::uint64_t cq_iova = 0;
    std::uint32_t sq_entries = 0;
    std::uint32_t cq_entries = 0;
  };

  MessageQueues(controller::Controller& controller, MessageMemory& client,
                std::function<void(std::uint16_t vector)> interrupt);
  ~MessageQueues();
  MessageQueues(const MessageQueues&) = delete;
  MessageQueues& operator=(const MessageQueues&) = delete;

  // --- The server's thread ---
  // Before the controller is enabled: our admin queues, whose addresses the controller must be given.
  AdminQueues start(const AdminQueues& clients);
  // Returns when nothing is written to the client any more; MessageMemory::cancel() must have been called.
  void stop_copying();
  // Gives the rings up: when the engine has forgotten the queues.
  void forget();
  // A write of a submission queue's doorbell. False if it is not one of ours, or no tail that the queue can have: then
  // it is for the controller to judge.
  bool ring(std::uint16_t qid, std::uint32_t tail);

  // The thread has ended, because memory was lacking: the connection is of no more use.
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  // --- Engine threads ---
  void interrupt(std::uint16_t vector);

 private:
  struct Ring {
    std::uint64_t client_iova = 0;
    std::uint32_t entries = 0;
    std::uint32_t next = 0;  // entry to be fetched, or to be posted to the client
    std::uint32_t tail = 0;  // submission queues: as the client rang; with the mutex held
    std::uint16_t phase = 1;
    std::uint16_t cqid = 0;  // its own, or that of a submission queue's completions
    std::uint64_t iova = 0;  // ours
    memory::HostMemory memory;
  };
  // A command that has gone to the engine and asks for something when it comes back.
  struct InFlight {
    std::optional<std::size_t> buffer;
    std::byte* place = nullptr;  // of the data, in that buffer
    std::uint16_t cqid = 0;
    std::uint32_t nsid = 0;
    std::uint32_t format = 0;  // of an I/O command: Controller::attachment_changes() before its length was computed
    memory::CommandData data;
    std::vector<ClientPiece> pieces;
    bool waits = false;  // for an event, perhaps for ever
    // Of the commands that make and delete queues:
    std::optional<nvme::AdminOpcode> queue_change;
    std::uint16_t queue = 0;
    std::unique_ptr<Ring> made;
  };
  using Rings = std::map<std::uint16_t, std::unique_ptr<Ring>>;

  void run();
  bool post_all();
  bool post(Ring& ring, std::uint32_t limit);
  static std::uint32_t ready_entries(const Ring& ring);
  void bring_back(const Ring& ring, nvme::Cqe& cqe);
  bool has_changed_format(const InFlight& command, const nvme::Cqe& cqe) const;
  void after_queue_change(InFlight& command, bool succeeded);
  void fetch(std::uint16_t qid, Ring& ring, std::uint32_t tail);
  void take_in(std::uint16_t qid, std::uint16_t cqid, nvme::Sqe& sqe);
  void take_in_queue_change(nvme::Sqe& sqe, nvme::AdminOpcode opcode, InFlight& command);
  Pointer bring_data(const nvme::Sqe& sqe, InFlight& command);
  void aim(nvme::Sqe& sqe, const InFlight& command) const;
  std::unique_ptr<Ring> new_ring(std::uint64_t client_iova, std::uint32_t entries, std::uint16_t qid, bool submission);
  void lose(Ring& ring);
  void release(InFlight& command);
  std::byte* buffer(std::size_t index) const { return buffers_.data() + index * buffer_bytes_; }

  controller::Controller& controller_;
  MessageMemory& client_;
  const std::function<void(std::uint16_t)> interrupt_;
  const std::uint64_t max_transfer_bytes_;
  const std::size_t data_bytes_;    // of a buffer, without its list
  const std::size_t buffer_bytes_;
  memory::HostMemory buffers_;
  std::vector<std::size_t> free_buffers_;
  std::map<std::uint32_t, InFlight> in_flight_;  // by submission queue and command identifier
  std::uint64_t unanswered_ = 0;  // commands at the engine, without those that wait for events
  Rings sqs_;
  Rings cqs_;
  std::vector<std::uint16_t> walked_;  // completion queues that are being looked at
  std::vector<std::unique_ptr<Ring>> gone_;  // since that began
  std::set<std::uint64_t> places_;  // I/O addresses of our rings

  std::mutex mutex_;  // over the following, over `tail` and over which submission queues there are
  std::condition_variable wake_;
  std::atomic<bool> failed_{false};
  bool stop_ = false;
  bool rung_ = false;
  std::set<std::uint16_t> vectors_;  // whose interrupts wait for the completions to be posted
  std::thread thread_;
};

}  // namespace flashmob::transport
