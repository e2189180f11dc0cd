// A host's association with a controller of its own: what begins with the Connect command of an admin queue and ends
// with that queue's connection (NVMe Base 2.0c, clause 2.2.2 and 3.5.2). Creates and deletes the controller's queues by
// commands on its admin queue, as a host on PCI Express would. One thread, the target's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/controller.h"
#include "nvme/command.h"
#include "transport/nvme_tcp/context.h"
#include "transport/nvme_tcp/host_queue.h"

namespace flashmob::transport {

class Association {
 public:
  // `admin_entries` is the size of the host's admin queue. Throws where there is no room for another controller, or no
  // memory.
  Association(TargetContext& context, std::shared_ptr<Peer> peer, const std::string& host_nqn,
              const std::array<std::uint8_t, 16>& host_id, std::uint32_t admin_entries, std::uint32_t keep_alive_ms);
  ~Association();
  Association(const Association&) = delete;
  Association& operator=(const Association&) = delete;

  controller::Controller& controller() { return controller_; }
  HostQueue& admin() { return *admin_; }
  const std::string& host_nqn() const { return host_nqn_; }
  const std::array<std::uint8_t, 16>& host_id() const { return host_id_; }

  // Its host has sent something.
  void touch() { heard_ms_ = context_.now_ms; }
  // Where something runs out: since when this one might give way to another, UINT64_MAX if it should not. One whose
  // controller ends it when its host falls silent never does.
  std::uint64_t idle_since_ms() const;
  const Peer& peer() const { return *peer_; }

  // Its host has proved who it is, or need not.
  bool authenticated() const { return authenticated_; }
  // How it comes, and so must its I/O queues: see Connection::channel().
  void set_channel(std::string channel) { channel_ = std::move(channel); }
  const std::string& channel() const { return channel_; }
  void set_authenticated(bool yes) { authenticated_ = yes; }
  // Its host has failed to prove who it is, and is to be told on the admin queue; its I/O queues go at once.
  void end_queues() { queues_end_ = true; }
  bool queues_end() const { return queues_end_; }
  bool ready() const { return controller_.state() == controller::ControllerState::ready; }
  // Writes a property. False: the write has begun a reset, and the host must not be answered before reset_done().
  bool write_property(std::uint32_t offset, bool eight_bytes, std::uint64_t value);
  bool resetting() const { return resetting_; }

  // An I/O queue of so many of the host's entries, of which the controller does not know yet. Throws where there is no
  // memory for it, or its host has had its share.
  std::unique_ptr<HostQueue> make_queue(std::uint16_t qid, std::uint32_t entries);
  // Has the controller create it; `made` gets the queue, or nullptr with the status.
  using QueueMade = std::function<void(HostQueue*, std::uint16_t status_field)>;
  void create_queue(std::unique_ptr<HostQueue> queue, std::uint8_t priority, QueueMade made);
  bool has_queue(std::uint16_t qid) const { return queues_.contains(qid); }
  bool has_queues() const { return !queues_.empty(); }
  // A queue of this identifier has ended, but the controller has not deleted it yet.
  bool is_ending(std::uint16_t qid) const;
  // Its connection has ended; the pointer is no longer to be used.
  void drop_queue(std::uint16_t qid);

  // Completions of the admin queue that are not the host's. True if it was ours.
  bool on_admin_completion(const nvme::Cqe& cqe);
  // Once a round: goes on with what waits. Sets dead() where the controller has failed or was reset by somebody else.
  void advance();
  bool dead() const { return dead_ || dropped_.load(std::memory_order_relaxed); }
  void kill() { dead_ = true; }
  // The engine knows nothing of these any more: all that is left to do with them is to destroy them.
  static void detach(engine::Engine& engine, std::span<const std::unique_ptr<Association>> leaving);

 private:
  using Done = std::function<void(std::uint16_t status_field)>;
  struct Operation {
    nvme::Sqe sqe;
    Done done;
  };
  struct IoQueue {
    std::unique_ptr<HostQueue> queue;
    bool creating = true;
    bool dropped = false;  // while it was being created
  };

  std::unique_ptr<HostQueue> new_queue(const HostQueue::Shape& shape);
  void write_admin_registers();
  void run(const nvme::Sqe& sqe, Done done);
  void start_operations();
  void on_queue_created(std::uint16_t qid, std::uint16_t status_field, const QueueMade& made);
  void finish_reset();

  TargetContext& context_;
  const std::shared_ptr<Peer> peer_;
  FairShare::Holder queue_memory_;  // of this host; these two outlive all queues
  BufferPool::User pool_user_;
  const std::string host_nqn_;
  const std::array<std::uint8_t, 16> host_id_;
  const std::uint32_t keep_alive_ms_;
  controller::Controller controller_;
  std::unique_ptr<HostQueue> admin_;
  std::map<std::uint16_t, IoQueue> queues_;
  std::vector<std::unique_ptr<HostQueue>> graveyard_;  // the engine may still know them
  std::deque<Operation> waiting_;  // for room on the ring
  std::map<std::uint16_t, Done> running_;  // by command identifier
  std::uint16_t next_cid_ = 0xFFFF;  // hosts use the low ones
  bool enabled_ = false;  // the host has set CC.EN
  bool was_ready_ = false;
  bool resetting_ = false;
  bool detached_ = false;
  bool dead_ = false;
  std::uint64_t heard_ms_;
  std::atomic<bool> dropped_{false};  // by an injected fault, on an engine's thread
  bool authenticated_ = true;
  bool queues_end_ = false;
  std::string channel_;
};

using AssociationList = std::vector<std::unique_ptr<Association>>;

// Where memory for queues has run out: ends the association that can best be missed, and that is of the same address or
// one that holds more. False if there is none.
bool make_room_in_memory(const AssociationList& associations, const Peer& peer);

}  // namespace flashmob::transport
