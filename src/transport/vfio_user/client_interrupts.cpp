#include "transport/vfio_user/client_interrupts.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "vfio/peer_event.h"

namespace flashmob::transport {

bool prepare_eventfd(int fd) {
  std::array<char, 64> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  if (length < 0 || std::string_view(target.data(), static_cast<std::size_t>(length)) != "anon_inode:[eventfd]")
    return false;
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

namespace {

// The kernel's own number of it, which all descriptors of one eventfd have in common; nothing if it has none.
std::string eventfd_id(int fd) {
  constexpr std::string_view kName = "eventfd-id:";
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string line; std::getline(info, line);)
    if (line.starts_with(kName)) return line.substr(kName.size());
  return {};
}

}  // namespace

bool is_same_eventfd(int fd, int other) {
  if (fd < 0 || other < 0) return false;
  const std::string id = eventfd_id(fd);
  return !id.empty() && id == eventfd_id(other);
}

ClientInterrupts::ClientInterrupts(std::uint32_t vectors, vfio::ClientShare& share, std::function<bool()> unread)
    : vectors_(vectors),
      share_(share),
      msix_(std::make_unique<Line[]>(vectors)),
      unread_(std::move(unread)),
      intx_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!intx_event_) throw ConfigError("no eventfd for a client: raise the limit of open files (ulimit -n)");
}

std::uint32_t ClientInterrupts::count(std::uint32_t index) const {
  switch (index) {
    case vfio::kIrqIntx:
    case vfio::kIrqError:
      return 1;
    case vfio::kIrqMsix:
      return vectors_;
    default:
      return 0;
  }
}

std::uint32_t ClientInterrupts::flags(std::uint32_t index) {
  switch (index) {
    case vfio::kIrqIntx:
      return vfio::kIrqEventfd | vfio::kIrqMaskable | vfio::kIrqAutomasked;
    case vfio::kIrqMsix:
      return vfio::kIrqEventfd | vfio::kIrqMaskable;
    case vfio::kIrqError:
      return vfio::kIrqEventfd;
    default:
      return 0;
  }
}

ClientInterrupts::Line& ClientInterrupts::line(std::uint32_t index, std::uint32_t vector) {
  FLASHMOB_CHECK(index != vfio::kIrqIntx && vector < count(index));
  return index == vfio::kIrqMsix ? msix_[vector] : error_;
}

void ClientInterrupts::deliver(Line& to) {
  if (!to.eventfd || to.masked) {
    to.pending.store(true, std::memory_order_relaxed);
    return;
  }
  to.pending.store(false, std::memory_order_relaxed);
  // A full counter means that the client has not looked yet: it will see this one too.
  vfio::signal_event(to.eventfd.get());
}

void ClientInterrupts::fire(std::uint16_t vector) {
  if (vector < vectors_) {
    Line& to = msix_[vector];
    const std::lock_guard lock(to.mutex);
    deliver(to);
    if (to.eventfd) return;
  }
  if (intx_bound_.load(std::memory_order_acquire) && !intx_called_.exchange(true, std::memory_order_acq_rel))
    (void)eventfd_write(intx_event_.get(), 1);
}

bool ClientInterrupts::replace(vfio::UniqueFd& old, vfio::UniqueFd eventfd) {
  if (eventfd && !old && !share_.take_descriptor()) return false;
  if (old && !eventfd) share_.give_descriptor();
  old = std::move(eventfd);
  return true;
}

bool ClientInterrupts::bind(std::uint32_t index, std::uint32_t vector, vfio::UniqueFd eventfd) {
  if (index == vfio::kIrqIntx) {
    if (!replace(intx_, std::move(eventfd))) return false;
    intx_masked_ = false;
    intx_asserted_ = false;
    intx_bound_.store(static_cast<bool>(intx_), std::memory_order_release);
    update_intx();
    return true;
  }
  Line& to = line(index, vector);
  const std::lock_guard lock(to.mutex);
  const bool was_bound = static_cast<bool>(to.eventfd);
  if (!replace(to.eventfd, std::move(eventfd))) return false;
  if (index == vfio::kIrqMsix) {
    msix_bound_ += to.eventfd ? 1 : 0;
    msix_bound_ -= was_bound ? 1 : 0;
  }
  if (to.pending.load(std::memory_order_relaxed)) deliver(to);
  return true;
}

void ClientInterrupts::set_masked(std::uint32_t index, std::uint32_t vector, bool masked) {
  if (index == vfio::kIrqIntx) {
    intx_masked_ = masked;
    if (!masked) intx_asserted_ = false;
    update_intx();
    return;
  }
  Line& to = line(index, vector);
  const std::lock_guard lock(to.mutex);
  to.masked = masked;
  if (!masked && to.pending.load(std::memory_order_relaxed)) deliver(to);
}

void ClientInterrupts::trigger(std::uint32_t index, std::uint32_t vector) {
  if (index == vfio::kIrqIntx) {
    intx_triggered_ = true;
    update_intx();
    return;
  }
  Line& to = line(index, vector);
  const std::lock_guard lock(to.mutex);
  deliver(to);
}

void ClientInterrupts::disable(std::uint32_t index) {
  if (index == vfio::kIrqIntx) {
    intx_triggered_ = false;
    (void)bind(index, 0, vfio::UniqueFd());
    return;
  }
  for (std::uint32_t vector = 0; vector < count(index); ++vector) {
    Line& to = line(index, vector);
    const std::lock_guard lock(to.mutex);
    (void)replace(to.eventfd, vfio::UniqueFd());
    to.masked = false;
    to.pending.store(false, std::memory_order_relaxed);
  }
  if (index == vfio::kIrqMsix) msix_bound_ = 0;
}

void ClientInterrupts::disable_all() {
  for (std::uint32_t index = 0; index < vfio::kPciIrqs; ++index) disable(index);
}

void ClientInterrupts::update_intx() {
  // Answered before the queues are looked at, so that a completion after the look calls again.
  eventfd_t calls = 0;
  (void)eventfd_read(intx_event_.get(), &calls);
  intx_called_.store(false, std::memory_order_seq_cst);
  if (!intx_ || intx_masked_ || intx_gate_closed_) return;
  if (!intx_triggered_ && !unread_()) return;
  intx_triggered_ = false;
  // The line masks itself; the client unmasks it when its handler is done.
  intx_masked_ = true;
  intx_asserted_ = true;
  vfio::signal_event(intx_.get());
}

void ClientInterrupts::gate_intx(bool closed) {
  if (std::exchange(intx_gate_closed_, closed) && !closed) update_intx();
}

void ClientInterrupts::read_pending(std::size_t offset, std::span<std::byte> to) const {
  for (std::size_t i = 0; i < to.size(); ++i) {
    unsigned bits = 0;
    for (std::size_t bit = 0; bit < 8; ++bit) {
      const std::size_t vector = (offset + i) * 8 + bit;
      if (vector < vectors_ && msix_[vector].pending.load(std::memory_order_relaxed)) bits |= 1u << bit;
    }
    to[i] = static_cast<std::byte>(bits);
  }
}

}  // namespace flashmob::transport
