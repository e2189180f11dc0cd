// The GPU engine from the host's side: its memory, the tables and queues that it works on, and how they are changed
// while it runs (engine/layout.h, Control).
//
// The kernel itself is launched by whoever has the device: EngineKernel with shape() and ref(). Until it has taken up a
// change (taken_up()), it may still use what was there before. Thread rule: one host thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "controller/queue_host.h"
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
  virtual void store_long(std::uint64_t* to, std::uint64_t value) = 0;
};

// For CPU backends: everything is host memory.
class HostEngineMemory final : public EngineMemory {
 public:
  void* allocate_device(std::size_t bytes) override { return allocate_shared(bytes); }
  void* allocate_shared(std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  std::uint32_t load_word(std::uint32_t* from) override;
  void store_word(std::uint32_t* to, std::uint32_t value) override;
  void store_long(std::uint64_t* to, std::uint64_t value) override;

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<void, Free>> held_;
};

struct DeviceEngineOptions {
  std::uint32_t units = 1;  // blocks, one on each of so many multiprocessors
  std::uint32_t movers = 6;  // warps of a unit that move data
  std::uint32_t slots = 16384;  // requests in flight in a unit; a power of two
  std::uint32_t controllers = 1;  // at once, 1...engine::kMaxControllers
  std::uint32_t longest_pause_ns = 100;
  // An idle warp looks for changes of the host's after so many ns of pauses.
  std::uint32_t look_every_ns = 5'000;
  std::uint64_t clock_start_ns = 0;  // of the lanes' clock: when it is now, on a GPU, whose clock counts from 1970
  bool rests = false;  // the kernel is let run (KernelPace): see note_quiet()
  // To compare with: fewer commands fetched at once (1...32), no account of its own truthfulness. Updates of the model
  // one by one are TimingConfig::per_request_updates.
  std::uint32_t fetch_batch = engine::kBatch;
  bool statistics = true;
  std::uint32_t trace_entries = 0;  // for tests and tools: requests that are recorded
};

// What the engine says went wrong (engine/layout.h, Fault).
struct EngineFault {
  nvme::Status status = nvme::Status::success;  // of a failed command
  std::uint32_t controller = 0;
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
};

// What the specification calls arbitration, of one controller.
struct EngineArbitration {
  bool weighted = false;
  std::uint32_t burst = engine::kBatch;  // most commands fetched from a queue at once
  std::uint8_t high_weight = 0, medium_weight = 0, low_weight = 0;  // 0's based
};

// For whoever gives the kernel its time: what the engine is about.
struct EngineActivity {
  std::uint64_t print = 0;  // changes whenever host or engine do anything
  bool moving = false;  // requests are with the movers
  std::uint64_t busy = 0;  // bit n: commands of controller n are in flight
};
static_assert(engine::kMaxControllers <= 64);

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

  // --- What a controller's commands may name; takes effect with the next commit(), which must be taken_up() before
  // another. Whoever has the engine gives controllers their numbers, and clears what one leaves behind. ---
  void set_namespaces(const std::vector<engine::DeviceNamespace>& namespaces, std::uint64_t max_transfer_bytes,
                      std::uint32_t max_nsid, std::uint32_t controller = 0);
  // Any order; regions that touch in both spaces become one. Throws ConfigError, and changes nothing then.
  void set_regions(std::vector<engine::Region> regions, std::uint32_t controller = 0);
  void set_arbitration(const EngineArbitration& rule, std::uint32_t controller = 0);

