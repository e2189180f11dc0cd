// One client of the vfio-user door: its connection, its controller, its memory and its interrupts, and what each of its
// messages does (docs/interop/vfio-user).
//
// Everything here runs on the server's thread, or on a test's. Messages are answered one by one in the order they come;
// while a reply does not fit into the socket, no further message is taken. A client's mistake is an error reply; a
// stream that cannot be understood ends the connection.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/controller.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "flashmob/config.h"
#include "transport/vfio_user/client_interrupts.h"
#include "transport/vfio_user/dma_regions.h"
#include "transport/vfio_user/message_memory.h"
#include "transport/vfio_user/message_queues.h"
#include "transport/vfio_user/pci_function.h"
#include "transport/vfio_user/unmask_pace.h"
#include "vfio/capabilities.h"
#include "vfio/client_share.h"
#include "vfio/message_socket.h"
#include "vfio/protocol.h"

namespace flashmob::transport {

class Session {
 public:
  // What a client may send: more would be refused by QEMU's client as a capability.
  static constexpr std::uint64_t kMaxMessageFds = 16;
  static constexpr std::uint64_t kMaxDataTransferBytes = 1 << 20;

  // The client gets a controller, on the engine that runs, when it has said what protocol it speaks.
  // With `map_doorbells` false, the client must write doorbells by messages, which wake a sleeping engine.
  Session(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
          vfio::UniqueFd socket, bool map_doorbells = true, controller::HostRights rights = {});
  // Takes the controller off the engine, then gives the client's memory back. Whatever was in flight is dropped.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int fd() const { return socket_.fd(); }
  // Handles up to `limit` messages that have arrived. False: the connection is over, and why() says why.
  bool serve(unsigned limit);
  // True while the controller is being reset: call serve() soon, because no message says when that is done.
  bool is_resetting() const { return reset_ != Reset::none; }
  // True while a reply waits for room in the socket: call serve() when there is some.
  bool wants_to_write() const { return socket_.sending(); }
  const std::string& why() const { return why_; }
  // The connection is over for a reason that the server sees.
  void give_up(std::string why);
  // The client owes the rest of a message that has begun, or its first one.
  bool is_awaited() const { return controller_ == nullptr || socket_.receiving(); }
  // The client has cut memory short that it shares.
  bool has_cut_memory() const { return dma_ && dma_->is_cut(); }

  // Events besides the socket: the client's eventfd that unmasks INTx, the engine's call to look at the line, and
  // memory that is to be reached by messages. serve() is to be called after it, because it may have begun to send.
  // `watch(fd, true)` asks to have on_event() called each time that the descriptor becomes readable, `watch(fd, false)`
  // ends that before it is closed. How long it stays readable may be the client's choice.
  void set_watch(std::function<void(int fd, bool add)> watch) { watch_ = std::move(watch); }
  void on_event();
  // An unmasking of INTx waits (unmask_pace.h): call serve_held() in a millisecond. True if it was its time.
  bool is_held() const { return unmask_waits_; }
  bool serve_held();

  // nullptr until the protocol's version has been agreed on.
  const controller::Controller* controller() const { return controller_.get(); }
  std::uint64_t shared_bytes() const { return dma_ ? dma_->shared_bytes() : 0; }
  std::uint64_t unshared_bytes() const { return dma_ ? dma_->unshared_bytes() : 0; }
  std::uint64_t messages() const { return messages_; }

 private:
  using Payload = std::vector<std::byte>;
  // A command's result besides an errno: it is answered when the reset is done.
  static constexpr int kAnsweredLater = -1;

  bool make_device();
  bool handle(vfio::Message& message);
  // The commands: 0 or an errno; on success `reply_` and `reply_fds_` are what to send.
  int execute(vfio::Message& message);
  int negotiate(const vfio::Message& message);
  int dma_map(const vfio::Message& message);
  int dma_unmap(const vfio::Message& message);
  int device_info(const vfio::Message& message);
  int region_info(const vfio::Message& message);
  int irq_info(const vfio::Message& message);
  int set_irqs(vfio::Message& message);
  int bind_eventfds(vfio::Message& message, const vfio::IrqSet& set);
  int region_read(const vfio::Message& message);
  int region_write(const vfio::Message& message);
  int region_write_multi(const vfio::Message& message);
  int write_rest();
  int device_reset();
  void set_unmask_event(vfio::UniqueFd event);

  // A reset of the controller, which ends when the engine's threads have done their part. Meanwhile no message is
  // taken, and what a message writes after the beginning of a reset is written after its end.
  enum class Reset : std::uint8_t { none, controller, function };
  void begin_reset(Reset what);
  bool end_reset();
  bool send_reply(const vfio::Header& command, int error);

  // session_messages.cpp: clients whose queues are in memory that only messages reach.
  bool start_messages();
  void stop_messages();
  void forget_messages();
  bool pump_messages();
  void offer_doorbell_buffers();

  // session_regions.cpp
  std::uint64_t region_bytes(std::uint32_t region) const;
  int check_access(const vfio::RegionAccess& access) const;
  void read_region(std::uint32_t region, std::uint64_t offset, std::span<std::byte> to);
  int write_region(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> from);
  void read_registers(std::uint64_t offset, std::span<std::byte> to) const;
  void write_registers(std::uint64_t offset, std::span<const std::byte> from);
  void write_register(std::uint32_t offset, unsigned bytes, std::uint64_t value);
  void write_configuration(std::uint32_t value);
  void update_intx_gate();
  bool completions_unread();

  template <class T>
  void answer(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    reply_.insert(reply_.end(), bytes.begin(), bytes.end());
  }

  controller::Subsystem& subsystem_;
  engine::Engine& engine_;
  ControllerConfig config_;
  bool map_doorbells_;
  controller::HostRights rights_;
  vfio::MessageSocket socket_;
  vfio::ClientShare share_;
  // The device, from negotiation on.
  std::unique_ptr<controller::Controller> controller_;
  std::optional<PciFunction> pci_;
  std::optional<ClientInterrupts> interrupts_;
  std::optional<DmaRegions> dma_;
  std::optional<memory::AddressSpace::Reader> reader_;
  bool doorbells_given_ = false;  // the client has them mapped: its rings are not noticed here
  std::uint64_t max_client_transfer_bytes_ = vfio::kDefaultMaxDataTransferBytes;
  // Made for the first client controller whose queues need them, then kept.
  std::unique_ptr<MessageMemory> message_memory_;
  std::unique_ptr<MessageQueues> message_queues_;
  std::atomic<MessageQueues*> by_messages_{nullptr};  // while the controller's queues are served so
  std::uint64_t client_asq_ = 0, client_acq_ = 0;  // the registers as the client wrote them, meanwhile
  UnmaskPace unmask_pace_;
  bool unmask_waits_ = false;
  vfio::UniqueFd unmask_event_;
  std::function<void(int fd, bool add)> watch_;
  vfio::Message message_;
  Payload reply_;
  std::vector<int> reply_fds_;  // not owned
  std::uint64_t messages_ = 0;
  Reset reset_ = Reset::none;
  std::chrono::steady_clock::time_point reset_deadline_;
  std::optional<vfio::Header> unanswered_;  // the message that asked for the reset
  // Of `message_`: registers, and writes of a message of several, that are not written yet.
  std::span<const std::byte> registers_left_;
  std::uint64_t registers_left_at_ = 0;
  std::uint64_t writes_ = 0, writes_done_ = 0;
  bool over_ = false;
  std::string why_;
};

}  // namespace flashmob::transport
