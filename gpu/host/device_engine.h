// The GPU engine from the host's side: its memory, the tables and queues that it works on, and how they are changed
// while it runs (engine/layout.h, Control).
//
// The kernel itself is launched by whoever has the device: EngineKernel with shape() and ref(). Until it has taken up a
// change (taken_up()), it may still use what was there before. Thread rule: one host thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/stats.h"
#include "flashmob/config.h"
#include "flashmob/gpu/engine/kernel.h"
#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/simt/vocabulary.h"

namespace flashmob::gpu {

// Where the engine's memory comes from. Zeroed, at the same address for host and device where both see it.
class EngineMemory {
 public:
  virtual ~EngineMemory() = default;
  virtual void* allocate_device(std::size_t bytes) = 0;  // the host reaches it by copies only
  virtual void* allocate_shared(std::size_t bytes) = 0;  // both see it at once
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
};

// For CPU backends: everything is host memory.
class HostEngineMemory final : public EngineMemory {
 public:
  void* allocate_device(std::size_t bytes) override { return allocate_shared(bytes); }
  void* allocate_shared(std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;

 private:
  struct alignas(128) Line {
    std::byte bytes[128];
  };
  std::vector<std::unique_ptr<Line[]>> held_;
};

struct DeviceEngineOptions {
  std::uint32_t units = 1;  // blocks, one on each of so many multiprocessors
  std::uint32_t movers = 6;  // warps of a unit that move data
  std::uint32_t slots = 16384;  // requests in flight in a unit; a power of two
  std::uint32_t longest_pause_ns = 100;
  std::uint32_t trace_entries = 0;  // for tests and tools: requests that are recorded
};

class DeviceEngine {
 public:
  struct Queue {
    std::uint32_t unit = 0;
    std::uint32_t index = 0;
  };

  // `memory` outlives the engine. Throws ConfigError.
  DeviceEngine(EngineMemory& memory, const TimingConfig& timing, const DeviceEngineOptions& options);
  DeviceEngine(const DeviceEngine&) = delete;
  DeviceEngine& operator=(const DeviceEngine&) = delete;

  engine::EngineRef ref() const { return ref_; }
  simt::Shape shape() const;

  // --- What commands may name; takes effect with the next commit(), which must be taken_up() before another. ---
  void set_namespaces(const std::vector<engine::DeviceNamespace>& namespaces, std::uint64_t max_transfer_bytes,
                      std::uint32_t max_nsid);
  // Any order; regions that touch in both spaces become one.
  void set_regions(std::vector<engine::Region> regions);

  // --- Queues; likewise. CQs go round the units, an SQ goes where its CQ is. False if a unit is full. ---
  bool add_cq(nvme::Cqe* ring, std::uint32_t entries, std::uint32_t* doorbell, bool host_looks, Queue& out);
  bool add_sq(const nvme::Sqe* ring, std::uint32_t entries, std::uint32_t* doorbell, std::uint16_t sqid, Queue cq,
              Queue& out);
  // Nothing more is fetched from it; closed() when all that was fetched is completed, or dropped.
  void close_sq(Queue sq, bool drop);
  bool closed(Queue sq) const;
  void remove_cq(Queue cq);

  void set_phase(unsigned phase);
  void end(engine::Run how);
  // Publishes what was changed; returns its number.
  std::uint32_t commit();
  // True when every warp of the running kernel works with what commit() number `epoch` has published.
  bool taken_up(std::uint32_t epoch) const;

  // While the kernel is not running, or of a phase that is over.
  flashmob::engine::FidelityStats fidelity(unsigned phase) const;
  std::vector<engine::TraceEntry> trace() const;

 private:
  template <class T>
  T* make_device(std::size_t count);
  template <class T>
  T* make_shared(std::size_t count);
  template <class T>
  void put(T* to, const T& value) {
    memory_.copy(to, &value, sizeof(T));
  }

  EngineMemory& memory_;
  DeviceEngineOptions options_;
  engine::EngineRef ref_{};
  std::vector<engine::Unit> units_;
  engine::Tables tables_[2] = {};  // the host's copies
  engine::Tables* device_tables_ = nullptr;
  unsigned current_tables_ = 0;
  bool tables_changed_ = false;
  std::vector<engine::Region> regions_;
  std::vector<engine::DeviceNamespace> namespaces_;
  std::uint64_t max_transfer_bytes_ = 0;
  std::uint32_t max_nsid_ = 0;
  std::vector<std::vector<bool>> cq_taken_;  // by unit
  std::uint32_t next_unit_ = 0;
};

}  // namespace flashmob::gpu
