// A GPU engine with an SSD's media and namespaces and without a controller: for applications that bring their queues
// themselves (gpu_socket_server.h). Each of them is one of the engine's controllers, with memory of its own.
//
// For one host thread.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "controller/subsystem.h"
#include "flashmob/config.h"
#include "host/engine/device_engine.h"
#include "host/engine/engine_machine.h"
#include "host/engine/kernel_pace.h"
#include "vfio/peer_memory.h"

namespace flashmob::gpu {

class ServedEngine {
 public:
  using MachineMaker = std::function<std::unique_ptr<EngineMachine>(const DeviceConfig&, const Clock&)>;

  // Opens the media and starts the kernel. `clock` outlives the engine. Throws ConfigError or CudaError.
  ServedEngine(const DeviceConfig& config, const Clock& clock, std::uint32_t controllers,
               const MachineMaker& make_machine);
  // Ends the kernel, whatever is in flight; written data are in the media then.
  ~ServedEngine();
  ServedEngine(const ServedEngine&) = delete;
  ServedEngine& operator=(const ServedEngine&) = delete;

  const DeviceConfig& config() const { return config_; }
  DeviceEngine& engine() { return *engine_; }
  EngineMachine& machine() { return *machine_; }
  const std::vector<engine::DeviceNamespace>& namespaces() const { return namespaces_; }
  std::uint32_t most_queues() const { return config_.engine.sms * engine::kMaxQueuesPerUnit; }
  // Queue pairs that somebody is about to add; given back when they are closed and removed. Throws ConfigError.
  void reserve_queues(std::uint32_t count);
  void release_queues(std::uint32_t count) { reserved_queues_ -= count; }

  // What a client has given back: the GPU keeps it as long as the kernel runs, so its addresses must not become
  // others'. Throws ConfigError, before more is mapped, once that is as much as may be.
  void keep(vfio::PeerMemory file);
  void check_kept() const;

  // Publishes what was changed and waits until the kernel uses nothing older; false if it has gone down.
  bool settle();
  // Gives the kernel its time, where it needs that; true while it has anything to do.
  bool let_run();
  bool lost() const { return lost_; }
  const std::string& why_lost() const { return why_lost_; }  // empty: the kernel does not say

 private:
  struct Media {
    std::byte* host;
    std::byte* place;
    std::uint64_t bytes;
  };
  void open_media();
  std::byte* place_media(std::byte* host, std::uint64_t bytes);
  void return_media();
  void lose(const std::exception& error);

  const DeviceConfig config_;
  const Clock& clock_;
  controller::Subsystem subsystem_;
  std::unique_ptr<EngineMachine> machine_;  // before the engine, which uses its memory
  std::unique_ptr<DeviceEngine> engine_;
  std::vector<engine::DeviceNamespace> namespaces_;
  std::vector<Media> media_;
  std::uint32_t reserved_queues_ = 0;
  std::vector<vfio::PeerMemory> kept_;  // given back before the machine is
  KernelPace pace_;
  bool lost_ = false;
  std::string why_lost_;
};

}  // namespace flashmob::gpu
