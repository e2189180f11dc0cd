// The GPU engine behind the controllers of a subsystem: their I/O queues, memory regions and namespaces go to a
// DeviceEngine, which runs on a GPU or, without one, on fibres (host/engine/engine_machine.h), while there is a
// controller. Admin queues stay with the host engine's unit.
//
// Each controller has a number in the engine, and what its commands may name is what it has mapped and attached itself.
// Interrupts are raised by the host, which looks at completion rings for new entries; failed commands reach the error
// log of their controller, and invalid doorbells its event queue, in the same rounds.
// Thread rule: as engine::IoServer has it; regions come and go on any thread. A mutex inside, held while the kernel
// takes up a change.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "controller/controller.h"
#include "engine/io_server.h"
#include "flashmob/config.h"
#include "host/engine/device_engine.h"
#include "host/engine/engine_machine.h"
#include "host/engine/kernel_pace.h"
#include "memory/address_space.h"

namespace flashmob::gpu {

class DeviceIoServer final : public flashmob::engine::IoServer {
 public:
  using MachineMaker = std::function<std::unique_ptr<EngineMachine>(const DeviceConfig&, const Clock&)>;

  // `clock` outlives the server.
  DeviceIoServer(const DeviceConfig& config, const Clock& clock, MachineMaker make_machine = make_engine_machine);
  ~DeviceIoServer() override;

  void attach(controller::Controller& controller, const flashmob::engine::InterruptSink& interrupt) override;
  void detach(std::span<controller::Controller* const> controllers) override;
  nvme::Status request(controller::Controller& controller, const controller::QueueRequest& request,
                       bool& aborted) override;
  void namespaces_changed(controller::Controller& controller) override;
  void features_changed(controller::Controller& controller) override;
  bool knows(const media::Media& /*media*/) override { return true; }  // it has made the media its device's
  bool poll(std::uint64_t now_ns) override;
  void note_quiet(std::uint64_t now_ns) override;
  std::uint64_t deadline_ns() const override;
  void set_phase(flashmob::engine::Phase phase) override;
  void add_stats(flashmob::engine::Phase phase, flashmob::engine::FidelityStats& sum) override;
  void add_counters(const controller::Controller& controller, controller::IoCounters& sum) override;
  void add_live(flashmob::engine::LiveFigures& sum) override;
  std::uint64_t outstanding() override;

 private:
  struct Cq {
    controller::CqSpec spec{};
    DeviceEngine::Queue queue;
    nvme::Cqe* ring = nullptr;
    // Where the host looks for new entries, for interrupts.
    std::uint32_t head = 0;
    std::uint16_t phase = 1;
    std::uint32_t coalesced = 0;  // entries since the last interrupt
    std::uint64_t coalescing_since_ns = 0;
  };
  struct Sq {
    controller::SqSpec spec{};
    DeviceEngine::Queue queue;
    const nvme::Sqe* ring = nullptr;
    bool open = true;  // false: its ring's memory has gone, and the queue with it
  };

  // A controller that is attached.
  struct Port {
    Port(controller::Controller& c, const flashmob::engine::InterruptSink& sink, std::uint32_t place)
        : controller(c), interrupt(sink), number(place), reader(c.address_space()) {}

    controller::Controller& controller;
    const flashmob::engine::InterruptSink& interrupt;
    const std::uint32_t number;  // in the engine
    memory::AddressSpace::Reader reader;
    std::map<std::uint16_t, Cq> cqs;
    std::map<std::uint16_t, Sq> sqs;
    std::vector<memory::Region> regions;  // as the engine knows them
    controller::Arbitration arbitration;  // likewise
    bool doorbells_shared = false;
    controller::IoCounters before;  // what others have done under this number
    std::uint64_t busy_ns = 0;  // with commands in flight; known where the kernel runs when it is let
    std::vector<std::uint16_t> due_vectors;
  };

  // Where the kernel finds a namespace's bytes.
  struct GpuMedia {
    std::byte* place = nullptr;  // engine.gpu_media = host: where the host has them
    std::uint64_t bytes = 0;
    const command_set::Namespace* holds = nullptr;  // as it was when its bytes were copied there
  };

  // All with the mutex held.
  Port* find(const controller::Controller& controller);
  std::uint32_t free_number() const;
  void start(Port& port);
  void join(Port& port);
  void leave(controller::Controller& controller);
  void remove(Port& port);
  void stop();
  nvme::Status create_cq(Port& port, const controller::CqSpec& spec);
  nvme::Status create_sq(Port& port, const controller::SqSpec& spec);
  nvme::Status delete_sq(Port& port, std::uint16_t sqid);
  nvme::Status delete_cq(Port& port, std::uint16_t cqid);
  void delete_all(Port& port);
  bool abort(Port& port, std::uint16_t sqid, std::uint16_t cid);
  void close_queues(Port& port, engine::QueueState how, const std::function<bool(const Sq&)>& which);
  bool take_arbitration(Port& port);
  // Publishes what was changed and waits until the kernel uses nothing older; false if it has gone down.
  bool settle();
  bool wait_until(const std::function<bool()>& done);

  // device_io_server_memory.cpp
  void take_regions(Port& port, const std::vector<memory::Region>& regions);
  void publish_namespaces(Port& port);
  std::byte* media_of(const command_set::Namespace& ns);
  void upload_media(Port& port);
  void return_media();

  // device_io_server_poll.cpp
  bool let_run(std::uint64_t now_ns);
  bool look_for_completions(Port& port, std::uint64_t now_ns);
  bool take_faults();

  const DeviceConfig config_;
  const Clock& clock_;
  const MachineMaker make_machine_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Port>> ports_;  // changed while the admin thread stands still
  std::unique_ptr<EngineMachine> machine_;  // before the engine, which uses its memory
  std::unique_ptr<DeviceEngine> engine_;  // nullptr while nobody is attached
  bool launched_ = false;
  bool lost_ = false;  // the kernel has gone down
  unsigned phase_ = 0;
  std::map<std::byte*, GpuMedia> gpu_media_;  // by the host's address
  std::uint64_t interrupt_deadline_ns_ = UINT64_MAX;
  // Of kernels that have ended.
  std::array<flashmob::engine::FidelityStats, engine::kFidelityPhases> past_;
  flashmob::engine::LiveFigures past_live_{};

  // Of a kernel that runs when it is let.
  KernelPace pace_;
  bool rests_ = false;
  std::uint64_t last_poll_ns_ = 0;
};

}  // namespace flashmob::gpu
