// An application's queues on a GPU engine: of this process (an arena of QueueArena's, say), or of another one whose
// memory this process has mapped (gpu_socket_session.h). Commands name addresses as the application sees them; the
// engine reaches the same memory at its own.
//
// Two processes' kernels run side by side under MPS only; else the GPU gives each its turn, and times mean nothing.
// Thread rule: as DeviceEngine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashmob/gpu/queue_arena.h"
#include "host/engine/device_engine.h"

namespace flashmob::gpu {

// One queue pair, at the engine's addresses.
struct EngineQueue {
  const nvme::Sqe* sq = nullptr;
  nvme::Cqe* cq = nullptr;
  std::uint32_t* sq_doorbell = nullptr;
  std::uint32_t* cq_doorbell = nullptr;
  std::uint32_t entries = 0;
  bool host_looks = false;  // for completions, not kernels alone
};

// All queues of an arena, as the engine sees it.
std::vector<EngineQueue> queues_of(const QueueArena& arena);
// The memory of `arena`, which commands name from `iova` on, for DeviceEngine::set_regions().
engine::Region region_of(const QueueArena& arena, std::uint64_t iova);

class QueueAttachment {
 public:
  // Adds every queue pair for one of the engine's controllers; in effect with the engine's next commit(). Throws
  // ConfigError, with nothing added, if the engine's units have no room.
  QueueAttachment(DeviceEngine& engine, std::span<const EngineQueue> queues, std::uint32_t controller = 0);
  // Nothing more is fetched, nothing more is posted, from the next commit() on; the memory is still used until
  // closed().
  void drop();
  bool closed() const;
  // After closed(): the engine may give the places to others.
  void remove();

  std::size_t size() const { return pairs_.size(); }

 private:
  struct Pair {
    DeviceEngine::Queue cq, sq;
  };
  DeviceEngine& engine_;
  std::vector<Pair> pairs_;
};

}  // namespace flashmob::gpu
