// One TCP connection of a host: a queue, once Connect has made it one (NVMe TCP transport 1.0c, clause 3.3). A state
// machine that the target's loop feeds with readiness and completions; it never blocks. A host's mistake ends in a
// status, in a C2HTermReq, or in the connection's end. One thread, the target's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabrics/dhchap.h"
#include "fabrics/pdu_reader.h"
#include "fabrics/send_queue.h"
#include "fabrics/stream.h"
#include "nvme/fabrics.h"
#include "nvme/opcode.h"
#include "transport/nvme_tcp/association.h"
#include "transport/nvme_tcp/context.h"
#include "transport/nvme_tcp/delay_log.h"
#include "transport/nvme_tcp/discovery.h"
#include "transport/nvme_tcp/host_queue.h"

namespace flashmob::transport {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Takes the socket, which must not block, and the place that its peer has been given for it.
  Connection(TargetContext& context, AssociationList& associations, int socket, std::shared_ptr<Peer> peer,
             FairShare::Portion place);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return stream_.socket(); }
  bool closed() const { return state_ == State::closed; }
  Association* association() const { return association_; }
  bool is_io() const { return association_ != nullptr && qid_ != 0; }
  bool is_busy() const { return queue_ != nullptr && queue_->in_flight() != 0; }

  // --- What the loop calls ---
  void on_readable();
  // Answers the commands that the engine has completed; true if there were any.
  bool reap();
  // Goes on with what waited for something else than the socket.
  void advance();
  // Gives buffers to commands that wait for them, in order and as far as the host's share goes. Where the pool has too
  // few, pool_exhausted says so.
  void serve_waiting();
  // Tells the engine about new commands; true if there were any.
  bool ring();
  // Sends; true if that has made room for answers to what the host has sent meanwhile, so that another round is due.
  bool flush();
  // What the loop should wait for on the socket (EPOLLIN, EPOLLOUT).
  std::uint32_t interest() const;
  std::uint32_t registered_interest = 0;  // the loop's note of what it last asked for
  bool has_room = false;                  // and that the socket takes something, since the last flush()
  // Ends the connection at once, without a word.
  void close();

  // Where connections run out: since when this one might give way to another, UINT64_MAX if it should not.
  std::uint64_t idle_since_ms() const;
  const Peer& peer() const { return *peer_; }

 private:
  // Answers of our own that a host may leave unread before nothing more is read from it. The largest is added to that.
  static constexpr std::size_t kMaxUnsentBytes = 256 * 1024;
  enum class State : std::uint8_t { await_ic, await_connect, live, draining, closed };
  using Status = nvme::Status;
  using Slot = HostQueue::Slot;
  using SlotState = HostQueue::State;

  // connection.cpp
  bool decide();
  bool secure();
  bool is_stalled();
  bool paused() const { return hold_ || send_.copied_bytes() >= kMaxUnsentBytes; }
  void drop_queue();
  void process();
  void on_header();
  void on_complete();
  void on_ic_req();
  void terminate(fabrics::PduFault fault);
  void respond(std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0 = 0, std::uint32_t dw1 = 0);
  void respond(std::uint16_t cid, Status status, std::uint32_t dw0 = 0) {
    respond(cid, nvme::with_do_not_retry(status), dw0);
  }
  // With data that is copied: for what is small and rare.
  void respond_with(std::uint16_t cid, std::span<const std::byte> data, std::uint32_t dw0 = 0);

  // A token of the send queue's that stands for an answer; others are slots.
  static constexpr std::uint32_t kAnswer = 0x80000000u;

  // connection_commands.cpp: commands that go to the engine, and their data
  void begin_command(const nvme::Sqe& sqe);
  void finish_command();
  Status check_command(Slot& slot, std::size_t capsule_bytes);
  Status check_data_pointer(Slot& slot, std::size_t capsule_bytes);
  void start_transfer(std::uint32_t index);
  void have_buffers(std::uint32_t index);
  void sent(std::uint32_t token);
  void begin_h2c_data();
  void finish_h2c_data();
  void data_ready(std::uint32_t index);
  bool carries_blocks(const Slot& slot) const;
  std::uint32_t format_of(const Slot& slot) const;
  bool has_changed_format(const Slot& slot) const;
  void release_fused_first();
  void submit(std::uint32_t index);
  void begin_turn(Slot& slot, std::uint64_t now_ns);
  void end_turns(std::uint64_t now_ns);
  void date_what_is_left();
  void refuse(std::uint32_t index, Status status);
  void complete(std::uint32_t index, const nvme::Cqe& cqe);

  // connection_fabrics.cpp: commands that the target answers itself
  void fabrics_command(const nvme::Sqe& sqe);
  void connect(const nvme::Sqe& sqe);
  void disconnect(std::uint16_t cid);
  bool is_secure_enough(const fabrics::PskParties& said) const;
  bool has_generated_key() const;
  std::string channel() const;
  nvme::AuthSecureChannel offered_channel() const;
  DiscoveryAddress own_address() const;
  void connect_admin(const nvme::Sqe& sqe, const nvme::Connect& fields, const std::string& host_nqn);
  void connect_io(const nvme::Sqe& sqe, const nvme::Connect& fields, const std::string& host_nqn);
  void make_room_for(const nvme::Sqe& connect);
  void accept_connect(std::uint16_t cid, std::uint16_t cntlid);
  void property(const nvme::Sqe& sqe, bool set);
  void write_cc();
  void authentication_send(const nvme::Sqe& sqe);
  void authentication_receive(const nvme::Sqe& sqe);
  void begin_authentication_step(std::uint16_t cid, bool is_send, fabrics::Bytes message, std::size_t length_bytes);
  void advance_authentication();
  void keep_key(fabrics::TlsPsk psk);
  void discovery_command(const nvme::Sqe& sqe);
  // The command's data that came in its capsule; nothing where its descriptor does not fit it.
  std::optional<std::span<const std::byte>> capsule_data(const nvme::Sqe& sqe) const;
  bool may_talk() const { return !must_authenticate_ || authentication_->authenticated(); }

  TargetContext& context_;
  AssociationList& associations_;
  fabrics::Stream stream_;
  bool undecided_;  // whether this will be a connection of TLS
  const std::shared_ptr<Peer> peer_;
  FairShare::Portion place_;  // until it is closed
  FairShare::Portion tls_memory_;
  State state_ = State::await_ic;
  fabrics::PduReader reader_;
  fabrics::SendQueue send_;
  fabrics::Digests digests_;
  std::uint8_t host_pda_ = 0;
  std::uint64_t deadline_ms_;        // to get connected, or to go; UINT64_MAX: none
  std::uint64_t received_ms_;  // when bytes last came
  std::uint64_t asked_ms_ = 0;    // when data that was asked for last came, or the first R2T for it was sent
  std::uint64_t sent_ms_;      // when bytes last went, or there were none
  std::size_t unsent_bytes_ = 0;  // of the last look
  std::uint32_t awaited_ = 0;     // R2Ts that were sent and whose data has not come yet
  bool close_when_sent_ = false;
  bool hold_ = false;                // no PDU is looked at until something else has happened
  bool stopped_ = false;             // process() has left PDUs unseen because it was paused

  Association* association_ = nullptr;
  std::uint16_t qid_ = 0;
  HostQueue* queue_ = nullptr;
  std::uint32_t host_entries_ = 0;
  std::uint32_t sq_head_ = 0;
  bool flow_control_ = true;
  std::shared_ptr<fabrics::DhchapController> authentication_;  // nullptr: there is no secret to prove anything with
  bool must_authenticate_ = false;                             // before anything else
  bool key_made_ = false;  // in the clear: the host is to come again by TLS, and has little to do here until then
  std::shared_ptr<AuthenticationStep> step_;                   // the authenticator's, or about to be
  std::uint64_t step_since_ms_ = 0;
  bool step_submitted_ = false;
  std::uint16_t step_cid_ = 0;
  std::size_t step_bytes_ = 0;  // of the buffer that its answer goes into
  std::unique_ptr<DiscoveryController> discovery_;

  std::uint32_t current_ = HostQueue::kNoSlot;  // the slot that the PDU at hand belongs to
  std::uint32_t fused_first_ = HostQueue::kNoSlot;  // a first half whose second has not come
  std::uint64_t fused_since_ms_ = 0;
  std::deque<std::uint32_t> waiting_;           // for buffers
  std::vector<std::byte> control_data_;         // of commands that the target answers itself
  std::vector<iovec> pieces_;
  DelayLog delays_;
  std::vector<std::uint32_t> unrung_;  // slots that were submitted since the doorbell was rung
  bool owns_queue_ = true;  // until Disconnect has given it up
  std::optional<std::uint16_t> waiting_disconnect_;  // its CID; until the queue is gone
  std::optional<nvme::Sqe> waiting_connect_;  // for the end of an earlier queue of the same identifier, or of somebody
  struct PropertyWrite {
    std::uint16_t cid;
    std::uint32_t value;
    bool written;
  };
  std::optional<PropertyWrite> cc_write_;  // a write of CC that waits: to be made, or for the reset it began
};

}  // namespace flashmob::transport
