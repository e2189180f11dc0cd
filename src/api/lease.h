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

// The device runs and outlives it. The destructor takes leave of the consumer. One thread at a time.
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

 private:
  transport::VfioUserOptions door_options();

  const LeaseOptions options_;
  std::atomic<std::uint64_t> attached_{0}, left_{0}, refused_{0};
  controller::Subsystem subsystem_;
  transport::VfioUserServer server_;  // last: its consumer leaves first
};

}  // namespace flashmob::api
