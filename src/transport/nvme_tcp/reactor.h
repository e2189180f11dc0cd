// The target's loop: accepts, waits for sockets and completions, and calls connections and associations in turn. One
// thread at a time.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/run_delay.h"
#include "transport/nvme_tcp/association.h"
#include "transport/nvme_tcp/connection.h"
#include "transport/nvme_tcp/context.h"

namespace flashmob::transport {

class Reactor {
 public:
  // Listens. Throws ConfigError.
  explicit Reactor(TargetContext& context);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // One round: what is ready, without waiting for more. True if there was something to do.
  bool round() { return round(0); }
  // One round that waits for something to do, if there is nothing.
  void sleep();
  void adopt(int socket);
  // How long rounds have waited for something to do, all together. (By the operating system's clock.)
  std::uint64_t waited_ns() const { return waited_ns_; }
  std::size_t connections() const { return connections_.size(); }
  void close_all();

 private:
  // An address of IPv4, or the network of an address of IPv6: whoever has one has all of its addresses. Those of this
  // machine's loopback are one.
  using PeerKey = std::array<std::uint8_t, 8>;
  static PeerKey key_of(const sockaddr_storage& address);

  bool round(int timeout_ms);
  int look_at_sockets(std::span<epoll_event> events, int timeout_ms);
  void listen();
  void accept_new();
  void pause_accepting(int error);
  void resume_accepting();
  void add(int socket, const PeerKey& from);
  // Has the connection that can best be missed give way to one of `peer`; false if there is none.
  bool make_room(const Peer& peer, FairShare::Answer why);
  bool serve();
  bool reap();
  void serve_waiting();
  void end_associations();
  // True if an association has ended, for whose memory somebody may wait.
  bool remove_closed();
  bool remove_dead();
  void update_interest(Connection& connection);
  void pass_time();

  TargetContext& context_;
  int epoll_ = -1;
  int listener_ = -1;
  FairShare places_;  // of connections
  std::map<PeerKey, std::weak_ptr<Peer>> peers_;
  std::uint64_t looked_ms_ = 0;        // at the machine's clock, the last time
  std::uint64_t accept_again_ms_ = 0;  // 0: we accept
  bool told_of_descriptors_ = false;
  AssociationList associations_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::size_t next_waiter_ = 0;
  std::uint64_t waited_ns_ = 0;
  std::uint64_t looked_ns_ = 0;  // when the look at all sockets began that was the last to show all that was there
  std::uint64_t reaped_ns_ = 0;  // when the last look at all completions began
  RunDelay run_delay_;
};

}  // namespace flashmob::transport