  // --- Queues; likewise. CQs go round the units, an SQ goes where its CQ is. False if a unit is full. ---
  bool add_cq(nvme::Cqe* ring, std::uint32_t entries, std::uint32_t* doorbell, bool host_looks, Queue& out,
              std::uint32_t controller = 0);
  bool add_sq(const nvme::Sqe* ring, std::uint32_t entries, std::uint32_t* doorbell, std::uint16_t sqid, Queue cq,
              Queue& out, std::uint32_t controller = 0,
              controller::QueuePriority priority = controller::QueuePriority::medium);
  // Nothing more is fetched from it; closed() when all that was fetched is completed, or dropped.
  // Draining, dropping or cancelling (engine/layout.h).
  void close_sq(Queue sq, engine::QueueState how);
  bool closed(Queue sq) const;
  // Nobody asks for it any more: its place may be another's as soon as it is closed.
  void remove_sq(Queue sq);
  void remove_cq(Queue cq);
  // Has one command ended with Command Abort Requested, if it waits for its target; takes effect with commit(), and
  // aborted() says how it went. One at a time, finish_abort() after each.
  void abort(Queue sq, std::uint16_t cid);
  engine::Abort aborted() const;
  void finish_abort();

  // Forgets all load of the timing model. While no queue is open.
  void reset_model();
  // Of a kernel that rests: nobody rings a doorbell before this time of the lanes' clock.
  void note_quiet(std::uint64_t now_ns);
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
  // Of all controllers that have had this number; busy_ns stays 0.
  controller::IoCounters counts(std::uint32_t controller) const;
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
  static constexpr std::uint32_t kMaxRegions = 4096;  // of a controller
  static constexpr std::uint32_t kMaxNamespaces = 256;  // likewise
  static constexpr std::uint32_t kUrgentCommands = 1024;  // that one pass may take before it looks at doorbells again

  template <class T>
  T* make_device(std::size_t count);
  template <class T>
  T* make_shared(std::size_t count);
  template <class T>
  void put(T* to, const T& value) {
    memory_.copy(to, &value, sizeof(T));
  }

  // What the device is told of a controller, and of a unit's queues; each is written into both copies, one commit after
  // the other.
  struct Port {
    std::vector<engine::Region> regions;
    std::vector<engine::DeviceNamespace> namespaces;
    engine::Tables tables[2] = {};  // as they are on the device
    std::uint64_t max_transfer_bytes = 0;
    std::uint32_t max_nsid = 0;
    EngineArbitration arbitration;
    bool stale[2] = {true, true};
  };
  struct SqNote {
    bool taken = false;  // until remove_sq(), so that whoever waits for closed() does not look at another's queue
    bool active = false;
    std::uint32_t controller = 0;
    controller::QueuePriority priority{};
  };
  struct UnitNote {
    std::vector<bool> cq_taken;
    std::vector<SqNote> sqs;
    std::uint32_t sqs_used = 0;  // places below this have been taken
    std::uint32_t fetched_before = 0;  // by queues whose places others have taken
    bool stale[2] = {true, true};
  };
  // Writes one of the host's words (engine::Control).
  template <class T>
  void order(simt::Word<T, simt::Scope::system> engine::Control::* word, T value) {
    T* const to = &(ref_.control->*word).value;
    if constexpr (sizeof(T) == sizeof(std::uint64_t))
      memory_.store_long(to, value);
    else
      memory_.store_word(reinterpret_cast<std::uint32_t*>(to), static_cast<std::uint32_t>(value));
  }
  void change(Port& port);
  void change(UnitNote& unit);
  void make_unit();
  void write_tables(std::uint32_t controller);
  void write_order(std::uint32_t unit);
  void add_arbiters(const UnitNote& unit, engine::QueueOrder& order) const;
  std::uint64_t lba_at(const Port& port, std::uint32_t nsid, std::uint64_t media) const;

  EngineMemory& memory_;
  DeviceEngineOptions options_;
  std::size_t model_words_;
  engine::EngineRef ref_{};
  std::vector<engine::Unit> units_;
  std::vector<Port> ports_;  // by controller
  std::vector<UnitNote> notes_;  // by unit
  unsigned current_copy_ = 0;
  std::uint32_t epoch_ = 0;
  bool changed_ = true;
  std::uint64_t faults_seen_ = 0;
  std::uint32_t next_unit_ = 0;
};

}  // namespace flashmob::gpu
