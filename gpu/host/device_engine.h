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
#include "nvme/status.h"

namespace flashmob::gpu {

// Where the engine's memory comes from. Zeroed, at the same address for host and device where both see it.
class EngineMemory {
 public:
  virtual ~EngineMemory() = default;
  virtual void* allocate_device(std::size_t bytes) = 0;  // the host reaches it by copies only
  virtual void* allocate_shared(std::size_t bytes) = 0;  // both see it at once
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // Words of either kind that kernels read and write at the same time.
  virtual std::uint32_t load_word(std::uint32_t* from) = 0;
  virtual void store_word(std::uint32_t* to, std::uint32_t value) = 0;
};

// For CPU backends: everything is host memory.
class HostEngineMemory final : public EngineMemory {
 public:
  void* allocate_device(std::size_t bytes) override { return allocate_shared(bytes); }
  void* allocate_shared(std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  std::uint32_t load_word(std::uint32_t* from) override;
  void store_word(std::uint32_t* to, std::uint32_t value) override;

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
  // An idle warp looks for changes of the host's after so many ns of pauses: more often, and the warps of many units
  // together take the bus from the data.
  std::uint32_t look_every_ns = 5'000;
  std::uint64_t clock_start_ns = 0;  // of the lanes' clock: when it is now, on a GPU, whose clock counts from 1970
  // To compare with: fewer commands fetched at once (1...32), no account of its own truthfulness. Updates of the model
  // one by one are TimingConfig::per_request_updates.
  std::uint32_t fetch_batch = engine::kBatch;
  bool statistics = true;
  std::uint32_t trace_entries = 0;  // for tests and tools: requests that are recorded
};

// What the engine says went wrong (engine/layout.h, Fault).
struct EngineFault {
  nvme::Status status = nvme::Status::success;  // of a failed command
  bool bad_doorbell = false;  // nothing else of this is set then
  std::uint16_t sqid = 0;
  std::uint16_t cid = 0;
  std::uint32_t nsid = 0;
  std::uint64_t lba = 0;
};

// Sums over all units and phases.
struct EngineTotals {
  std::uint64_t completions = 0;
  std::uint64_t lateness_sum_ns = 0;
  std::uint64_t read_commands = 0, write_commands = 0, read_bytes = 0, written_bytes = 0;
};

// For whoever gives the kernel its time: what the engine is about.
struct EngineActivity {
  std::uint64_t print = 0;  // changes whenever host or engine do anything
  bool moving = false;  // requests are with the movers
  std::uint64_t in_flight = 0;
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
  // Draining, dropping or cancelling (engine/layout.h).
  void close_sq(Queue sq, engine::QueueState how);
  bool closed(Queue sq) const;
  void remove_cq(Queue cq);
  // Has one command ended with Command Abort Requested, if it waits for its target; takes effect with commit(), and
  // aborted() says how it went. One at a time, finish_abort() after each.
  void abort(Queue sq, std::uint16_t cid);
  engine::Abort aborted() const;
  void finish_abort();

  void set_phase(unsigned phase);
  void end(engine::Run how);
  // Publishes what was changed; returns its number.
  std::uint32_t commit();
  // True when every warp of the running kernel works with what commit() number `epoch` has published.
  bool taken_up(std::uint32_t epoch) const;

  // Faults since the last call, the latest engine::kFaults of them.
  std::vector<EngineFault> take_faults();
  // Of all phases, as far as the kernel has added it up: while it runs, too.
  EngineTotals totals() const;
  // Commands fetched and not completed.
  std::uint64_t in_flight() const;

  // --- Where the host sees the device's memory, on CPU backends ---
  EngineActivity activity() const;
  // When the next request will be posted that waits for its time now; UINT64_MAX if none does.
  std::uint64_t next_due_ns(std::uint64_t now_ns) const;

  // While the kernel is not running, or of a phase that is over.
  flashmob::engine::FidelityStats fidelity(unsigned phase) const;
  std::vector<engine::TraceEntry> trace() const;

 private:
  template <class T>
  T* make_device(std::size_t count);
  template <class T>
  T* make_shared(std::size_t count);
  std::uint64_t lba_at(std::uint32_t nsid, std::uint64_t media) const;
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
  std::vector<std::uint32_t> sqs_used_;  // by unit: places below this have been taken
  std::vector<std::uint32_t> fetched_before_;  // by unit: by queues whose places others have taken
  std::uint32_t faults_seen_ = 0;
  std::uint32_t next_unit_ = 0;
};

}  // namespace flashmob::gpu
