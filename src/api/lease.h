// A part of a served SSD, lent to one consumer: a subsystem of its own behind a vfio-user socket of its own.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/served_device.h"
#include "controller/subsystem.h"
#include "flashmob/config.h"
#include "flashmob/server.h"
#include "transport/vfio_user/vfio_user_server.h"

namespace flashmob::api {

// The device outlives it. It goes once leave() has been called, and is_forgotten() or the device has been stopped. One
// thread at a time.
class Lease {
 public:
  // `options` as of_whole() returns them. Throws ConfigError.
  Lease(const LeaseOptions& options, ServedDevice& device, const ControllerConfig& config);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // With the size of a part that goes to the end. Throws ConfigError.
  static LeaseOptions of_whole(const LeaseOptions& options, controller::Subsystem& subsystem);
  // Throws ConfigError where this one and another cannot be at once.
  void check_beside(const LeaseOptions& other) const;
  LeaseStats stats();
  // Takes leave of the consumer: his memory is touched no more.
  void leave() { server_.stop(); }
  // After leave(), whether no command is under way any more that knows the blocks: what a disk holds up may take longer
  // than its host is there. Until then nobody else may have them.
  bool is_forgotten();

 private:
  transport::VfioUserOptions door_options();

  const LeaseOptions options_;
  engine::Engine& engine_;
  std::atomic<std::uint64_t> attached_{0}, left_{0}, refused_{0};
  controller::Subsystem subsystem_;
  transport::VfioUserServer server_;  // last: its consumer leaves first
};

}  // namespace flashmob::api
