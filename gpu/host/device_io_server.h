// The GPU engine behind a controller: its I/O queues, memory regions and namespaces go to a DeviceEngine, which runs on
// a GPU or, without one, on fibres (host/engine_machine.h). Admin queues stay with the host engine's unit.
//
// One controller at a time. Interrupts are raised by the host, which looks at completion rings for new entries; failed
// commands reach the error log, and invalid doorbells the event queue, in the same rounds.
// Thread rule: as engine::IoServer has it; regions come and go on any thread. A mutex inside, held while the kernel
// takes up a change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "controller/controller.h"
#include "engine/io_server.h"
#include "flashmob/config.h"
#include "host/device_engine.h"
#include "host/engine_machine.h"
#include "memory/address_space.h"

namespace flashmob::gpu {

class DeviceIoServer final : public flashmob::engine::IoServer {
 public:
  using MachineMaker = std::function<std::unique_ptr<EngineMachine>(const DeviceConfig&, const Clock&)>;

  // `clock` outlives the server.
  DeviceIoServer(const DeviceConfig& config, const Clock& clock, MachineMaker make_machine = make_engine_machine);
  ~DeviceIoServer() override;

  void attach(controller::Controller& controller, const flashmob::engine::InterruptSink& interrupt) override;
  void detach(controller::Controller& controller) override;
  nvme::Status request(controller::Controller& controller, const controller::QueueRequest& request,
                       bool& aborted) override;
  void namespaces_changed(controller::Controller& controller) override;
  bool poll(std::uint64_t now_ns) override;
  std::uint64_t deadline_ns() const override;
  void set_phase(flashmob::engine::Phase phase) override;
  void add_stats(flashmob::engine::Phase phase, flashmob::engine::FidelityStats& sum) override;
  void add_counters(const controller::Controller& controller, controller::IoCounters& sum) override;
  flashmob::engine::LiveFigures live() override;
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

  // Where the kernel finds a namespace's bytes.
  struct GpuMedia {
    std::byte* place = nullptr;  // engine.gpu_media = host: where the host has them
    std::uint64_t bytes = 0;
    bool pinned = false;  // by us
    const command_set::Namespace* holds = nullptr;  // as it was when its bytes were copied there
  };

  // All with the mutex held.
  void start(controller::Controller& controller, const flashmob::engine::InterruptSink& interrupt);
  void leave();
  nvme::Status create_cq(const controller::CqSpec& spec);
  nvme::Status create_sq(const controller::SqSpec& spec);
  nvme::Status delete_sq(std::uint16_t sqid);
  nvme::Status delete_cq(std::uint16_t cqid);
  void delete_all();
  bool abort(std::uint16_t sqid, std::uint16_t cid);
  std::byte* translate(std::uint64_t iova, std::uint64_t bytes, bool for_write);
  void close_queues(engine::QueueState how, const std::function<bool(const Sq&)>& which);
  void take_regions(const std::vector<memory::Region>& regions);
  void share_regions(const std::vector<memory::Region>& regions);
  void unshare_regions(const std::vector<memory::Region>* still_there);
  void publish_namespaces();
  std::byte* media_of(const command_set::Namespace& ns);
  void upload_media();
  void return_media();
  void end_kernel();
  // Publishes what was changed and waits until the kernel uses nothing older; false if it has gone down.
  bool settle();
  bool wait_until(const std::function<bool()>& done);
  bool let_run(std::uint64_t now_ns);
  bool look_for_completions(std::uint64_t now_ns);
  bool take_faults();

  const DeviceConfig config_;
  const Clock& clock_;
  const MachineMaker make_machine_;
  mutable std::mutex mutex_;
  controller::Controller* controller_ = nullptr;  // nullptr: nobody is attached
  const flashmob::engine::InterruptSink* interrupt_ = nullptr;
  std::unique_ptr<memory::AddressSpace::Reader> reader_;
  std::unique_ptr<EngineMachine> machine_;  // before the engine, which uses its memory
  std::unique_ptr<DeviceEngine> engine_;  // stays when the controller leaves, for its statistics
  bool launched_ = false;
  bool lost_ = false;  // the kernel has gone down
  unsigned phase_ = 0;
  std::map<std::uint16_t, Cq> cqs_;
  std::map<std::uint16_t, Sq> sqs_;
  std::vector<memory::Region> shared_;  // regions that a GPU has been given
  bool doorbells_shared_ = false;
  std::map<std::byte*, GpuMedia> gpu_media_;  // by the host's address
  std::vector<std::uint16_t> due_vectors_;
  std::uint64_t interrupt_deadline_ns_ = UINT64_MAX;
  std::uint64_t busy_ns_ = 0;  // with commands in flight; known where the kernel runs when it is let

  // The pace of a kernel that runs when it is let: it rests while nothing changes and no target comes up.
  std::uint64_t last_run_ns_ = 0;
  std::uint64_t print_ = 0;
  std::uint64_t quiet_ns_ = 0;
  std::uint64_t due_ns_ = UINT64_MAX;
};

}  // namespace flashmob::gpu
