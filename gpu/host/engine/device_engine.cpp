#include "host/engine/device_engine.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "base/check.h"
#include "base/rng.h"
#include "host/engine/device_histogram.h"
#include "timing/registry.h"
#include "timing/simple_params.h"

namespace flashmob::gpu {
namespace {

// The host knows a GPU's clock to some microseconds; no lane may read a time before the engine's first.
constexpr std::uint64_t kClockMarginNs = 1'000'000;

template <class T, simt::Scope S>
void store(simt::Word<T, S>& word, T value) {
  std::atomic_ref<T>(word.value).store(value, std::memory_order_release);
}
// Of memory that both sides see.
template <class T, simt::Scope S>
T load(simt::Word<T, S>& word) {
  return std::atomic_ref<T>(word.value).load(std::memory_order_acquire);
}

void require(bool good, const std::string& sentence) {
  if (!good) throw ConfigError(sentence);
}

}  // namespace

void* HostEngineMemory::allocate_shared(std::size_t bytes) {
  // Zeroed page by page when it is first touched, because few controllers come near the regions that they may have.
  constexpr std::size_t kLineBytes = 128;
  std::size_t room = bytes + kLineBytes;
  void* place = std::calloc(room, 1);
  if (place == nullptr) throw std::bad_alloc();
  held_.emplace_back(place);
  return std::align(kLineBytes, bytes, place, room);
}

void HostEngineMemory::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);  // no bytes may come with no address
}

std::uint32_t HostEngineMemory::load_word(std::uint32_t* from) {
  return std::atomic_ref(*from).load(std::memory_order_acquire);
}

void HostEngineMemory::store_word(std::uint32_t* to, std::uint32_t value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}

void HostEngineMemory::store_long(std::uint64_t* to, std::uint64_t value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}

template <class T>
T* DeviceEngine::make_device(std::size_t count) {
  return static_cast<T*>(memory_.allocate_device(count * sizeof(T)));
}
template <class T>
T* DeviceEngine::make_shared(std::size_t count) {
  return static_cast<T*>(memory_.allocate_shared(count * sizeof(T)));
}

DeviceEngine::DeviceEngine(EngineMemory& memory, const TimingConfig& timing, const DeviceEngineOptions& options)
    : memory_(memory), options_(options), model_words_(timing.instances + timing::kLinkDirections) {
  timing.validate();
  const timing::ModelEntry& model = timing::model_of(timing);
  require(model.on_gpu, "a gpu engine cannot run this timing model");
  require(options.units >= 1 && options.units <= 1024, "gpu engine units must be 1...1024");
  require(options.movers >= 1 && 2 + options.movers <= engine::EngineKernel::kMaxBlockThreads / simt::kWarpLanes,
          "gpu engine movers must be 1...14");
  require(std::has_single_bit(options.slots) && options.slots >= engine::kBatch && options.slots <= 1u << 20,
          "gpu engine slots must be a power of two from 32 to 1048576");
  require(options.controllers >= 1 && options.controllers <= engine::kMaxControllers,
          "gpu engine controllers must be 1...64");
  require(options.fetch_batch >= 1 && options.fetch_batch <= engine::kBatch, "gpu engine fetch_batch must be 1...32");

  for (std::uint32_t u = 0; u < options.units; ++u) make_unit();
  auto* const units = make_device<engine::Unit>(options.units);
  memory_.copy(units, units_.data(), units_.size() * sizeof(engine::Unit));
  ref_.units = units;
  ref_.control = make_device<engine::Control>(1);
  ref_.fault_count = make_device<simt::Word<std::uint32_t>>(1);
  ref_.answers = make_shared<engine::Answers>(1);
  ref_.answers->warps =
      make_shared<simt::Word<std::uint32_t, simt::Scope::system>>(options.units * (2 + options.movers));
  ref_.tables = make_device<engine::Tables>(2 * options.controllers);
  ports_.resize(options.controllers);
  for (Port& port : ports_) {
    for (engine::Tables& tables : port.tables) {
      tables.regions = make_device<engine::Region>(kMaxRegions);
      tables.namespaces = make_device<engine::DeviceNamespace>(kMaxNamespaces);
    }
  }
  ref_.has_model = model.is_timed;
  if (ref_.has_model) ref_.timing = timing::simple_params(timing);
  ref_.instances = make_device<timing::SimpleInstance<engine::DeviceAtomics>>(model_words_);
  ref_.clock_start_ns = options.clock_start_ns - std::min(options.clock_start_ns, kClockMarginNs);
  ref_.updates_per_request = timing.per_request_updates;
  ref_.has_statistics = options.statistics;
  ref_.slots = options.slots;
  ref_.longest_pause_ns = options.longest_pause_ns;
  ref_.look_every_ns = options.look_every_ns;
  ref_.rests = options.rests;
  if (options.trace_entries != 0) {
    ref_.trace = make_device<engine::Trace>(1);
    engine::Trace trace;
    trace.entries = make_device<engine::TraceEntry>(options.trace_entries);
    trace.capacity = options.trace_entries;
    put(ref_.trace, trace);
  }
}

