// What the GPU engine keeps in memory: queues, requests, the rings between its warps, and the words through which the
// host steers it. Plain data, made by the host (gpu/host/engine/device_engine.h) in memory that the GPU sees.
//
// A service unit is one block of threads: warp 0 dispatches, warp 1 completes, the others move data. Units share the
// timing model and nothing else.
//
//     doorbells, SQ rings ─► dispatcher ─► work ring ─► movers ─► ready ring ─► completer ─► CQ rings
//                                ▲                                                  │
//                                └──────────────── ring of free slots ◄─────────────┘
//
// A unit has `slots` requests and each ring has room for all of them, so that no ring is ever full. Compiles as CUDA
// device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/arbitration.h"
#include "base/doorbell_watch.h"
#include "base/platform.h"
#include "command_set/namespace_shape.h"
#include "flashmob/gpu/engine/device_atomics.h"
#include "flashmob/gpu/simt/word.h"
#include "nvme/command.h"
#include "timing/simple.h"

namespace flashmob::gpu::engine {

using Slot = std::uint32_t;
inline constexpr Slot kNoSlot = 0xFFFFFFFFu;

inline constexpr std::uint32_t kBatch = simt::kWarpLanes;  // commands fetched at once: one per lane
inline constexpr std::uint32_t kMaxQueuesPerUnit = 256;
inline constexpr std::uint32_t kMaxControllers = 64;  // of the subsystem, at once; each is a place in the tables
inline constexpr std::uint64_t kPageBytes = 4096;  // CC.MPS = 0
// PRP1 and one page for each lane.
inline constexpr std::uint64_t kMaxTransferBytes = simt::kWarpLanes * kPageBytes;

// The timing wheel: a request is posted when the clock has left the bucket of its target, so up to one bucket late.
inline constexpr unsigned kWheelShift = 7;  // 128 ns
inline constexpr std::uint32_t kWheelBuckets = 1024;
// What lies beyond its buckets: lists of so many buckets' time each (engine/wheel.h).
inline constexpr unsigned kLaterShift = 9;
inline constexpr std::uint32_t kLaterLists = 64;

enum class QueueState : std::uint32_t {
  absent,
  active,
  draining,  // nothing more is fetched; what was fetched completes at its target, then it is absent
  dropping,  // likewise, but no completion is posted
  cancelling,  // likewise at once: what still waits is posted as aborted, as far as there is room for it
};

using QueueStateWord = simt::Word<QueueState, simt::Scope::system>;

// A submission queue. The host fills in an absent one and makes it active; the device makes it absent again.
struct DeviceSq {
  const nvme::Sqe* ring;
  std::uint32_t* doorbell;
  std::uint32_t entries;
  std::uint16_t sqid;
  std::uint16_t cq;                    // index in the unit's table
  std::uint8_t controller;             // whose memory and namespaces its commands name
  simt::Word<std::uint32_t> head;      // of the dispatcher, shown to the host in each completion
  simt::Word<std::uint32_t> fetched;   // commands, ever
  simt::Word<std::uint32_t> finished;  // of those: posted or dropped
  std::uint32_t bad_tail;              // of the dispatcher: last invalid doorbell value, so that it is reported once
  DoorbellWatch watch;                 // of the dispatcher, while it takes up a change
};

struct DeviceCq {
  nvme::Cqe* ring;
  std::uint32_t* doorbell;
  std::uint32_t entries;
  // Of the completer.
  std::uint32_t tail;
  std::uint32_t head;  // last head seen
  std::uint32_t phase;
  bool host_looks;  // for completions, not only the GPU: they are released at the system's scope
  std::uint8_t controller;
  std::uint32_t bad_head;  // last invalid doorbell value, so that it is reported once
};

// A namespace as device code needs it. `media` is memory that the GPU reaches: its own, or pinned host memory.
struct DeviceNamespace : command_set::NamespaceShape {
  bool writable;
};

// Memory that commands may name: sorted by address, disjoint, and neighbours in both spaces are one.
struct Region {
  std::uint64_t iova;
  std::uint64_t bytes;
  std::byte* memory;
  bool writable;
};

// One controller as its commands meet it: nothing that another has mapped or attached can be named. What the host
// changes while the engine runs is in one of two copies; the other one is prepared meanwhile.
struct Tables {
  const Region* regions;
  const DeviceNamespace* namespaces;
  std::uint32_t region_count;
  std::uint32_t namespace_count;
  std::uint64_t max_transfer_bytes;
  std::uint32_t max_nsid;  // the highest that a controller can have
  std::uint32_t burst;     // Arbitration: most commands fetched from a queue at once, 1...kBatch
};

// The queues of one controller in one unit, by class. Under plain round robin all are in one.
struct Arbiter {
  PriorityClass classes[kPriorityClasses];
};

// In which order a dispatcher takes its unit's queues; in two copies, as Tables are.
struct QueueOrder {
  std::uint16_t queues[kMaxQueuesPerUnit];  // by place: index in the unit's table
  std::uint32_t places;                     // in use
  std::uint32_t indices;                    // of the unit's table: no queue has ever had this one or a later one
  // 0: queues are taken place after place. Otherwise controllers take turns, each by its own rules, and a class is a
  // run of places.
  std::uint32_t arbiter_count;
  Arbiter arbiters[kMaxControllers];
};

enum class Operation : std::uint8_t { nothing, read, write, compare, zero, deallocate, check_ranges };

struct alignas(64) Request {
  std::uint64_t target_ns;
  std::uint64_t fetched_ns;
  std::uint64_t prp1;   // of a command that was found wrong: its first block
  std::uint64_t prp2;
  std::byte* media;     // of ranges: the namespace's first byte
  std::uint32_t bytes;  // of ranges: how many
  Slot next;            // in the wheel
  std::uint16_t sq;     // index in the unit's table
  std::uint16_t cid;
  std::uint16_t status;  // status field without phase
  Operation operation;
  std::uint8_t controller;
  std::uint32_t trace;  // index of its TraceEntry
  std::uint32_t nsid;
};
static_assert(sizeof(Request) == 64);

// What a test or a tool sees of every request, in the order in which the model saw them.
struct TraceEntry {
  std::uint64_t fetched_ns;
  std::uint64_t target_ns;
  std::uint64_t posted_ns;
  nvme::Sqe sqe;
  std::uint16_t sqid;
  std::uint16_t status;
};

struct Trace {
  TraceEntry* entries = nullptr;  // nullptr: nothing is recorded
  std::uint32_t capacity = 0;
  simt::Word<std::uint32_t> count;  // may exceed the capacity
};

// What went wrong, for the host to take in: failed commands for its error log, and invalid doorbells. A few of the
// latest; who is slow misses some. The serial number is written last: one more than how many came before it.
inline constexpr std::uint32_t kFaults = 256;
inline constexpr std::uint32_t kBadDoorbell = 0xFFFFu;  // in place of a status
struct Fault {
  using Part = simt::Word<std::uint64_t, simt::Scope::system>;
  Part place;  // first block; of a command that was begun: address of its media
  Part who;    // namespace, then from bit 32 on submission queue, from bit 48 on command
  Part what;   // status field; bit 32: `place` is an address; from bit 40 on controller
  Part serial;
};
// A slot of a ring is empty as 0 and holds a slot number plus one.
struct Rings {
  Slot* free_slots;
  simt::Word<Slot>* work;
  simt::Word<Slot>* ready;
  // Each word in a line of its own: different warps write them.
  alignas(128) simt::Word<std::uint32_t> free_tail;  // of the completer
  alignas(128) simt::Word<std::uint32_t> work_tail;  // of the dispatcher
  alignas(128) simt::Word<std::uint32_t> work_head;  // of the movers
  alignas(128) simt::Word<std::uint32_t> ready_tail;
};

inline constexpr std::uint32_t kFidelityPhases = 3;  // as engine::Phase
// As base/histogram.h cuts it.
inline constexpr unsigned kHistogramSubBits = 7;
inline constexpr unsigned kHistogramMaxBits = 44;
inline constexpr std::uint32_t kHistogramBuckets = (kHistogramMaxBits - kHistogramSubBits + 1) << kHistogramSubBits;

// What one unit has done for one controller. A new controller in its place goes on counting.
struct DeviceCounts {
  simt::Word<std::uint64_t> read_commands, write_commands, read_bytes, written_bytes;
};

// The sums of one unit and phase. Apart from the distributions, because the host copies them often.
struct DeviceSums {
  using Count = simt::Word<std::uint64_t>;
  Count completions;
  Count target_sum_ns;
  Count lateness_sum_ns;
  Count lateness_max_ns;
  Count late_by_copy;  // due before their data had been moved
  Count wait_sum_ns;  // upper bound of doorbell to fetch
  Count fetches;
  Count left_behind;  // of these, did not take all that was there
  Count bad_doorbells;
};

// The engine's account of its own truthfulness, one for each unit and phase (engine/fidelity.h).
struct DeviceFidelity : DeviceSums {
  Count target_ns[kHistogramBuckets];
  Count processing_ns[kHistogramBuckets];
  Count lateness_ns[kHistogramBuckets];
  Count wait_ns[kHistogramBuckets];
};

struct Unit {
  DeviceSq* sqs;           // kMaxQueuesPerUnit of these three
  QueueStateWord* states;  // of the queues; in memory that both sides see
  DeviceCq* cqs;
  Request* requests;
  Rings* rings;
  DeviceFidelity* fidelity;  // kFidelityPhases of them
  DeviceCounts* counts;      // one for each controller
  const QueueOrder* orders;  // two
};

enum class Run : std::uint32_t {
  on,
  drain,  // fetch nothing more, complete what was fetched, end
  stop,   // end at once
};

enum class Abort : std::uint32_t { pending, not_found, done };

// What the host orders. A change is made in what it concerns, then `epoch` grows; every warp looks at it between two
// batches and answers with the epoch it has taken up, after which it uses nothing older. Lies in the device's memory,
// where the host writes it by copies: all warps look at the same word, and across a bus such looks wait for each other.
struct Control {
  simt::Word<std::uint32_t, simt::Scope::system> epoch;
  simt::Word<Run, simt::Scope::system> run;
  simt::Word<std::uint32_t, simt::Scope::system> tables;  // which of the two copies holds
  simt::Word<std::uint32_t, simt::Scope::system> phase;   // of the statistics
  // A command to be ended early: its unit, from bit 16 on its submission queue's index, from bit 32 on its identifier;
  // bit 63 set. 0: none.
  simt::Word<std::uint64_t, simt::Scope::system> abort;
  simt::Word<std::uint64_t, simt::Scope::system> quiet_ns;  // of the engine's time: nobody rang before; see `rests`
};

// What the engine answers, in memory that both sides see. Nobody reads, changes and writes back a word of it: across a
// bus that would not be atomic.
struct Answers {
  simt::Word<Abort, simt::Scope::system> aborted;  // the host's until it has ordered an abort, then the device's
  Fault faults[kFaults];
  simt::Word<std::uint32_t, simt::Scope::system>* warps;  // one for each warp of the grid: the epoch taken up
};

// Everything, as the kernel is given it.
struct EngineRef {
  Control* control;
  Answers* answers;
  simt::Word<std::uint32_t>* fault_count;  // ever
  const Tables* tables;  // two for each controller, one behind the other
  const Unit* units;  // one for each block
  timing::SimpleInstance<DeviceAtomics>* instances;
  timing::SimpleParams timing;
  bool has_model;  // false: everything is done when it is fetched
  // Of the lanes' clock: the engine's time begins here. A GPU's clock may count from 1970, but the model's times end at
  // 2^54 ns (timing/simple.h).
  std::uint64_t clock_start_ns;
  bool updates_per_request;  // of the model: one for each request instead of one for each batch, for comparison
  bool has_statistics;  // false: no account is kept, for comparison
  std::uint32_t slots;  // of each unit; a power of two
  std::uint32_t longest_pause_ns;
  std::uint32_t look_every_ns;  // of pauses: an idle warp looks at the host's words
  bool rests;  // the kernel is let run when something changes, and Control::quiet_ns tells of the time in between
  Trace* trace;
};

// A submission queue as the dispatcher polls it, by place in the order.
struct HotSq {
  std::uint32_t* doorbell;  // nullptr: not fetched from
  const nvme::Sqe* ring;
  std::uint32_t entries;
  std::uint32_t head;
  std::uint32_t bad_tail;  // as in DeviceSq
  // Where classes share by weights: as the doorbell stood in this pass, and commands that have had no turn in it yet.
  std::uint32_t tail;
  std::uint16_t waiting;
  std::uint16_t index;  // in the unit's table
  std::uint8_t controller;
  std::uint8_t burst;
};

// A queue's turn where classes share by weights.
struct Turn {
  std::uint16_t place;
  std::uint16_t commands;
};
inline constexpr std::uint32_t kMaxTurns = 256;  // in one pass
inline constexpr std::uint32_t kDue = 2 * simt::kWarpLanes;  // that wait to be posted together

// The block's shared memory.
struct UnitShared {
  alignas(16) nvme::Sqe fetched[kBatch];
  timing::Demand demands[kBatch];
  std::uint64_t targets_ns[kBatch];
  HotSq sqs[kMaxQueuesPerUnit];
  // How long the entries that are fetched may have waited, by place; apart, for lanes to read neighbouring banks.
  DoorbellWatch watches[kMaxQueuesPerUnit];
  Arbiter arbiters[kMaxControllers];  // of the dispatcher, as QueueOrder has them and then as its turns have gone on
  Turn turns[kMaxTurns];
  std::uint32_t turn_count;
  // Of the completer alone: engine/wheel.h, and what is to be posted.
  Slot wheel[kWheelBuckets];
  Slot later[kLaterLists][simt::kWarpLanes];
  Slot due[kDue];
  simt::Word<std::uint32_t> dispatched_to;  // the dispatcher's epoch, for the completer
  simt::Word<std::uint32_t> dispatcher_gone;
  simt::Word<std::uint32_t> fetched_slots;  // ever, when the dispatcher is gone
  timing::SimpleScratch scratch;
};

FLASHMOB_HD inline std::uint32_t histogram_bucket(std::uint64_t value) {
  if (value < (1u << kHistogramSubBits)) return static_cast<std::uint32_t>(value);
  if (value >> kHistogramMaxBits) return kHistogramBuckets - 1;
#if defined(__CUDA_ARCH__)
  const unsigned top = 63 - static_cast<unsigned>(__clzll(static_cast<long long>(value)));
#else
  const unsigned top = 63 - static_cast<unsigned>(__builtin_clzll(value));
#endif
  const unsigned shift = top - kHistogramSubBits;
  return (shift << kHistogramSubBits) + static_cast<std::uint32_t>(value >> shift);
}

}  // namespace flashmob::gpu::engine
