// The model's update for one batch of commands by a whole warp: what timing::simple_schedule_shared() does with loops,
// with lanes. One lane would wait for each instance's word in turn, 0.3 us a word on an H200; 32 lanes wait once.
//
// Without anything interleaving, targets are those of timing/simple.h's walk in queue order. Compiles as CUDA device
// code.
#pragma once

#include <cstdint>

#include "flashmob/gpu/engine/layout.h"
#include "flashmob/gpu/simt/word.h"
#include "timing/simple.h"

namespace flashmob::gpu::engine {

template <class Lane>
class BatchSchedule {
 public:
  FLASHMOB_HD BatchSchedule(const EngineRef& engine, UnitShared& shared) : engine_(engine), shared_(shared) {}

  // Reads shared.demands[0, count) and writes shared.targets_ns. All lanes of the warp call it; every lane sees what
  // another has written before and, afterwards, all targets.
  FLASHMOB_HD void run(Lane& t, std::uint32_t count, std::uint64_t now_ns) {
    t.sync(t.lanes());
    const bool mine = t.lane() < count;
    if (!engine_.has_model) {
      if (mine) shared_.targets_ns[t.lane()] = now_ns;
    } else {
      timing::Demand demand{0, 0, timing::DemandKind::immediate};
      if (mine) demand = shared_.demands[t.lane()];
      const bool flushes = t.ballot(t.lanes(), demand.kind == timing::DemandKind::flush) != 0;
      const bool is_one = !timing::occupies(demand.kind) || demand.units == 1;
      if (flushes || engine_.updates_per_request)
        by_one_lane(t, count, now_ns);
      else
        by_lanes(t, demand, count, now_ns, t.ballot(t.lanes(), !is_one) == 0);
    }
    t.sync(t.lanes());
  }

 private:
  static constexpr std::uint32_t kNoInstance = 0xFFFFFFFFu;

  FLASHMOB_HD void by_one_lane(Lane& t, std::uint32_t count, std::uint64_t now_ns) {
    if (!t.elect(t.lanes())) return;
    if (engine_.updates_per_request)
      timing::simple_schedule_one_by_one(engine_.timing, engine_.instances, shared_.demands, count, now_ns,
                                         shared_.targets_ns);
    else
      timing::simple_schedule_shared(engine_.timing, engine_.instances, shared_.scratch, shared_.demands, count, now_ns,
                                     shared_.targets_ns);
  }

  FLASHMOB_HD void by_lanes(Lane& t, const timing::Demand& demand, std::uint32_t count, std::uint64_t now_ns,
                            bool single) {
    const std::uint64_t now = timing::to_ticks(now_ns);
    const std::uint64_t served = single ? serve_single(t, demand, now) : serve(t, demand, count, now);
    std::uint64_t target_ns = now_ns;
    if (timing::occupies(demand.kind))
      target_ns = timing::to_ns_rounded_up(served + timing::cost_of(engine_.timing, demand.kind).min_latency);
    if (engine_.timing.has_link)
      target_ns = timing::later(target_ns, timing::to_ns_rounded_up(cross_link(t, demand, now)));
    if (t.lane() < count) shared_.targets_ns[t.lane()] = target_ns;
  }

  // When this lane's request of one unit is served, before Lmin. Those of one instance are reserved by the first of
  // their lanes and follow each other in the order of the lanes.
  FLASHMOB_HD std::uint64_t serve_single(Lane& t, const timing::Demand& demand, std::uint64_t now) {
    const std::uint32_t lanes = t.lanes();
    const timing::SimpleParams& params = engine_.timing;
    const bool occupies = timing::occupies(demand.kind);
    const std::uint32_t reads = t.ballot(lanes, demand.kind == timing::DemandKind::read);
    const std::uint32_t at = occupies ? static_cast<std::uint32_t>(demand.first_unit) & params.mask : kNoInstance;
    const std::uint32_t group = t.match(lanes, at);
    const auto service_of = [&](std::uint32_t mask) {
      return simt::count_lanes(mask & reads) * timing::cost_of(params, timing::DemandKind::read).service +
             simt::count_lanes(mask & ~reads) * timing::cost_of(params, timing::DemandKind::write).service;
    };
    std::uint64_t start = now;
    if (occupies && t.elect(group)) start = timing::simple_reserve(engine_.instances[at], service_of(group), now);
    // All lanes meet, though each asks its own group: collectives of parts of a warp run one part after the other.
    start = t.shuffle(lanes, start, simt::first_lane(group));
    return start + service_of(group & (simt::lanes_below(lanes, t.lane()) | (1u << t.lane())));
  }

