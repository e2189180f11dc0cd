// The doors of one served SSD: what other processes and machines attach to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "controller/subsystem.h"
#include "engine/engine.h"
#include "flashmob/config.h"
#include "flashmob/server.h"

namespace flashmob::api {

// An open door. Its destructor takes leave of every host; the engine must still run then.
class Door {
 public:
  virtual ~Door() = default;
  // How a benchmark or a host names it: "vfio-user:/run/flashmob/ssd0".
  virtual std::string address() const = 0;
};

// Opens every door that the options name; serves hosts at once. The engine runs; both outlive the doors. Throws
// ConfigError.
std::vector<std::unique_ptr<Door>> open_doors(const ServerOptions& options, controller::Subsystem& subsystem,
                                              engine::Engine& engine, const ControllerConfig& controller);

}  // namespace flashmob::api
