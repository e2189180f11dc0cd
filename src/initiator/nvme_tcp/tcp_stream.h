// The host's end of one NVMe/TCP queue: commands become capsules, their data moves as the controller asks for it or
// sends it, responses become completion entries (NVMe TCP transport 1.0c, clauses 3.3 to 3.5).
//
// A non-blocking state machine over a connected socket: no threads, no clock, nothing allocated after construction
// but for the door's own commands. What it gets from the socket is checked; what is wrong ends the connection with a
// termination request, and every command in flight with a transport error. One thread; calls that take a reader are
// made inside its guard.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fabrics/pdu.h"
#include "fabrics/pdu_reader.h"
#include "fabrics/stream.h"
#include "initiator/nvme_tcp/tcp_slot.h"
#include "initiator/nvme_tcp/tcp_transmit.h"
#include "memory/address_space.h"
#include "memory/command_data.h"
#include "memory/host_memory.h"
#include "nvme/command.h"
#include "nvme/status.h"

namespace flashmob::initiator {

// R2Ts that the controller may have outstanding for one command; told to it when the connection is set up.
inline constexpr std::uint32_t kMaxR2tsPerCommand = 4;

// What the two ends agreed upon, and what Identify says of in-capsule data.
struct TcpStreamLimits {
  std::uint16_t qid = 0;
  std::uint32_t entries = 0;  // of the queue; one fewer commands are in flight at most
  fabrics::Digests digests;
  std::uint32_t max_h2c_bytes = 0;
  std::uint8_t cpda = 0;
  std::uint32_t in_capsule_bytes = 0;
};

class TcpStream {
 public:
  // Told of the end of each command that start() began; the entry's queue head and phase mean nothing.
  class Owner {
   public:
    virtual void completed(const nvme::Cqe& entry) = 0;

   protected:
    ~Owner() = default;
  };

  // Takes the bytes' stream, which is set up as far as Connect's response, and closes its socket in the end.
  TcpStream(fabrics::Stream bytes, const TcpStreamLimits& limits, Owner& owner);
  ~TcpStream();
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  int fd() const { return bytes_.socket(); }
  std::uint32_t in_flight() const { return in_flight_; }
  // True if a command can be started now: there is a slot, and room to send.
  bool can_start() const { return !free_.empty() && transmit_.has_room(room_for_command_); }
  // True if the door's own command uses this identifier: the host's has to wait a moment.
  bool reserved(std::uint16_t cid) const;
  // Any status but success: the command is not under way, and that is how it ends.
  nvme::Status start(memory::AddressSpace::Reader& reader, const nvme::Sqe& sqe, CommandData data);
  // A command of the door itself; false if none can be started now. `local` holds its data, and `done` is told.
  bool start_own(memory::AddressSpace::Reader& reader, nvme::Sqe sqe, CommandData data, std::byte* local,
                 std::function<void(const nvme::Cqe&)> done);

  // Sends what there is to send, receives what has arrived; true if bytes moved.
  bool send(memory::AddressSpace::Reader& reader);
  bool receive(memory::AddressSpace::Reader& reader);
  // True if send() waits for the socket.
  bool send_blocked() const { return blocked_; }

  // The connection is gone, and why. The commands that were in flight have ended.
  bool lost() const { return !reason_.empty(); }
  const std::string& reason() const { return reason_; }
  void lose(const std::string& reason);
  // Ends every command in flight. Nothing more may be asked of the stream but its end.
  void end_commands(nvme::Status status);

 private:
  struct Grant {  // the rest of an R2T
    std::uint16_t slot;
    std::uint16_t ttag;
    std::uint32_t offset;
    std::uint32_t bytes;
  };

  TcpSlot* slot_of(std::uint16_t cid);
  std::uint16_t index_of(const TcpSlot& slot) const { return static_cast<std::uint16_t>(&slot - slots_.data()); }
  void launch(memory::AddressSpace::Reader& reader, TcpSlot& slot);
  bool stage_data(memory::AddressSpace::Reader& reader, TcpSlot& slot, std::uint64_t offset, std::uint64_t bytes);
  void release(TcpSlot& slot);
  void finish(TcpSlot& slot, nvme::Cqe entry);

  void serve_grants(memory::AddressSpace::Reader& reader);
  void follow_mappings(memory::AddressSpace::Reader& reader);
  void process(memory::AddressSpace::Reader& reader);
  void begin_data(memory::AddressSpace::Reader& reader);
  void set_sink(memory::AddressSpace::Reader& reader, std::uint64_t offset, std::uint64_t bytes, bool first);
  void end_pdu();
  void end_data();
  void take_r2t();
  void take_response();
  void fault(fabrics::PduFault fault, const char* what);
  void send_termination(fabrics::PduFault fault);

  fabrics::Stream bytes_;
  TcpStreamLimits limits_;
  Owner& owner_;
  std::size_t room_for_command_;
  std::uint32_t in_flight_ = 0;
  std::vector<TcpSlot> slots_;
  std::vector<std::uint16_t> free_;
  memory::HostMemory slot_of_cid_;  // 65,536 words: a slot's index + 1, or 0; pages come as identifiers are used
  TcpTransmit transmit_;
  bool blocked_ = false;
  std::vector<Grant> grants_;  // a ring
  std::size_t grants_head_ = 0;
  std::size_t grants_count_ = 0;
  fabrics::PduReader reader_;
  TcpSlot* receiving_ = nullptr;  // of the C2HData PDU that is coming in
  std::vector<iovec> sink_;
  std::uint64_t sink_generation_ = 0;
  std::string reason_;
};

}  // namespace flashmob::initiator
