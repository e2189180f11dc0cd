// Who serves queues: the host's service units (engine/host_units.h), which always have the admin queues, and, where
// engine.kind says so, another in their place for I/O queues: an engine on a GPU. The engine hands each queue to its
// server and asks all of them alike.
//
// This room may not know the one that has another, so that one registers itself under the value of engine.kind.
// Thread rule: request(), namespaces_changed(), features_changed(), knows(), end_commands() and poll() on the admin
// thread; attach(), detach(), set_phase(), add_stats(), add_copies() and outstanding() while that stands still;
// add_counters() and add_live() on any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "controller/controller.h"
#include "controller/queue_host.h"
#include "engine/copy_engine.h"
#include "engine/port.h"
#include "engine/stats.h"
#include "flashmob/config.h"

namespace flashmob::engine {

class IoServer {
 public:
  virtual ~IoServer() = default;

  // `interrupt` outlives detach(). Throws ConfigError.
  virtual void attach(controller::Controller& controller, const InterruptSink& interrupt) = 0;
  // Nothing of these controllers' is touched when it returns. Of one that is not attached: nothing.
  virtual void detach(std::span<controller::Controller* const> controllers) = 0;

  // As QueueHost::request(), of the queues that are this server's, and delete_all of these, with its answer.
  virtual nvme::Status request(controller::Controller& controller, const controller::QueueRequest& request,
                               bool& aborted) = 0;
  // As QueueHost has them; of a controller that is not attached: nothing.
  virtual void namespaces_changed(controller::Controller& /*controller*/) {}
  virtual void features_changed(controller::Controller& controller) = 0;
  virtual bool knows(const media::Media& media) = 0;
  virtual void end_commands(const command_set::Namespace&, nvme::Status, controller::CommandsToEnd) {}

  // Of a server without threads of its own: raises interrupts and sees to whatever else is the host's; true if anything
  // was done. And when that is needed next; UINT64_MAX while only a doorbell can bring work.
  virtual bool poll(std::uint64_t /*now_ns*/) { return false; }
  virtual std::uint64_t deadline_ns() const { return UINT64_MAX; }
  // Virtual time: nobody rings before now_ns.
  virtual void note_quiet(std::uint64_t now_ns) = 0;

  // Everything completed before this returns counts to the phase before.
  virtual void set_phase(Phase phase) = 0;
  virtual void add_stats(Phase phase, FidelityStats& sum) = 0;
  virtual void add_copies(CopyReport& /*sum*/) {}
  virtual void add_counters(const controller::Controller& controller, controller::IoCounters& sum) = 0;
  virtual void add_live(LiveFigures& sum) = 0;
  virtual std::uint64_t outstanding() = 0;
};

using IoServerMaker = std::function<std::unique_ptr<IoServer>(const DeviceConfig& config, const Clock& clock)>;

// Before the first engine of that kind is made; for the thread that sets the program up. The kind's limits are declared
// besides (command_set/engine_limits.h).
void register_io_server(const std::string& kind, IoServerMaker maker);
// nullptr for "host", whose units serve I/O queues, too. Throws ConfigError.
std::unique_ptr<IoServer> make_io_server(const DeviceConfig& config, const Clock& clock);

}  // namespace flashmob::engine
