// What the host changes in the GPU engine while it runs: tables of regions and namespaces, queues and their order.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "flashmob/error.h"
#include "host/engine/device_engine.h"

namespace flashmob::gpu {

void DeviceEngine::change(Port& port) {
  port.stale[0] = port.stale[1] = true;
  changed_ = true;
}
void DeviceEngine::change(UnitNote& unit) {
  unit.stale[0] = unit.stale[1] = true;
  changed_ = true;
}

void DeviceEngine::set_namespaces(const std::vector<engine::DeviceNamespace>& namespaces,
                                  std::uint64_t max_transfer_bytes, std::uint32_t max_nsid, std::uint32_t controller) {
  if (namespaces.size() > kMaxNamespaces) throw ConfigError("the gpu engine serves at most 256 namespaces");
  if (max_transfer_bytes > engine::kMaxTransferBytes)
    throw ConfigError("controller.max_transfer_bytes must be at most 131072 for the gpu engine");
  Port& port = ports_.at(controller);
  port.namespaces = namespaces;
  port.max_transfer_bytes = max_transfer_bytes;
  port.max_nsid = max_nsid;
  change(port);
}

void DeviceEngine::set_regions(std::vector<engine::Region> regions, std::uint32_t controller) {
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
  if (spans.size() > kMaxRegions)
    throw ConfigError("the gpu engine knows at most 4096 memory regions of a controller: register larger ones");
  Port& port = ports_.at(controller);
  port.regions = std::move(spans);
  change(port);
}

void DeviceEngine::set_arbitration(const EngineArbitration& rule, std::uint32_t controller) {
  Port& port = ports_.at(controller);
  port.arbitration = rule;
  change(port);
  // The order of a unit's queues depends on their controllers' rules.
  for (UnitNote& unit : notes_) change(unit);
}

bool DeviceEngine::add_cq(nvme::Cqe* ring, std::uint32_t entries, std::uint32_t* doorbell, bool host_looks, Queue& out,
                          std::uint32_t controller) {
  for (std::uint32_t tries = 0; tries < options_.units; ++tries) {
    const std::uint32_t unit = next_unit_;
    next_unit_ = (next_unit_ + 1) % options_.units;
    auto& taken = notes_[unit].cq_taken;
    const auto free = std::find(taken.begin(), taken.end(), false);
    if (free == taken.end()) continue;
    *free = true;
    out = {unit, static_cast<std::uint32_t>(free - taken.begin())};
    engine::DeviceCq cq{};
    cq.ring = ring;
    cq.doorbell = doorbell;
    cq.entries = entries;
    cq.phase = 1;
    cq.host_looks = host_looks;
    cq.controller = static_cast<std::uint8_t>(controller);
    cq.bad_head = 0xFFFFFFFFu;
    put(units_[unit].cqs + out.index, cq);
    return true;
  }
  return false;
}

bool DeviceEngine::add_sq(const nvme::Sqe* ring, std::uint32_t entries, std::uint32_t* doorbell, std::uint16_t sqid,
                          Queue cq, Queue& out, std::uint32_t controller, controller::QueuePriority priority) {
  engine::Unit& unit = units_[cq.unit];
  UnitNote& note = notes_[cq.unit];
  for (std::uint32_t index = 0; index < engine::kMaxQueuesPerUnit; ++index) {
    if (note.sqs[index].taken || !closed({cq.unit, index})) continue;
    engine::DeviceSq before;
    memory_.copy(&before, unit.sqs + index, sizeof(before));
    note.fetched_before += before.fetched.value;
    engine::DeviceSq sq{};
    sq.ring = ring;
    sq.doorbell = doorbell;
    sq.entries = entries;
    sq.sqid = sqid;
    sq.cq = static_cast<std::uint16_t>(cq.index);
    sq.controller = static_cast<std::uint8_t>(controller);
    sq.bad_tail = 0xFFFFFFFFu;
    note.sqs_used = std::max(note.sqs_used, index + 1);
    note.sqs[index] = {true, true, controller, priority};
    change(note);
    put(unit.sqs + index, sq);
    std::atomic_ref(unit.states[index].value).store(engine::QueueState::active, std::memory_order_release);
    out = {cq.unit, index};
    return true;
  }
  return false;
}

void DeviceEngine::close_sq(Queue sq, engine::QueueState how) {
  notes_[sq.unit].sqs[sq.index].active = false;
  change(notes_[sq.unit]);
  std::atomic_ref(units_[sq.unit].states[sq.index].value).store(how, std::memory_order_release);
}

bool DeviceEngine::closed(Queue sq) const {
  return std::atomic_ref(units_[sq.unit].states[sq.index].value).load(std::memory_order_acquire) ==
         engine::QueueState::absent;
}

void DeviceEngine::remove_sq(Queue sq) { notes_[sq.unit].sqs[sq.index].taken = false; }

void DeviceEngine::remove_cq(Queue cq) { notes_[cq.unit].cq_taken[cq.index] = false; }

std::uint32_t DeviceEngine::commit() {
  if (changed_) {
    current_copy_ ^= 1;
    for (std::uint32_t controller = 0; controller < ports_.size(); ++controller) write_tables(controller);
    for (std::uint32_t unit = 0; unit < notes_.size(); ++unit) write_order(unit);
    order(&engine::Control::tables, std::uint32_t{current_copy_});
    changed_ = false;
  }
  order(&engine::Control::epoch, ++epoch_);
  return epoch_;
}

void DeviceEngine::write_tables(std::uint32_t controller) {
  Port& port = ports_[controller];
  if (!std::exchange(port.stale[current_copy_], false)) return;
  engine::Tables& tables = port.tables[current_copy_];
  memory_.copy(const_cast<engine::Region*>(tables.regions), port.regions.data(),
               port.regions.size() * sizeof(engine::Region));
  memory_.copy(const_cast<engine::DeviceNamespace*>(tables.namespaces), port.namespaces.data(),
               port.namespaces.size() * sizeof(engine::DeviceNamespace));
  tables.region_count = static_cast<std::uint32_t>(port.regions.size());
  tables.namespace_count = static_cast<std::uint32_t>(port.namespaces.size());
  tables.max_transfer_bytes = port.max_transfer_bytes;
  tables.max_nsid = port.max_nsid;
  tables.burst = std::clamp(port.arbitration.burst, 1u, options_.fetch_batch);
  put(const_cast<engine::Tables*>(ref_.tables) + 2 * controller + current_copy_, tables);
}

void DeviceEngine::write_order(std::uint32_t unit) {
  UnitNote& note = notes_[unit];
  if (!std::exchange(note.stale[current_copy_], false)) return;
  engine::QueueOrder order{};
  order.indices = note.sqs_used;
  std::uint64_t weighted = 0;
  for (std::uint32_t index = 0; index < note.sqs_used; ++index) {
    if (!note.sqs[index].active) continue;
    order.queues[order.places++] = static_cast<std::uint16_t>(index);
    weighted += ports_[note.sqs[index].controller].arbitration.weighted;
  }
  if (weighted != 0) add_arbiters(note, order);
  put(const_cast<engine::QueueOrder*>(units_[unit].orders) + current_copy_, order);
}

// Sorts the queues by controller and class, in each by place, and says what each class is due.
void DeviceEngine::add_arbiters(const UnitNote& unit, engine::QueueOrder& order) const {
  // Under plain round robin a controller's queues are all in one class.
  const auto priority_of = [&](std::uint16_t index) {
    const SqNote& sq = unit.sqs[index];
    return ports_[sq.controller].arbitration.weighted ? static_cast<std::uint32_t>(sq.priority) : 1u;
  };
  const auto rank = [&](std::uint16_t index) {
    return unit.sqs[index].controller * kPriorityClasses + priority_of(index);
  };
  std::sort(order.queues, order.queues + order.places,
            [&](std::uint16_t a, std::uint16_t b) { return rank(a) != rank(b) ? rank(a) < rank(b) : a < b; });
  for (std::uint32_t place = 0; place < order.places; ++place) {
    const SqNote& sq = unit.sqs[order.queues[place]];
    const bool same = place != 0 && sq.controller == unit.sqs[order.queues[place - 1]].controller;
    order.arbiter_count += same ? 0 : 1;
    const std::uint32_t priority = priority_of(order.queues[place]);
    PriorityClass& group = order.arbiters[order.arbiter_count - 1].classes[priority];
    if (group.count++ == 0) group.first = place;
    const EngineArbitration& rule = ports_[sq.controller].arbitration;
    group.credits = rule.weighted
                        ? credits_of(priority, kUrgentCommands, rule.high_weight, rule.medium_weight, rule.low_weight)
                        : group.count * engine::kBatch;
    group.left = group.credits;
  }
}

}  // namespace flashmob::gpu
