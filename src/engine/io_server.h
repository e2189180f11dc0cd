// Who serves I/O queues in place of the engine's own service units: an engine on a GPU. The units then serve the admin
// queues alone, and everything else about the device stays as it is.
//
// This room may not know the one that has it, so that one registers itself under the value of engine.kind.
// Thread rule: request(), namespaces_changed(), features_changed() and poll() on the admin thread; attach(), detach(),
// set_phase() and add_stats() while that stands still; add_counters(), live() and outstanding() on any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "controller/controller.h"
#include "controller/queue_host.h"
#include "engine/port.h"
#include "engine/stats.h"
#include "flashmob/config.h"

namespace flashmob::engine {

class IoServer {
 public:
  virtual ~IoServer() = default;

  // `interrupt` outlives detach(). Throws ConfigError.
  virtual void attach(controller::Controller& controller, const InterruptSink& interrupt) = 0;
  // Nothing of this controller's is touched when it returns. Of one that is not attached: nothing.
  virtual void detach(controller::Controller& controller) = 0;

  // As QueueHost::request(), of I/O queues and delete_all, with its answer.
  virtual nvme::Status request(controller::Controller& controller, const controller::QueueRequest& request,
                               bool& aborted) = 0;
  // As QueueHost has them; of a controller that is not attached: nothing.
  virtual void namespaces_changed(controller::Controller& controller) = 0;
  virtual void features_changed(controller::Controller& controller) = 0;

  // Raises interrupts and sees to whatever else is the host's; true if anything was done.
  virtual bool poll(std::uint64_t now_ns) = 0;
  // Virtual time: nobody rings before now_ns.
  virtual void note_quiet(std::uint64_t /*now_ns*/) {}
  // When poll() is needed next; UINT64_MAX while only a doorbell can bring work.
  virtual std::uint64_t deadline_ns() const = 0;

  // Everything completed before this returns counts to the phase before.
  virtual void set_phase(Phase phase) = 0;
  virtual void add_stats(Phase phase, FidelityStats& sum) = 0;
  virtual void add_counters(const controller::Controller& controller, controller::IoCounters& sum) = 0;
  virtual LiveFigures live() = 0;
  virtual std::uint64_t outstanding() = 0;
};

using IoServerMaker = std::function<std::unique_ptr<IoServer>(const DeviceConfig& config, const Clock& clock)>;

// Before the first engine of that kind is made; for the thread that sets the program up.
void register_io_server(const std::string& kind, IoServerMaker maker);
// nullptr for "host". Throws ConfigError, also where nobody has registered the kind.
std::unique_ptr<IoServer> make_io_server(const DeviceConfig& config, const Clock& clock);

}  // namespace flashmob::engine
