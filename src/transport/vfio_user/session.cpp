#include "transport/vfio_user/session.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "controller/identity.h"
#include "vfio/peer_event.h"

namespace flashmob::transport {
namespace {

using namespace flashmob::vfio;

// The largest message: a region write of as much as may be transferred.
constexpr std::size_t kMaxMessageBytes =
    sizeof(Header) + sizeof(RegionAccess) + static_cast<std::size_t>(Session::kMaxDataTransferBytes);
// How long a reset may wait for the engine's threads, which other programs may keep off their cores.
constexpr std::chrono::seconds kResetPatience{10};
ControllerConfig with_pci_vectors(ControllerConfig config) {
  config.interrupt_vectors = std::min(config.interrupt_vectors, kMsixMaxVectors);
  return config;
}

}  // namespace

Session::Session(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
                 UniqueFd socket, bool map_doorbells, controller::HostRights rights)
    : subsystem_(subsystem),
      engine_(engine),
      config_(with_pci_vectors(config)),
      map_doorbells_(map_doorbells),
      rights_(std::move(rights)),
      socket_(std::move(socket), kMaxMessageBytes, kMaxMessageFds),
      share_(socket_.fd()) {}

Session::~Session() {
  set_unmask_event(UniqueFd());
  if (controller_ == nullptr) return;
  if (watch_) watch_(interrupts_->intx_event(), false);
  if (watch_ && message_memory_) watch_(message_memory_->event(), false);
  interrupts_->disable_all();
  if (by_messages_ != nullptr) stop_messages();
  engine_.detach(*controller_);
  reader_.reset();
  message_queues_.reset();
  controller_.reset();
  dma_->forget_all();
}

// The client's device. False when the subsystem has no room for another controller, or the process for descriptors.
bool Session::make_device() {
  try {
    interrupts_.emplace(config_.interrupt_vectors, share_, [this] { return completions_unread(); });
    controller_ = std::make_unique<controller::Controller>(subsystem_, config_, engine_,
                                                           controller::ControllerRole{.rights = rights_});
    dma_.emplace(controller_->address_space(), share_);
    reader_.emplace(controller_->address_space());
  } catch (const std::exception&) {
    reader_.reset();
    dma_.reset();
    controller_.reset();
    interrupts_.reset();
    return false;
  }
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  const bool known = getsockopt(socket_.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0;
  controller_->set_host("vfio-user", known ? "pid " + std::to_string(peer.pid) : "");
  pci_.emplace(controller_->doorbell_bytes(), config_.interrupt_vectors, controller::kPciVendorId);
  if (watch_) watch_(interrupts_->intx_event(), true);
  // The server's thread then sees a client that hung up.
  controller_->set_connection_drop([socket = socket_.fd()] { shutdown(socket, SHUT_RDWR); });
  engine_.attach(*controller_, [this](std::uint16_t vector) {
    if (MessageQueues* queues = by_messages_.load(std::memory_order_acquire); queues != nullptr) [[unlikely]]
      queues->interrupt(vector);
    else
      interrupts_->fire(vector);
  });
  return true;
}

void Session::give_up(std::string why) {
  why_ = std::move(why);
  over_ = true;
}

bool Session::serve(unsigned limit) {
  if (is_resetting() && !end_reset()) return !over_;
  for (unsigned i = 0; i < limit && !over_ && !is_resetting(); ++i) {
    if (socket_.sending()) {
      const MessageSocket::Sent sent = socket_.flush();
      if (sent == MessageSocket::Sent::waits) return true;
      if (sent == MessageSocket::Sent::failed) {
        why_ = socket_.error();
        return false;
      }
    }
    switch (socket_.receive(message_)) {
      case MessageSocket::Received::nothing:
        return pump_messages();
      case MessageSocket::Received::closed:
      case MessageSocket::Received::broken:
        why_ = socket_.error();
        return false;
      case MessageSocket::Received::message:
        if (!handle(message_)) return false;
    }
  }
  return !over_ && (is_resetting() || pump_messages());
}

bool Session::handle(Message& message) {
  ++messages_;
  if ((message.header.flags & kFlagTypeMask) != kTypeCommand) {
    if (message_memory_ && message_memory_->take_reply(message)) return pump_messages();
    why_ = "it sent a reply, but was asked nothing";
    return false;
  }
  const bool first = controller_ == nullptr;
  if (first && message.header.command != static_cast<std::uint16_t>(Command::version)) {
    why_ = "its first message is not Version";
    return false;
  }
  reply_.clear();
  reply_fds_.clear();
  registers_left_ = {};
  writes_ = writes_done_ = 0;
  const int error = execute(message);
  if (first && error != 0) {
    why_ = error == ENOSPC ? "the subsystem has no controller left for it" : "its Version message is not understood";
    over_ = true;  // after the error reply
  }
  if (error == kAnsweredLater) {
    unanswered_ = message.header;
    return true;
  }
  return send_reply(message.header, error);
}

bool Session::send_reply(const Header& command, int error) {
  if ((command.flags & kFlagNoReply) != 0) return !over_;
  Header header{command.message_id, command.command, 0, kTypeReply, 0};
  if (error != 0) {
    header.flags |= kFlagError;
    header.error = static_cast<std::uint32_t>(error);
    reply_.clear();
    reply_fds_.clear();
  }
  if (socket_.start_send(header, reply_, reply_fds_) == MessageSocket::Sent::failed) {
    why_ = socket_.error();
    return false;
  }
  return !over_;
}

int Session::execute(Message& message) {
  if (message.fds_lost) return EMFILE;
  switch (static_cast<Command>(message.header.command)) {
    case Command::version:
      return negotiate(message);
    case Command::dma_map:
      return dma_map(message);
    case Command::dma_unmap:
      return dma_unmap(message);
    case Command::device_get_info:
      return device_info(message);
    case Command::device_get_region_info:
      return region_info(message);
    case Command::device_get_irq_info:
      return irq_info(message);
    case Command::device_set_irqs: {
      const int error = set_irqs(message);
      offer_doorbell_buffers();
      return error;
    }
    case Command::region_read:
      return region_read(message);
    case Command::region_write:
      return region_write(message);
    case Command::region_write_multi:
      return region_write_multi(message);
    case Command::device_reset:
      return device_reset();
    default:
      return EOPNOTSUPP;  // migration and I/O descriptors, which are optional, and what does not exist
  }
}

int Session::negotiate(const Message& message) {
  Version version{};
  if (controller_ != nullptr || !message.read(version) || version.major != kMajorVersion) return EINVAL;
  const bool has_text = message.payload.size() > sizeof(Version);
  const std::string_view text(reinterpret_cast<const char*>(message.payload.data()) + sizeof(Version),
                              message.payload.size() - sizeof(Version));
  const auto capabilities = parse_capabilities(text);
  if (!capabilities) return EINVAL;
  max_client_transfer_bytes_ = capabilities->max_data_transfer_bytes;
  if (!make_device()) return ENOSPC;
  answer(Version{kMajorVersion, std::min(version.minor, kMinorVersion)});
  if (!has_text) return 0;
  const std::string mine = format_capabilities({.max_message_fds = kMaxMessageFds,
                                                .max_data_transfer_bytes = kMaxDataTransferBytes,
                                                .max_dma_maps = DmaRegions::kMaxRegions,
                                                .page_sizes = kDefaultPageSizes,
                                                .write_multiple = true});
  const auto bytes = std::as_bytes(std::span(mine.c_str(), mine.size() + 1));
  reply_.insert(reply_.end(), bytes.begin(), bytes.end());
  return 0;
}

int Session::dma_map(const Message& message) {
  DmaMap map{};
  if (!message.read(map) || map.argsz < sizeof(map) || message.fds.size() > 1) return EINVAL;
  if ((map.flags & ~(kDmaReadable | kDmaWritable)) != 0 || (map.flags & kDmaReadable) == 0) return EINVAL;
  const UniqueFd none;
  const UniqueFd& file = message.fds.empty() ? none : message.fds[0];
  return dma_->map(map.address, map.size_bytes, file, map.offset, (map.flags & kDmaWritable) != 0);
}

int Session::dma_unmap(const Message& message) {
  DmaUnmap unmap{};
  if (!message.read(unmap) || unmap.argsz < sizeof(unmap)) return EINVAL;
  if ((unmap.flags & ~kUnmapAll) != 0) return EOPNOTSUPP;  // no dirty page bitmaps
  if ((unmap.flags & kUnmapAll) != 0) {
    if (unmap.address != 0 || unmap.size_bytes != 0) return EINVAL;
    dma_->unmap_all();
  } else if (const int error = dma_->unmap(unmap.address, unmap.size_bytes); error != 0) {
    return error;
  }
  answer(unmap);
  return 0;
}

int Session::device_info(const Message& message) {
  DeviceInfo info{};
  if (!message.read(info) || info.argsz < sizeof(info)) return EINVAL;
  answer(DeviceInfo{sizeof(info), kDeviceReset | kDevicePci, kPciRegions, kPciIrqs});
  return 0;
}

int Session::irq_info(const Message& message) {
  IrqInfo info{};
  if (!message.read(info) || info.argsz < sizeof(info) || info.index >= kPciIrqs) return EINVAL;
  answer(IrqInfo{sizeof(info), ClientInterrupts::flags(info.index), info.index, interrupts_->count(info.index)});
  return 0;
}

int Session::set_irqs(Message& message) {
  IrqSet set{};
  if (!message.read(set) || set.argsz < sizeof(set) || set.index >= kPciIrqs) return EINVAL;
  const std::uint32_t data = set.flags & kIrqSetDataMask;
  const std::uint32_t action = set.flags & kIrqSetActionMask;
  if (set.flags != (data | action) || std::popcount(data) != 1 || std::popcount(action) != 1) return EINVAL;
  if (data == kIrqSetNone && action == kIrqSetTrigger && set.count == 0) {
    if (set.start != 0) return EINVAL;
    interrupts_->disable(set.index);
    if (set.index == kIrqIntx) set_unmask_event(UniqueFd());
    return 0;
  }
  const std::uint32_t count = interrupts_->count(set.index);
  if (set.count == 0 || set.start >= count || set.count > count - set.start) return EINVAL;
  if (data == kIrqSetEventfd) return bind_eventfds(message, set);
  if (data == kIrqSetBool && message.payload.size() - sizeof(set) < set.count) return EINVAL;
  if (action != kIrqSetTrigger && set.index == kIrqError) return EINVAL;  // it cannot be masked
  for (std::uint32_t i = 0; i < set.count; ++i) {
    if (data == kIrqSetBool && message.payload[sizeof(set) + i] == std::byte{0}) continue;
    if (action == kIrqSetTrigger)
      interrupts_->trigger(set.index, set.start + i);
    else
      interrupts_->set_masked(set.index, set.start + i, action == kIrqSetMask);
  }
  return 0;
}

// As many descriptors as interrupts, or none at all to unbind them.
int Session::bind_eventfds(Message& message, const IrqSet& set) {
  if (!message.fds.empty() && message.fds.size() != set.count) return EINVAL;
  for (const UniqueFd& fd : message.fds)
    if (!prepare_eventfd(fd.get())) return EINVAL;
  const bool unmasks = (set.flags & kIrqSetUnmask) != 0;
  // One eventfd for both would have the line unmask itself for ever.
  if (set.index == kIrqIntx && !message.fds.empty()) {
    const int other = unmasks ? interrupts_->intx_eventfd() : unmask_event_.get();
    if (is_same_eventfd(message.fds[0].get(), other)) return EINVAL;
  }
  if (unmasks && set.index == kIrqIntx) {
    set_unmask_event(message.fds.empty() ? UniqueFd() : std::move(message.fds[0]));
    return 0;
  }
  if ((set.flags & kIrqSetTrigger) == 0) return EINVAL;  // no other masking is told by descriptors
  for (std::uint32_t i = 0; i < set.count; ++i)
    if (!interrupts_->bind(set.index, set.start + i, message.fds.empty() ? UniqueFd() : std::move(message.fds[i])))
      return ENOSPC;
  return 0;
}

void Session::set_unmask_event(UniqueFd event) {
  if (unmask_event_ && watch_) watch_(unmask_event_.get(), false);
  unmask_event_ = std::move(event);
  unmask_waits_ = false;
  if (unmask_event_ && watch_) watch_(unmask_event_.get(), true);
}

void Session::on_event() {
  if (controller_ == nullptr) return;
  std::uint64_t value = 0;
  if (unmask_event_ && take_event(unmask_event_.get(), value)) unmask_waits_ = true;
  // What calls besides has the line looked at, which unmasking does as well.
  if (!serve_held()) interrupts_->update_intx();
}

bool Session::serve_held() {
  if (!unmask_waits_ || !unmask_pace_.may_go(std::chrono::steady_clock::now())) return false;
  unmask_waits_ = false;
  interrupts_->set_masked(kIrqIntx, 0, false);
  return true;
}

// A controller reset tears the queues down and zeroes the doorbells.
void Session::begin_reset(Reset what) {
  if (by_messages_ != nullptr) stop_messages();
  controller_->write_register(nvme::kRegCc, 4, 0);
  engine_.wake();
  reset_ = what;
  reset_deadline_ = std::chrono::steady_clock::now() + kResetPatience;
}

// False while it goes on.
bool Session::end_reset() {
  const bool done = controller_->state() == controller::ControllerState::disabled && !controller_->needs_poll();
  if (!done && std::chrono::steady_clock::now() < reset_deadline_) {
    engine_.wake();
    return false;
  }
  const Reset what = std::exchange(reset_, Reset::none);
  if (done && by_messages_ != nullptr) forget_messages();
  if (done && what == Reset::function) {
    // First the controller, then the rest of the function.
    for (const std::uint32_t offset : {nvme::kRegAsq, nvme::kRegAcq}) controller_->write_register(offset, 8, 0);
    controller_->write_register(nvme::kRegAqa, 4, 0);
    pci_->reset();
    update_intx_gate();
  }
  if (!unanswered_) return true;
  const int error = done ? write_rest() : EIO;
  if (error == kAnsweredLater) return false;  // for another reset
  if (!send_reply(*std::exchange(unanswered_, std::nullopt), error)) over_ = true;
  return true;
}

int Session::device_reset() {
  begin_reset(Reset::function);
  return end_reset() ? 0 : kAnsweredLater;
}

}  // namespace flashmob::transport