void DeviceEngine::make_unit() {
  engine::Unit unit{};
  unit.sqs = make_device<engine::DeviceSq>(engine::kMaxQueuesPerUnit);
  unit.states = make_shared<engine::QueueStateWord>(engine::kMaxQueuesPerUnit);
  unit.cqs = make_device<engine::DeviceCq>(engine::kMaxQueuesPerUnit);
  unit.requests = make_device<engine::Request>(options_.slots);
  unit.fidelity = make_device<engine::DeviceFidelity>(engine::kFidelityPhases);
  unit.counts = make_device<engine::DeviceCounts>(options_.controllers);
  unit.orders = make_device<engine::QueueOrder>(2);
  unit.rings = make_device<engine::Rings>(1);
  engine::Rings rings{};
  rings.free_slots = make_device<engine::Slot>(options_.slots);
  rings.work = make_device<simt::Word<engine::Slot>>(options_.slots);
  rings.ready = make_device<simt::Word<engine::Slot>>(options_.slots);
  rings.free_tail.value = options_.slots;
  put(unit.rings, rings);
  std::vector<engine::Slot> all(options_.slots);
  for (std::uint32_t slot = 0; slot < options_.slots; ++slot) all[slot] = slot;
  memory_.copy(rings.free_slots, all.data(), all.size() * sizeof(engine::Slot));
  units_.push_back(unit);
  UnitNote note;
  note.cq_taken.assign(engine::kMaxQueuesPerUnit, false);
  note.sqs.resize(engine::kMaxQueuesPerUnit);
  notes_.push_back(std::move(note));
}

simt::Shape DeviceEngine::shape() const {
  return {.blocks = options_.units,
          .block_threads = (2 + options_.movers) * simt::kWarpLanes,
          .shared_bytes = sizeof(engine::UnitShared)};
}

void DeviceEngine::abort(Queue sq, std::uint16_t cid) {
  store(ref_.answers->aborted, engine::Abort::pending);
  order(&engine::Control::abort,
        (std::uint64_t{1} << 63) | sq.unit | (std::uint64_t{sq.index} << 16) | (std::uint64_t{cid} << 32));
}

engine::Abort DeviceEngine::aborted() const { return load(ref_.answers->aborted); }

void DeviceEngine::finish_abort() { order(&engine::Control::abort, std::uint64_t{0}); }

void DeviceEngine::note_quiet(std::uint64_t now_ns) {
  if (ref_.rests) order(&engine::Control::quiet_ns, now_ns - std::min(now_ns, ref_.clock_start_ns));
}

void DeviceEngine::reset_model() {
  const std::vector<timing::SimpleInstance<engine::DeviceAtomics>> idle(model_words_);
  memory_.copy(ref_.instances, idle.data(), idle.size() * sizeof(idle[0]));
}

void DeviceEngine::set_phase(unsigned phase) {
  FLASHMOB_CHECK(phase < engine::kFidelityPhases);
  order(&engine::Control::phase, std::uint32_t{phase});
}

void DeviceEngine::end(engine::Run how) { order(&engine::Control::run, how); }

bool DeviceEngine::taken_up(std::uint32_t epoch) const {
  for (std::uint32_t warp = 0; warp < options_.units * (2 + options_.movers); ++warp)
    if (static_cast<std::int32_t>(load(ref_.answers->warps[warp]) - epoch) < 0) return false;
  return true;
}

std::vector<EngineFault> DeviceEngine::take_faults() {
  std::vector<EngineFault> found;
  for (;; ++faults_seen_) {
    engine::Fault& entry = ref_.answers->faults[faults_seen_ % engine::kFaults];
    const std::uint64_t serial = load(entry.serial);
    if (serial < faults_seen_ + 1) break;  // not written yet: the next call finds it
    if (serial > faults_seen_ + 1) {       // overwritten: on with the oldest that can still be there
      faults_seen_ = serial - engine::kFaults - 1;
      continue;
    }
    const std::uint64_t place = load(entry.place), who = load(entry.who), what = load(entry.what);
    if (load(entry.serial) != serial) continue;  // overwritten meanwhile
    EngineFault fault;
    const auto field = static_cast<std::uint16_t>(what);
    fault.controller = static_cast<std::uint8_t>(what >> 40);
    if (field == engine::kBadDoorbell) {
      fault.bad_doorbell = true;
    } else {
      fault.status = nvme::status_of(field);
      fault.nsid = static_cast<std::uint32_t>(who);
      fault.sqid = static_cast<std::uint16_t>(who >> 32);
      fault.cid = static_cast<std::uint16_t>(who >> 48);
      fault.lba = place;
      if (((what >> 32) & 1) != 0) fault.lba = lba_at(ports_[fault.controller], fault.nsid, place);
    }
    found.push_back(fault);
  }
  return found;
}

