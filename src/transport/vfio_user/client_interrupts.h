// How one controller's interrupts reach its client: eventfds that the client bound to vectors, and the INTx line (VFIO
// user API, "VFIO_DEVICE_SET_IRQS"; PCI Local Bus 3.0, 2.2.6 and 6.8.2).
//
// fire() may be called by any engine thread beside everything else; the rest belongs to the server's thread. When a
// binding has been replaced or taken away, no engine thread still writes to the old eventfd. An MSI-X interrupt that
// finds its vector masked or unbound stays pending and is delivered when that ends.
//
// INTx is level-triggered: the line is asserted while a completion waits to be read. A client that is told of an
// assertion without such a completion finds nothing to do, never touches the device, and so never ends it. Hence the
// server's thread looks at the queues before each assertion, and engine threads only call it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "vfio/client_share.h"
#include "vfio/protocol.h"
#include "vfio/unique_fd.h"

namespace flashmob::transport {

class ClientInterrupts {
 public:
  // `unread` says whether a completion that interrupts has not been read; called on the server's thread.
  ClientInterrupts(std::uint32_t vectors, vfio::ClientShare& share, std::function<bool()> unread);
  ~ClientInterrupts() { disable_all(); }
  ClientInterrupts(const ClientInterrupts&) = delete;
  ClientInterrupts& operator=(const ClientInterrupts&) = delete;

  // Any thread. One interrupt of a vector: its eventfd, or the INTx line while that is what the client uses.
  void fire(std::uint16_t vector);

  // How many interrupts an index of the protocol has; 0 for those that this device lacks.
  std::uint32_t count(std::uint32_t index) const;
  static std::uint32_t flags(std::uint32_t index);

  // The actions of SET_IRQS; index and range have been checked. An empty descriptor unbinds. False if the client has as
  // many descriptors here as it may.
  bool bind(std::uint32_t index, std::uint32_t vector, vfio::UniqueFd eventfd);
  void set_masked(std::uint32_t index, std::uint32_t vector, bool masked);
  void trigger(std::uint32_t index, std::uint32_t vector);
  // Unbinds and unmasks every interrupt of an index, and forgets what is pending.
  void disable(std::uint32_t index);
  void disable_all();

  // Readable when an engine thread wants the line looked at; then call update_intx().
  int intx_event() const { return intx_event_.get(); }
  // What the client is told by that the line is asserted; -1: nothing.
  int intx_eventfd() const { return intx_.get(); }
  void update_intx();
  // What gates the INTx line besides its mask: INTMS, and the command register's interrupt disable bit.
  void gate_intx(bool closed);
  bool intx_asserted() const { return intx_asserted_; }
  // The client takes its interrupts by the line, not by messages.
  bool uses_intx() const { return static_cast<bool>(intx_) && msix_bound_ == 0; }

  // The MSI-X pending bit array; bytes beyond it read as zero.
  void read_pending(std::size_t offset, std::span<std::byte> to) const;

 private:
  struct Line {
    std::mutex mutex;
    vfio::UniqueFd eventfd;
    bool masked = false;
    std::atomic<bool> pending{false};
  };

  Line& line(std::uint32_t index, std::uint32_t vector);
  // With the line's mutex held: signals it, unless it is masked or unbound.
  void deliver(Line& line);

  std::uint32_t vectors_;
  vfio::ClientShare& share_;
  std::unique_ptr<Line[]> msix_;
  Line error_;
  std::uint32_t msix_bound_ = 0;

  bool replace(vfio::UniqueFd& old, vfio::UniqueFd eventfd);

  std::function<bool()> unread_;
  vfio::UniqueFd intx_event_;
  std::atomic<bool> intx_bound_{false};   // lets engine threads skip the line
  std::atomic<bool> intx_called_{false};  // intx_event_ has been signalled and not yet answered
  vfio::UniqueFd intx_;
  bool intx_masked_ = false;
  bool intx_gate_closed_ = false;
  bool intx_asserted_ = false;   // the client has been told and has not unmasked the line since
  bool intx_triggered_ = false;  // the client asked for an interrupt by itself
};

// True if the descriptor is an eventfd; sets it non-blocking, which the client may take back (vfio/peer_event.h).
bool prepare_eventfd(int fd);
// Whether two descriptors are of one eventfd; false as well where the kernel does not tell (before Linux 5.2). `other`
// may be -1.
bool is_same_eventfd(int fd, int other);

}  // namespace flashmob::transport
