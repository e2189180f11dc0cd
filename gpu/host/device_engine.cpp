#include "host/device_engine.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/histogram.h"
#include "timing/simple_params.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kMaxRegions = 4096;
constexpr std::uint32_t kMaxDeviceNamespaces = 64;

template <class T, simt::Scope S>
void store(simt::Word<T, S>& word, T value) {
  std::atomic_ref<T>(word.value).store(value, std::memory_order_release);
}
template <class T, simt::Scope S>
T load(simt::Word<T, S>& word) {
  return std::atomic_ref<T>(word.value).load(std::memory_order_acquire);
}

void require(bool good, const std::string& sentence) {
  if (!good) throw ConfigError(sentence);
}

}  // namespace

void* HostEngineMemory::allocate_shared(std::size_t bytes) {
  held_.push_back(std::make_unique<Line[]>((bytes + sizeof(Line) - 1) / sizeof(Line)));
  return held_.back().get();
}

void HostEngineMemory::copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

template <class T>
T* DeviceEngine::make_device(std::size_t count) {
  return static_cast<T*>(memory_.allocate_device(count * sizeof(T)));
}
template <class T>
T* DeviceEngine::make_shared(std::size_t count) {
  return static_cast<T*>(memory_.allocate_shared(count * sizeof(T)));
}

DeviceEngine::DeviceEngine(EngineMemory& memory, const TimingConfig& timing, const DeviceEngineOptions& options)
    : memory_(memory), options_(options) {
  timing.validate();
  require(options.units >= 1 && options.units <= 1024, "gpu engine units must be 1...1024");
  require(options.movers >= 1 && 2 + options.movers <= engine::EngineKernel::kMaxBlockThreads / simt::kWarpLanes,
          "gpu engine movers must be 1...14");
  require(std::has_single_bit(options.slots) && options.slots >= engine::kBatch && options.slots <= 1u << 20,
          "gpu engine slots must be a power of two from 32 to 1048576");
  require(!timing.per_request_updates, "the gpu engine updates its timing model once per batch: per_request_updates");

  for (std::uint32_t u = 0; u < options.units; ++u) {
    engine::Unit unit{};
    unit.sqs = make_device<engine::DeviceSq>(engine::kMaxQueuesPerUnit);
    unit.states = make_shared<engine::QueueStateWord>(engine::kMaxQueuesPerUnit);
    unit.cqs = make_device<engine::DeviceCq>(engine::kMaxQueuesPerUnit);
    unit.requests = make_device<engine::Request>(options.slots);
    unit.fidelity = make_device<engine::DeviceFidelity>(engine::kFidelityPhases);
    unit.rings = make_device<engine::Rings>(1);
    engine::Rings rings{};
    rings.free_slots = make_device<engine::Slot>(options.slots);
    rings.work = make_device<simt::Word<engine::Slot>>(options.slots);
    rings.ready = make_device<simt::Word<engine::Slot>>(options.slots);
    rings.free_tail.value = options.slots;
    put(unit.rings, rings);
    std::vector<engine::Slot> all(options.slots);
    for (std::uint32_t slot = 0; slot < options.slots; ++slot) all[slot] = slot;
    memory_.copy(rings.free_slots, all.data(), all.size() * sizeof(engine::Slot));
    units_.push_back(unit);
  }
  auto* const units = make_device<engine::Unit>(options.units);
  memory_.copy(units, units_.data(), units_.size() * sizeof(engine::Unit));
  ref_.units = units;
  ref_.control = make_shared<engine::Control>(1);
  ref_.control->answers =
      make_shared<simt::Word<std::uint32_t, simt::Scope::system>>(options.units * (2 + options.movers));
  device_tables_ = make_device<engine::Tables>(2);
  ref_.tables = device_tables_;
  for (engine::Tables& tables : tables_) {
    tables.regions = make_device<engine::Region>(kMaxRegions);
    tables.namespaces = make_device<engine::DeviceNamespace>(kMaxDeviceNamespaces);
  }
  for (unsigned i = 0; i < 2; ++i) put(device_tables_ + i, tables_[i]);
  ref_.has_model = timing.model != "none";
  if (ref_.has_model) ref_.timing = timing::simple_params(timing);
  ref_.instances = make_device<timing::SimpleInstance<engine::DeviceAtomics>>(timing.instances);
  ref_.slots = options.slots;
  ref_.longest_pause_ns = options.longest_pause_ns;
  if (options.trace_entries != 0) {
    ref_.trace = make_device<engine::Trace>(1);
    engine::Trace trace;
    trace.entries = make_device<engine::TraceEntry>(options.trace_entries);
    trace.capacity = options.trace_entries;
    put(ref_.trace, trace);
  }
  cq_taken_.assign(options.units, std::vector<bool>(engine::kMaxQueuesPerUnit, false));
}

simt::Shape DeviceEngine::shape() const {
  return {.blocks = options_.units,
          .block_threads = (2 + options_.movers) * simt::kWarpLanes,
          .shared_bytes = sizeof(engine::UnitShared)};
}

