// The target's loop: accepts, waits for sockets and completions, and calls connections and associations in turn. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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
  std::size_t connections() const { return connections_.size(); }
  void close_all();

 private:
  bool round(int timeout_ms);
  void listen();
  void accept_new();
  void add(int socket);
  bool serve();
  bool reap();
  void serve_waiting();
  void end_associations();
  void remove_closed();
  void update_interest(Connection& connection);

  TargetContext& context_;
  int epoll_ = -1;
  int listener_ = -1;
  AssociationList associations_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::size_t next_waiter_ = 0;
};

}  // namespace flashmob::transport
