// libFuzzer target: a hostile client of a gpu-socket. In the kernel's place stands a machine that takes up what the
// host publishes at once, and touches what a kernel would touch: the doorbells and the rings of every open queue. (The
// kernel itself: gpu_socket_kernel_fuzz.)
#include <algorithm>
#include <atomic>

#include "flashmob/gpu/engine/layout.h"
#include "fuzz/gpu_socket_client.h"

namespace flashmob::gpu {
namespace {

class HastyMachine final : public EngineMachine {
 public:
  EngineMemory& memory() override { return memory_; }
  DeviceEngineOptions options(const EngineConfig& config) const override {
    return {.units = config.sms, .movers = 1, .slots = 64};
  }
  void launch(const DeviceEngine& engine) override {
    ref_ = engine.ref();
    shape_ = engine.shape();
  }
  void join() override {}
  bool step(std::uint64_t) override {
    serve();
    // Last, as a kernel does: what is older is used no more.
    const std::uint32_t epoch = ref_.control->epoch.value;
    for (std::uint32_t warp = 0; warp < shape_.blocks * (shape_.block_threads / simt::kWarpLanes); ++warp)
      ref_.answers->warps[warp].value = epoch;
    return true;
  }
  bool runs_by_itself() const override { return false; }
  void share(void*, std::size_t) override {}
  void unshare(void*, std::size_t) override {}
  void* import(const simt::CudaMemoryHandle&) override { throw ConfigError("there is no GPU here: share a file"); }
  void close_import(void*) override {}

 private:
  // Answers what the doorbells show, with errors; a queue that is to go is gone.
  void serve() {
    const engine::Unit& unit = ref_.units[0];
    const engine::QueueOrder& order = unit.orders[ref_.control->tables.value];
    for (std::uint32_t index = 0; index < engine::kMaxQueuesPerUnit; ++index) {
      engine::QueueState& state = unit.states[index].value;
      if (state == engine::QueueState::absent) continue;
      if (state != engine::QueueState::active) {
        state = engine::QueueState::absent;
        continue;
      }
      const bool is_open = std::find(order.queues, order.queues + order.places, index) != order.queues + order.places;
      if (is_open) answer(unit, unit.sqs[index]);
    }
  }
  static void answer(const engine::Unit& unit, engine::DeviceSq& sq) {
    const std::uint32_t tail = std::atomic_ref(*sq.doorbell).load(std::memory_order_acquire);
    engine::DeviceCq& cq = unit.cqs[sq.cq];
    while (tail < sq.entries && sq.head.value != tail) {
      const std::uint32_t seen = std::atomic_ref(*cq.doorbell).load(std::memory_order_acquire);
      if ((cq.tail + 1) % cq.entries == seen) return;
      nvme::Cqe cqe{};
      cqe.cid = sq.ring[sq.head.value].cid;
      cqe.sqid = sq.sqid;
      cqe.status_phase = static_cast<std::uint16_t>(2 | cq.phase);
      cq.ring[cq.tail] = cqe;
      sq.head.value = (sq.head.value + 1) % sq.entries;
      cq.tail = (cq.tail + 1) % cq.entries;
      cq.phase ^= cq.tail == 0 ? 1 : 0;
    }
  }

  HostEngineMemory memory_;
  engine::EngineRef ref_{};
  simt::Shape shape_{};
};

std::unique_ptr<EngineMachine> make_hasty_machine(const DeviceConfig&, const Clock&) {
  return std::make_unique<HastyMachine>();
}

}  // namespace
}  // namespace flashmob::gpu

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static flashmob::gpu::fuzz::Server server(flashmob::gpu::make_hasty_machine);
  if (size != 0) flashmob::gpu::fuzz::play(server, data, size);
  return 0;
}