std::uint64_t DeviceEngine::lba_at(const Port& port, std::uint32_t nsid, std::uint64_t media) const {
  for (const engine::DeviceNamespace& ns : port.namespaces)
    if (ns.nsid == nsid) return (media - reinterpret_cast<std::uint64_t>(ns.base)) >> ns.lba_shift;
  return 0;
}

EngineTotals DeviceEngine::totals() const {
  EngineTotals sum;
  engine::DeviceSums sums;
  for (const engine::Unit& unit : units_) {
    for (std::uint32_t phase = 0; phase < engine::kFidelityPhases; ++phase) {
      memory_.copy(&sums, static_cast<const engine::DeviceSums*>(unit.fidelity + phase), sizeof(sums));
      sum.completions += sums.completions.value;
      sum.lateness_sum_ns += sums.lateness_sum_ns.value;
    }
  }
  return sum;
}

controller::IoCounters DeviceEngine::counts(std::uint32_t controller) const {
  controller::IoCounters sum;
  engine::DeviceCounts one;
  for (const engine::Unit& unit : units_) {
    memory_.copy(&one, unit.counts + controller, sizeof(one));
    sum.read_commands += one.read_commands.value;
    sum.write_commands += one.write_commands.value;
    sum.read_bytes += one.read_bytes.value;
    sum.written_bytes += one.written_bytes.value;
  }
  return sum;
}

std::uint64_t DeviceEngine::in_flight() const {
  std::uint64_t sum = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::uint32_t i = 0; i < notes_[u].sqs_used; ++i) {
      engine::DeviceSq sq;
      memory_.copy(&sq, units_[u].sqs + i, sizeof(sq));
      sum += sq.fetched.value - sq.finished.value;
    }
  }
  return sum;
}

EngineActivity DeviceEngine::activity() const {
  EngineActivity activity;
  const auto note = [&activity](std::uint64_t value) { activity.print = splitmix64(activity.print ^ value); };
  note(epoch_);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const engine::Unit& unit = units_[u];
    std::uint32_t fetched = notes_[u].fetched_before;
    for (std::uint32_t i = 0; i < notes_[u].sqs_used; ++i) {
      engine::DeviceSq& sq = unit.sqs[i];
      const std::uint32_t taken = load(sq.fetched), finished = load(sq.finished);
      fetched += taken;
      if (taken != finished) activity.busy |= std::uint64_t{1} << sq.controller;
      if (load(unit.states[i]) == engine::QueueState::absent) continue;
      note(std::atomic_ref(*sq.doorbell).load(std::memory_order_acquire));
      note(taken | (std::uint64_t{finished} << 32));
      note(std::atomic_ref(*unit.cqs[sq.cq].doorbell).load(std::memory_order_acquire));
    }
    const std::uint32_t ready = load(unit.rings->ready_tail);
    note(ready);
    activity.moving = activity.moving || ready != fetched;
  }
  return activity;
}

std::uint64_t DeviceEngine::next_due_ns(std::uint64_t now_ns) const {
  std::uint64_t next_ns = UINT64_MAX;
  for (const engine::Unit& unit : units_) {
    for (std::uint32_t slot = 0; slot < options_.slots; ++slot) {
      // Nothing goes out before the clock has left the bucket of its target, so what lies beyond is still there.
      const std::uint64_t due_ns = ((unit.requests[slot].target_ns >> engine::kWheelShift) + 1) << engine::kWheelShift;
      if (due_ns > now_ns) next_ns = std::min(next_ns, due_ns);
    }
  }
  return next_ns;
}

flashmob::engine::FidelityStats DeviceEngine::fidelity(unsigned phase) const {
  flashmob::engine::FidelityStats sum;
  const auto one = std::make_unique<engine::DeviceFidelity>();
  for (const engine::Unit& unit : units_) {
    memory_.copy(one.get(), unit.fidelity + phase, sizeof(*one));
    sum.completions += one->completions.value;
    sum.target_sum_ns += one->target_sum_ns.value;
    sum.lateness_sum_ns += one->lateness_sum_ns.value;
    sum.lateness_max_ns = std::max(sum.lateness_max_ns, one->lateness_max_ns.value);
    sum.late_by_copy += one->late_by_copy.value;
    sum.wait_sum_ns += one->wait_sum_ns.value;
    sum.fetches += one->fetches.value;
    sum.left_behind += one->left_behind.value;
    add_counts(sum.wait_ns, one->wait_ns);
    add_counts(sum.target_ns, one->target_ns);
    add_counts(sum.processing_ns, one->processing_ns);
    add_counts(sum.lateness_ns, one->lateness_ns);
  }
  return sum;
}

std::vector<engine::TraceEntry> DeviceEngine::trace() const {
  if (ref_.trace == nullptr) return {};
  engine::Trace head;
  memory_.copy(&head, ref_.trace, sizeof(head));
  std::vector<engine::TraceEntry> entries(std::min(head.count.value, head.capacity));
  memory_.copy(entries.data(), head.entries, entries.size() * sizeof(engine::TraceEntry));
  return entries;
}

}  // namespace flashmob::gpu