void DeviceEngine::set_namespaces(const std::vector<engine::DeviceNamespace>& namespaces,
                                  std::uint64_t max_transfer_bytes, std::uint32_t max_nsid) {
  require(namespaces.size() <= kMaxDeviceNamespaces, "the gpu engine serves at most 64 namespaces");
  require(max_transfer_bytes <= engine::kMaxTransferBytes,
          "controller.max_transfer_bytes must be at most 131072 for the gpu engine");
  namespaces_ = namespaces;
  max_transfer_bytes_ = max_transfer_bytes;
  max_nsid_ = max_nsid;
  tables_changed_ = true;
}

void DeviceEngine::set_regions(std::vector<engine::Region> regions) {
  std::sort(regions.begin(), regions.end(), [](const auto& a, const auto& b) { return a.iova < b.iova; });
  std::vector<engine::Region> spans;
  for (const engine::Region& region : regions) {
    if (!spans.empty()) {
      engine::Region& last = spans.back();
      if (last.iova + last.bytes == region.iova && last.memory + last.bytes == region.memory &&
          last.writable == region.writable) {
        last.bytes += region.bytes;
        continue;
      }
    }
    spans.push_back(region);
  }
  require(spans.size() <= kMaxRegions, "the gpu engine knows at most 4096 memory regions: register larger ones");
  regions_ = std::move(spans);
  tables_changed_ = true;
}

bool DeviceEngine::add_cq(nvme::Cqe* ring, std::uint32_t entries, std::uint32_t* doorbell, bool host_looks,
                          Queue& out) {
  const std::uint32_t unit = next_unit_;
  next_unit_ = (next_unit_ + 1) % options_.units;
  auto& taken = cq_taken_[unit];
  const auto free = std::find(taken.begin(), taken.end(), false);
  if (free == taken.end()) return false;
  *free = true;
  out = {unit, static_cast<std::uint32_t>(free - taken.begin())};
  put(units_[unit].cqs + out.index, engine::DeviceCq{ring, doorbell, entries, 0, 0, 1, host_looks});
  return true;
}

bool DeviceEngine::add_sq(const nvme::Sqe* ring, std::uint32_t entries, std::uint32_t* doorbell, std::uint16_t sqid,
                          Queue cq, Queue& out) {
  engine::Unit& unit = units_[cq.unit];
  for (std::uint32_t index = 0; index < engine::kMaxQueuesPerUnit; ++index) {
    if (load(unit.states[index]) != engine::QueueState::absent) continue;
    engine::DeviceSq sq{};
    sq.ring = ring;
    sq.doorbell = doorbell;
    sq.entries = entries;
    sq.sqid = sqid;
    sq.cq = static_cast<std::uint16_t>(cq.index);
    put(unit.sqs + index, sq);
    store(unit.states[index], engine::QueueState::active);
    out = {cq.unit, index};
    return true;
  }
  return false;
}

void DeviceEngine::close_sq(Queue sq, bool drop) {
  store(units_[sq.unit].states[sq.index], drop ? engine::QueueState::dropping : engine::QueueState::draining);
}

bool DeviceEngine::closed(Queue sq) const {
  return load(units_[sq.unit].states[sq.index]) == engine::QueueState::absent;
}

void DeviceEngine::remove_cq(Queue cq) { cq_taken_[cq.unit][cq.index] = false; }

void DeviceEngine::set_phase(unsigned phase) {
  FLASHMOB_CHECK(phase < engine::kFidelityPhases);
  store(ref_.control->phase, std::uint32_t{phase});
}

void DeviceEngine::end(engine::Run how) { store(ref_.control->run, how); }

std::uint32_t DeviceEngine::commit() {
  if (tables_changed_) {
    current_tables_ ^= 1;
    engine::Tables& tables = tables_[current_tables_];
    memory_.copy(const_cast<engine::Region*>(tables.regions), regions_.data(),
                 regions_.size() * sizeof(engine::Region));
    memory_.copy(const_cast<engine::DeviceNamespace*>(tables.namespaces), namespaces_.data(),
                 namespaces_.size() * sizeof(engine::DeviceNamespace));
    tables.region_count = static_cast<std::uint32_t>(regions_.size());
    tables.namespace_count = static_cast<std::uint32_t>(namespaces_.size());
    tables.max_transfer_bytes = max_transfer_bytes_;
    tables.max_nsid = max_nsid_;
    put(device_tables_ + current_tables_, tables);
    store(ref_.control->tables, current_tables_);
    tables_changed_ = false;
  }
  const std::uint32_t epoch = ref_.control->epoch.value + 1;
  store(ref_.control->epoch, epoch);
  return epoch;
}

bool DeviceEngine::taken_up(std::uint32_t epoch) const {
  for (std::uint32_t warp = 0; warp < options_.units * (2 + options_.movers); ++warp)
    if (static_cast<std::int32_t>(load(ref_.control->answers[warp]) - epoch) < 0) return false;
  return true;
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
    for (std::uint32_t bucket = 0; bucket < engine::kHistogramBuckets; ++bucket) {
      const auto enter = [bucket](Histogram& to, const engine::DeviceFidelity::Count* counts) {
        if (counts[bucket].value == 0) return;
        to.record(Histogram::bucket_low(bucket) + Histogram::bucket_width(bucket) / 2, counts[bucket].value);
      };
      enter(sum.target_ns, one->target_ns);
      enter(sum.processing_ns, one->processing_ns);
      enter(sum.lateness_ns, one->lateness_ns);
    }
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