  // The same for requests of any number of units: instances are reserved by as many lanes at once, and the batch is
  // walked in queue order, one request after the other, its units side by side.
  FLASHMOB_HD std::uint64_t serve(Lane& t, const timing::Demand& demand, std::uint32_t count, std::uint64_t now) {
    const std::uint32_t lanes = t.lanes();
    const timing::SimpleParams& params = engine_.timing;
    const std::uint32_t instances = timing::instances_of(params);
    std::uint64_t* const ticks = shared_.scratch.ticks;
    for (std::uint32_t u = t.lane(); u < instances; u += simt::kWarpLanes) ticks[u] = 0;
    t.sync(lanes);
    if (timing::occupies(demand.kind)) {
      const timing::SimpleSpread spread = timing::spread_of(params, demand);
      const std::uint64_t service = timing::cost_of(params, demand.kind).service;
      for (std::uint32_t k = 0; k < spread.touched; ++k)
        simt::WordRef<std::uint64_t, simt::Scope::block>(ticks[timing::instance_at(params, spread, k)])
            .fetch_add(t, service * timing::units_at(spread, k), simt::Order::relaxed);
    }
    t.sync(lanes);
    for (std::uint32_t u = t.lane(); u < instances; u += simt::kWarpLanes)
      if (ticks[u] != 0) ticks[u] = timing::simple_reserve(engine_.instances[u], ticks[u], now);
    std::uint64_t served = now;
    for (std::uint32_t i = 0; i < count; ++i) {
      t.sync(lanes);  // with the lanes that have moved an instance's time for the request before
      const timing::Demand& one = shared_.demands[i];
      if (!timing::occupies(one.kind)) continue;
      const std::uint64_t done = serve_one(t, one, ticks, now);
      if (t.lane() == i) served = done;
    }
    return served;
  }

  // One request by all lanes; answers when its last unit is served.
  FLASHMOB_HD std::uint64_t serve_one(Lane& t, const timing::Demand& demand, std::uint64_t* ticks, std::uint64_t now) {
    const timing::SimpleParams& params = engine_.timing;
    const timing::SimpleSpread spread = timing::spread_of(params, demand);
    const std::uint64_t service = timing::cost_of(params, demand.kind).service;
    std::uint64_t done = now;
    for (std::uint32_t k = t.lane(); k < spread.touched; k += simt::kWarpLanes) {
      std::uint64_t& instance = ticks[timing::instance_at(params, spread, k)];
      instance = timing::later(instance, now) + service * timing::units_at(spread, k);
      done = timing::later(done, instance);
    }
    // The latest of the lanes that took part, at lane 0 and wherever else it gets to; one lane needs it.
    const std::uint32_t took_part = spread.touched < simt::kWarpLanes ? spread.touched : simt::kWarpLanes;
    for (std::uint32_t step = 1; step < took_part; step *= 2)
      done = timing::later(done, t.shuffle(t.lanes(), done, (t.lane() + step) % simt::kWarpLanes));
    return t.shuffle(t.lanes(), done, 0);
  }

  // When the link has carried this lane's request.
  FLASHMOB_HD std::uint64_t cross_link(Lane& t, const timing::Demand& demand, std::uint64_t now) {
    const std::uint32_t lanes = t.lanes();
    const timing::SimpleParams& params = engine_.timing;
    const std::uint64_t busy = timing::link_busy(params, demand);
    const std::uint32_t direction = timing::link_direction(demand.kind);
    std::uint64_t carried = 0;  // of this lane's direction, up to its request
    std::uint64_t total = 0;    // of direction 0 in lane 0, of direction 1 in lane 1
    for (std::uint32_t d = 0; d < timing::kLinkDirections; ++d) {
      const std::uint64_t sum = sum_up_to(t, direction == d ? busy : 0);
      const std::uint64_t all = t.shuffle(lanes, sum, simt::kWarpLanes - 1);
      if (direction == d) carried = sum;
      if (t.lane() == d) total = all;
    }
    std::uint64_t start = now;
    if (total != 0)
      start = timing::simple_reserve(engine_.instances[timing::instances_of(params) + t.lane()], total, now);
    start = t.shuffle(lanes, start, direction);
    return busy == 0 ? now : start + carried + timing::link_cost_of(params, demand.kind).min_latency;
  }

  // The sum of the values of all lanes up to this one.
  FLASHMOB_HD std::uint64_t sum_up_to(Lane& t, std::uint64_t value) {
    for (std::uint32_t step = 1; step < simt::kWarpLanes; step *= 2) {
      const std::uint64_t other = t.shuffle(t.lanes(), value, t.lane() >= step ? t.lane() - step : t.lane());
      if (t.lane() >= step) value += other;
    }
    return value;
  }

  const EngineRef& engine_;
  UnitShared& shared_;
};

}  // namespace flashmob::gpu::engine
